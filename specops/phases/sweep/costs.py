"""What a step takes with each setting, what it must bring, and where the draft had better be cut. Pure.

A step's time is the time of a token (TPOT, paired with the standard's, so that drift is out of it) times the
tokens of a step, which the server's counters give. economics.py has the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from specops import economics
from specops.economics import StepCost
from specops.load import summary
from specops.load.record import CellRecord
from specops.phases.ab.speedups import Pair, Pairs
from specops.phases.sweep.jobs import Setting
from specops.trees import parse_tree

Family = tuple[str | None, str | None]
"""Settings that differ in K alone: a draft's name, and the kind of tree."""

_WHOLE = 0.9
"""Of K, drafted by the average step: less comes from steps that drafted nothing, not from ends of answers."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Step(_Part):
    """Of one setting at one load. What is not known is null, and `missing` says why; it is never zero."""

    setting: str
    k: int
    requests: int
    tokens: float | None
    """That a step yields, of all steps: also of those for which a lookup found nothing to draft."""

    drafted: float | None
    """Tokens drafted a step."""

    step_ms: float | None
    target_ms: float | None
    """The standard's step, at the same time."""

    break_even_acceptance: float | None
    """Of accepted over drafted tokens; null also where not even accepting everything would pay."""

    break_even_alpha: float | None
    """The same as the probability of each position, independent of the others (arXiv 2211.17192); null for
    trees that branch, and where steps draft less than K, as a lookup's do."""

    acceptance: float | None
    missing: str | None


class At(_Part):
    """A position in a draft."""

    k: int
    accepted: float
    token_ms: float | None
    pays: bool | None


class Line(_Part):
    """The steps of a family at one load, and the curve of its longest draft."""

    draft: str | None
    kind: str | None
    requests: int
    """Of all its settings."""

    target_ms: float | None
    draft_ms: float | None
    residual: float | None
    measured: list[int]
    """The K that the line goes through; 0 among them."""

    curve_of: str | None
    """The setting whose positions these are."""

    positions: list[At]
    cut: int | None
    """Where the curve says to cut: the last K before a position that costs more than it brings. From a line
    through measured steps, not measured itself: a K that was not measured is not recommended."""

    missing: str | None


def family(setting: Setting) -> Family | None:
    """None for a tree that branches: more of it is not more K."""
    kind = parse_tree(setting.tree).kind if setting.tree else None
    return (setting.draft, kind) if kind in (None, "chain", "ngram") else None


def step(setting: Setting, pairs: Pairs, cells: Sequence[CellRecord]) -> Step:
    """Of a setting's `pairs` with the standard, and its own `cells`, at one load."""
    counts, missing = summary.acceptance(cells)
    both = _token_ms(pairs.all)
    if missing is None and both is None:
        missing = "no answer was long enough for a time of a token"
    if counts is None or both is None:
        return _unknown(setting, _requests(cells), missing)
    steps = counts["drafts"] + _undrafted(cells, counts)
    tokens = 1 + counts["accepted_tokens"] / steps
    drafted = counts["draft_tokens"] / steps
    ours, theirs = both
    ratio = economics.step_ms(theirs, tokens) / ours
    break_even = economics.break_even_rate(drafted, ratio) if drafted else None
    whole = family(setting) is not None and drafted > _WHOLE * setting.k
    return Step(
        setting=setting.name,
        k=setting.k,
        requests=_requests(cells),
        tokens=round(tokens, 4),
        drafted=round(drafted, 4),
        step_ms=round(economics.step_ms(theirs, tokens), 4),
        target_ms=round(ours, 4),
        break_even_acceptance=None if break_even is None else round(break_even, 4),
        break_even_alpha=_rounded(economics.break_even_alpha(setting.k, ratio)) if whole else None,
        acceptance=_rounded(counts["rate"]),
        missing=None if break_even is not None else "not even accepting every token would pay",
    )


def line(of: Family, settings: Sequence[Setting], steps: Mapping[str, Step], cells: _Cells) -> Line:
    """Of the settings of one family, all measured at one load; `cells` of each by its name."""
    ours = [setting for setting in settings if family(setting) == of]
    fitted = _fitted([steps[setting.name] for setting in ours if setting.name in steps])
    name, curve, missing = _curve(ours, cells)
    found = economics.positions(curve, fitted) if fitted and curve else []
    return Line(
        draft=of[0],
        kind=of[1],
        requests=sum(_requests(cells.get(setting.name, [])) for setting in ours),
        target_ms=round(fitted.target_ms, 4) if fitted else None,
        draft_ms=round(fitted.draft_ms, 4) if fitted else None,
        residual=_rounded(fitted.residual) if fitted else None,
        measured=list(fitted.measured) if fitted else [],
        curve_of=name,
        positions=[
            At(k=at.k, accepted=round(at.accepted, 4), token_ms=round(at.token_ms, 4), pays=at.pays)
            for at in found
        ]
        or [At(k=k, accepted=round(p, 4), token_ms=None, pays=None) for k, p in enumerate(curve, start=1)],
        cut=economics.cut(found) if found else None,
        missing=missing if not curve else None if fitted else "no step times to draw a line through",
    )


_Cells = Mapping[str, Sequence[CellRecord]]


def _fitted(steps: Sequence[Step]) -> StepCost | None:
    """Each K's step over the standard's at its own time, on the standard's mean: drift is out of the line."""
    known = {s.k: s.step_ms / s.target_ms for s in steps if s.step_ms is not None and s.target_ms}
    if not known:
        return None
    plain = fmean(s.target_ms for s in steps if s.target_ms)
    return economics.fit_steps({0: plain} | {k: plain * ratio for k, ratio in known.items()})


def _curve(settings: Sequence[Setting], cells: _Cells) -> tuple[str | None, list[float], str | None]:
    """Of the longest draft that has one: the share of all steps accepted so far."""
    missing = "nothing was measured"
    for setting in sorted(settings, key=lambda setting: -setting.k):
        counts, why = summary.acceptance(cells.get(setting.name, []))
        if counts is None:
            missing = why or missing
        elif counts["accepted_per_position"]:
            steps = counts["drafts"] + _undrafted(cells[setting.name], counts)
            return setting.name, [count / steps for count in counts["accepted_per_position"]], None
        else:
            missing = "the server does not count by position"
    return None, [], missing


def _undrafted(cells: Sequence[CellRecord], counts: Mapping[str, float]) -> float:
    """Steps without a draft, such as a lookup's that found nothing, which no counter counts.

    Each yields one token, and so does, in vLLM, the prompt's: what the server generated beyond that and
    beyond its drafts' tokens came from them. 0 where the server does not say what it generated.
    """
    ours = [cell for cell in cells if cell.drafts is not None]
    if any(cell.server_tokens is None for cell in ours):
        return 0.0
    generated = sum(cell.server_tokens or 0.0 for cell in ours)
    prompts = sum(len(cell.rows) for cell in ours)
    return float(max(0.0, generated - counts["drafts"] - counts["accepted_tokens"] - prompts))


def _token_ms(pairs: Sequence[Pair]) -> tuple[float, float] | None:
    """The standard's mean time of a token and the setting's; an answer weighs what it is long, if known."""
    timed = [(pair, both) for pair in pairs if (both := pair.mean("tpot")) is not None]
    if not timed:
        return None
    known = all(pair.tokens for pair, _ in timed)

    def mean(side: int) -> float:
        weights = [fmean(tokens[side] for tokens in pair.tokens) if known else 1.0 for pair, _ in timed]
        return fmean([both[side] for _, both in timed], weights)

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


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
