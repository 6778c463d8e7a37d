"""Advice that follows from the choice of a setting. Pure.

- Costs: what a step takes with each setting, what it must bring, and where the draft should be cut. A step's
  time is the time of a token (TPOT, paired with the standard's, so that drift is out of it) times the tokens
  of a step, which the server's counters give. economics.py has the formulas.
- Crossover: from how many streams on speculation stops paying, both sides measured.
- Schedule: the best K by the number of requests in a batch, as vLLM takes it.
- Rivals: other settings that pay as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Literal

from specops import economics, stats
from specops.economics import StepCost
from specops.experiment.findings import Decision, StoredInterval
from specops.load import record
from specops.load.record import CellRecord
from specops.phases.sweep import recommend
from specops.phases.sweep.recommend import Choice, Contest
from specops.phases.sweep.speedups import Pair, Pairs, Stratum, SweepCells
from specops.render.figures import times
from specops.results import rounded
from specops.section import Frozen
from specops.serving import Setting
from specops.trees import parse_tree


class Alternative(Frozen):
    """The speed of the recommended setting over that of another which pays as well."""

    setting: str
    ratio: StoredInterval | None
    differs: bool
    """Whether the two can be distinguished."""


def runners_up(swept: SweepCells, choices: Sequence[Contest], choice: Choice) -> list[Alternative]:
    """The others that looked as if they paid, where all prompts together recommend a setting. Its runner-up
    is compared with it by the confirmation, the rest by the choice."""
    recommended = choice.setting
    if recommended is None or choice.only:
        return []
    where = Stratum(choice.decided_at or 1)
    contest = next(
        candidate_contest
        for candidate_contest in choices
        if candidate_contest.where.concurrency == where.concurrency
    )
    names = {
        candidate.setting.name for candidate in contest.candidates if candidate.decision.verdict == "yes"
    }
    alternatives = []
    for setting in swept.challengers:
        pairs = swept.evidence(recommended.name, where, over=setting.name)
        if setting.name != recommended.name and (
            setting.name in names or swept.confirmed(setting.name, where)
        ):
            ratio = pairs.ratio("e2e", stats.LEVEL)
            differs = ratio is not None and not ratio.low <= 1 <= ratio.high
            alternatives.append(Alternative(setting=setting.name, ratio=ratio, differs=differs))
    return alternatives


def crossed(contests: Sequence[Contest], choice: Choice) -> Crossover | None:
    """The crossover of the recommended setting, from the load at which it was decided."""
    recommended, decided_at = choice.setting, choice.decided_at
    if recommended is None or decided_at is None:
        return None
    candidates = [(contest.where.concurrency, contest.candidate_of(recommended.name)) for contest in contests]
    return crossover(
        recommended.name,
        [
            (count, candidate.decision)
            for count, candidate in candidates
            if candidate is not None and count >= decided_at
        ],
    )


def planned(
    swept: SweepCells, choices: Sequence[Contest], finals: Sequence[Contest], choice: Choice
) -> tuple[Schedule | None, str | None]:
    """The schedule over the settings that a server with the recommended draft can change between, or the
    reason for its absence. At each load the confirmation decides on what it measured, and the choice on the
    rest."""
    recommended = choice.setting
    if recommended is None:
        return None, "nothing is recommended"
    if choice.only:
        return None, "it pays for some traffic classes only, and a batch has them all"
    family = family_of(recommended)
    if family is None:
        return None, f"{recommended.name} is a tree that branches, and a schedule is of chains"
    best, unconfirmed = {}, []
    for chosen, final in zip(choices, finals, strict=True):
        streams = final.where.concurrency
        measured = [
            candidate
            for candidate in final.candidates
            if swept.confirmed(candidate.setting.name, final.where)
        ]
        confirmed = final.best if final.best and family_of(final.best.setting) == family else None
        if streams == choice.decided_at:
            best[streams] = recommended.k
        elif confirmed is not None:
            best[streams] = confirmed.setting.k
        else:
            measured_names = {candidate.setting.name for candidate in measured}
            rest = [
                candidate
                for candidate in chosen.candidates
                if family_of(candidate.setting) == family and candidate.setting.name not in measured_names
            ]
            best_of_family = recommend.best(rest, partial(recommend.differs, swept, chosen.where))
            if measured or rest:
                best[streams] = best_of_family.setting.k if best_of_family else 0
            if best_of_family:
                unconfirmed.append(streams)
    by_batch = schedule(best, unconfirmed)
    against = recommended.pool.against_schedule(by_batch.ranges)
    if against:
        return None, f"such a schedule has a known issue on this server: {', '.join(against)}"
    return by_batch, None


Family = tuple[str | None, str | None]
"""Settings that differ in K alone: a draft's name, and the kind of tree."""

NO_DRAFTS = "the server does not say how many drafts it verified"
_WHOLE = 0.9
"""The share of K that the average step drafts at least, where all steps draft. Less comes from steps that
drafted nothing, not from ends of answers."""


class Step(Frozen):
    """A step of one setting at one load. What is not known is null, never 0, and `missing` says why."""

    setting: str
    k: int
    requests: int
    tokens: float | None
    """Tokens that a step yields, over all steps, also those for which a lookup found nothing to draft."""

    drafted: float | None
    """Tokens drafted a step."""

    step_ms: float | None
    target_ms: float | None
    """The standard's step, at the same time."""

    break_even_acceptance: float | None
    """Accepted over drafted tokens; null also where not even accepting everything would pay."""

    break_even_alpha: float | None
    """Break-even as the acceptance of each position, independent of the others (arXiv 2211.17192); null for
    trees that branch, and where steps draft less than K, as a lookup's do."""

    acceptance: float | None
    missing: str | None


class DraftPosition(Frozen):
    """A position in a draft."""

    k: int
    accepted: float
    token_ms: float | None
    pays: bool | None


class FamilySteps(Frozen):
    """The steps of a family at one load, and the curve of its longest draft."""

    draft: str | None
    kind: str | None
    requests: int
    """The requests of all its settings."""

    target_ms: float | None
    draft_ms: float | None
    residual: float | None
    measured: list[int]
    """The K that the line goes through; 0 among them."""

    curve_of: str | None
    """The setting whose positions these are."""

    positions: list[DraftPosition]
    cut: int | None
    """The last K before a position that costs more than it brings. It comes from a line through measured
    steps: a K that was not measured is not recommended."""

    missing: str | None


def family_of(setting: Setting) -> Family | None:
    """The family of a setting; None for a tree that branches, where more of it is not more K."""
    kind = parse_tree(setting.tree).kind if setting.tree else None
    return (setting.draft, kind) if kind in (None, "chain", "ngram") else None


def step_of(setting: Setting, pairs: Pairs, cells: Sequence[CellRecord]) -> Step:
    """The step of a setting at one load, from its `pairs` with the standard and its own `cells`."""
    counts, missing = record.acceptance(cells)
    token_times = _token_ms(pairs.all)
    if missing is None and token_times is None:
        missing = "no answer was long enough for a time of a token"
    if counts is None or token_times is None:
        return _unknown(setting, _requests(cells), missing)
    if counts.drafts is None:
        return _unknown(setting, _requests(cells), NO_DRAFTS)
    steps = counts.drafts + _undrafted(cells, counts.drafts + counts.accepted_tokens)
    tokens = 1 + counts.accepted_tokens / steps
    drafted = counts.draft_tokens / steps
    standard_ms, setting_ms = token_times
    ratio = economics.step_ms(setting_ms, tokens) / standard_ms
    break_even = economics.break_even_rate(drafted, ratio) if drafted else None
    whole = family_of(setting) is not None and drafted > _WHOLE * setting.k
    return Step(
        setting=setting.name,
        k=setting.k,
        requests=_requests(cells),
        tokens=round(tokens, 4),
        drafted=round(drafted, 4),
        step_ms=round(economics.step_ms(setting_ms, tokens), 4),
        target_ms=round(standard_ms, 4),
        break_even_acceptance=rounded(break_even),
        break_even_alpha=rounded(economics.break_even_alpha(setting.k, ratio)) if whole else None,
        acceptance=rounded(counts.rate),
        missing=None if break_even is not None else "not even accepting every token would pay",
    )


def line_of(
    family: Family, settings: Sequence[Setting], steps: Mapping[str, Step], cells: _Cells
) -> FamilySteps:
    """The line through the steps of one family, measured at one load; `cells` by the name of the setting."""
    members = [setting for setting in settings if family_of(setting) == family]
    fitted = _fitted([steps[setting.name] for setting in members if setting.name in steps])
    name, curve, missing = _curve(members, cells)
    positions = economics.positions(curve, fitted) if fitted and curve else []
    return FamilySteps(
        draft=family[0],
        kind=family[1],
        requests=sum(_requests(cells.get(setting.name, [])) for setting in members),
        target_ms=round(fitted.target_ms, 4) if fitted else None,
        draft_ms=round(fitted.draft_ms, 4) if fitted else None,
        residual=rounded(fitted.residual) if fitted else None,
        measured=list(fitted.measured) if fitted else [],
        curve_of=name,
        positions=[
            DraftPosition(
                k=position.k,
                accepted=round(position.accepted, 4),
                token_ms=round(position.token_ms, 4),
                pays=position.pays,
            )
            for position in positions
        ]
        or [
            DraftPosition(k=k, accepted=round(p, 4), token_ms=None, pays=None)
            for k, p in enumerate(curve, start=1)
        ],
        cut=economics.cut(positions) if positions else None,
        missing=missing if not curve else None if fitted else "no step times to draw a line through",
    )


_Cells = Mapping[str, Sequence[CellRecord]]


def _fitted(steps: Sequence[Step]) -> StepCost | None:
    """Return each K's step over the standard's at its own time, on the standard's mean: drift is out of the
    line."""
    ratios = {s.k: s.step_ms / s.target_ms for s in steps if s.step_ms is not None and s.target_ms}
    if not ratios:
        return None
    plain = fmean(s.target_ms for s in steps if s.target_ms)
    return economics.fit_steps({0: plain} | {k: plain * ratio for k, ratio in ratios.items()})


def _curve(settings: Sequence[Setting], cells: _Cells) -> tuple[str | None, list[float], str | None]:
    """The acceptance curve of the longest draft that has one: its setting, the share of all steps that
    accepted each position, and the reason for its absence."""
    missing = "nothing was measured"
    for setting in sorted(settings, key=lambda setting: -setting.k):
        counts, why = record.acceptance(cells.get(setting.name, []))
        if counts is None:
            missing = why or missing
        elif counts.drafts is None:
            missing = NO_DRAFTS
        elif counts.accepted_per_position:
            steps = counts.drafts + _undrafted(cells[setting.name], counts.drafts + counts.accepted_tokens)
            return setting.name, [count / steps for count in counts.accepted_per_position], None
        else:
            missing = "the server does not count by position"
    return None, [], missing


def _undrafted(cells: Sequence[CellRecord], drafted: float) -> float:
    """Steps without a draft, such as a lookup's that found nothing, which no counter counts.

    Each yields one token, and so does, in vLLM, the prompt's: what the server generated beyond that and
    beyond its drafts' tokens, `drafted`, came from them. 0 where the server does not say what it generated.
    """
    drafting = [cell for cell in cells if cell.drafts is not None]
    if any(cell.server_tokens is None for cell in drafting):
        return 0.0
    generated = sum(cell.server_tokens or 0.0 for cell in drafting)
    prompts = sum(len(cell.rows) for cell in drafting)
    return float(max(0.0, generated - drafted - prompts))


def _token_ms(pairs: Sequence[Pair]) -> tuple[float, float] | None:
    """The standard's mean time of a token and the setting's; an answer weighs what it is long, if known."""
    timed = [(pair, tpot) for pair in pairs if (tpot := pair.mean("tpot")) is not None]
    if not timed:
        return None
    counted = all(pair.mean("tokens") for pair, _ in timed)

    def mean(side: int) -> float:
        weights = [tokens[side] if (tokens := pair.mean("tokens")) and counted else 1.0 for pair, _ in timed]
        return fmean([tpot[side] for _, tpot in timed], weights)

    return mean(0), mean(1)


def _unknown(setting: Setting, requests: int, why: str | None) -> Step:
    return Step(
        setting=setting.name,
        k=setting.k,
        requests=requests,
        tokens=None,
        drafted=None,
        step_ms=None,
        target_ms=None,
        break_even_acceptance=None,
        break_even_alpha=None,
        acceptance=None,
        missing=why,
    )


def _requests(cells: Sequence[CellRecord]) -> int:
    return sum(len(cell.rows) for cell in cells)


class Crossover(Frozen):
    """The load at which one setting stops paying, in streams of one replica, as measured."""

    on_max: int | None
    """The most streams measured at which it surely pays, and at none fewer was surely slower."""

    off_min: int | None
    """The fewest streams measured above them, at which it does not surely pay; None where none were."""

    per: Literal["replica"] = "replica"
    message: str


def crossover(setting: str, measured: Sequence[tuple[int, Decision]]) -> Crossover:
    """The crossover of `setting`, by the decision at each concurrency, from the lightest; at least one.

    What is undecided between two loads at which it pays does not end it: there are few loads at which
    nothing changes but the noise. What is surely slower does.
    """
    on_max = off_min = None
    for concurrency, decision in measured:
        if decision.verdict == "no":
            off_min = concurrency if off_min is None else off_min
            break
        if decision.verdict == "yes":
            on_max, off_min = concurrency, None
        elif off_min is None:
            off_min = concurrency
    return Crossover(
        on_max=on_max, off_min=off_min, message=_crossover_message(setting, dict(measured), on_max, off_min)
    )


def _crossover_message(
    setting: str, measured: dict[int, Decision], on_max: int | None, off_min: int | None
) -> str:
    if on_max is None:
        lightest = min(measured)
        below = f"; fewer than {lightest} were not measured" if lightest > 1 else ""
        return f"{setting} does not surely pay at any number of streams measured{below}"
    if off_min is None:
        return (
            f"{setting} is faster up to {_streams(on_max)}, the most that were measured: measure "
            f"{2 * on_max} streams or more to find the limit"
        )
    after = measured[off_min]
    outcome = times(after.speedup) if after.speedup and after.speedup.low <= 1 else after.reason
    slower = after.speedup is not None and after.speedup.high < 1
    not_paid = "does not pay at" if after.verdict == "no" else "is not shown to pay at"
    how = "is slower at" if slower else not_paid
    between = f"; nothing was measured between {on_max} and {off_min}" if off_min - on_max > 1 else ""
    return f"{setting} pays up to {_streams(on_max)} and {how} {off_min}: {outcome}{between}"


def _streams(count: int) -> str:
    return f"{count} stream{'s' if count > 1 else ''}"


Range = tuple[int, int, int]
"""First and last size of the batch, both included, and K.

vLLM's `num_speculative_tokens_per_batch_size` (0.24 and later) is a list of these. The first starts at 1,
none overlap, and K = 0 is off. Above the last range vLLM continues with its K up to the largest batch. No K
is above `num_speculative_tokens`, so that has to be the schedule's largest
(vllm/v1/spec_decode/dynamic/utils.py, 0.32).
"""


class Schedule(Frozen):
    ranges: list[Range]
    largest: int
    """The `num_speculative_tokens` that it needs; 0 where it never speculates."""

    message: str
    """Which parts of it were not measured."""


def schedule(best: Mapping[int, int], unconfirmed: Sequence[int] = ()) -> Schedule:
    """The schedule from the best K at each concurrency that was measured; at least one. At those
    `unconfirmed`, K comes from the choice alone.

    Between two measured loads of unlike K the boundary is their geometric middle, which is an interpolation:
    nothing was measured there. Nothing is said above the largest load.
    """
    measured = sorted(best.items())
    ranges: list[Range] = []
    first = 1
    for (concurrency, k), (following, following_k) in pairwise(measured):
        if k != following_k:
            last = math.isqrt(concurrency * following)
            ranges.append((first, last, k))
            first = last + 1
    ranges.append((first, measured[-1][0], measured[-1][1]))
    return Schedule(
        ranges=ranges,
        largest=max(k for _, _, k in ranges),
        message=_schedule_message(measured, ranges, unconfirmed),
    )


def _schedule_message(
    measured: list[tuple[int, int]], ranges: list[Range], unconfirmed: Sequence[int]
) -> str:
    lightest, heaviest = measured[0][0], measured[-1]
    parts = [f"measured at {', '.join(str(concurrency) for concurrency, _ in measured)}"]
    if len(ranges) > 1:
        parts.append("boundaries lie at the geometric middle between two of them, where nothing was measured")
    if lightest > 1:
        parts.append(f"below {lightest} nothing was measured")
    if heaviest[1] > 0:
        parts.append(f"above {heaviest[0]} nothing was measured, and vLLM continues with K = {heaviest[1]}")
    if unconfirmed:
        parts.append(f"not confirmed at {', '.join(map(str, unconfirmed))}")
    return "; ".join(parts)
