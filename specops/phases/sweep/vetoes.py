"""Vetoes: limits of the verdict on a setting, however fast it looks. Pure.

Different answers, stumps of answers, failures, a tail, one answer to several prompts, a client that was the
bottleneck, repeats from a cache, and a gain that only some turns show, or only the beginnings of visits.
Lengths of answers are compared with the pairs (ab/verdict.py).

Greedy answers are compared with the standard's. The standard is measured twice in a rung, so it has its own
control. Its margins between tokens are not known here: some differences may be near ties (ab/parity.py), so
they decide nothing. They are named, and the comparison that follows a sweep decides. An answer's first token
is different: it comes from the prompt alone and is never drafted, so different first tokens are another model
or garbage.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from specops import stats
from specops.experiment.findings import Decision
from specops.load.arrivals import Level
from specops.load.record import CellRecord, Row
from specops.load.validity import CACHED
from specops.phases.ab.settings import AbSettings
from specops.phases.sweep.cell_verdict import Checks
from specops.phases.sweep.greedy_answers import Matches, Parity, as_greedy, chance, greedy_instead, matches
from specops.phases.sweep.plan import SweptCell
from specops.phases.sweep.request_counts import OtherPrompts, Requests, other_prompts
from specops.render.figures import times
from specops.section import Frozen
from specops.stats import Interval, Times


@dataclass(frozen=True)
class StageMeasurements:
    """All that was measured of a setting and of the standard at one concurrency, in both stages."""

    requests: Requests
    """The standard's and the setting's, pair by pair."""

    cells: Sequence[CellRecord]
    """The cells of both."""

    repeats: tuple[Interval | None, Interval | None]
    """First requests' time over their repeats': the standard's, the setting's."""

    turns: Mapping[tuple[int, int], Interval] = field(default_factory=dict)
    """The speed-up in each turn of each rung alone."""

    places: Sequence[Sequence[Times]] = ()
    """What the standard and the setting took of the first request of each visit, of the second one, and so
    on."""

    answers: Answers | None = None
    """The setting's greedy answers beside the standard's; None where none were compared."""


NOTABLE = 1.05
"""A change by less than a twentieth is not flagged, however sure: nobody would act on it."""


def _unless_prompts_differ(decision: Decision, prompts: OtherPrompts | None, same_answers: bool) -> Decision:
    """A gain does not count where the arms may have read different prompts. Where all greedy answers are the
    same, they only count differently."""
    if prompts is None:
        return decision
    if decision.verdict == "yes" and not same_answers:
        return Decision(verdict="undecided", reason=f"{prompts}; by speed alone: {decision.reason}")
    return decision.model_copy(update={"reason": f"{decision.reason}; {prompts}"})


def limit(decision: Decision, measured: StageMeasurements, settings: AbSettings) -> Decision:
    """Return `decision`, unless requests of the setting failed or hung, its answers differ, it has a cache,
    the client was slow, or turns differ by so much that a server that drifted may have made the gain."""
    bound = next((cell.client_bound for cell in measured.cells if cell.client_bound), None)
    checks = Checks.counted(measured.requests, stats.LEVEL, bound)
    limited = _unless_prompts_differ(
        checks.limit(decision, settings),
        other_prompts(
            [ours for ours, _ in measured.requests.pairs],
            [theirs for _, theirs in measured.requests.pairs],
            settings.length_margin,
        ),
        measured.answers is not None and measured.answers.equal == measured.answers.compared,
    )
    if decision.verdict != "no" and measured.answers is not None and measured.answers.starts_differ:
        return Decision(verdict="no", reason=f"other answers: {measured.answers}; {limited.reason}")
    if decision.verdict != "no" and measured.answers is not None and measured.answers.ignored is not None:
        return Decision(verdict="no", reason=f"{measured.answers.ignored}; {limited.reason}")
    cached = _cached(*measured.repeats)
    if limited.verdict == "yes" and cached is not None:
        return Decision(verdict="undecided", reason=f"{cached}; by speed alone: {decision.reason}")
    woke = _woke(measured.places)
    if limited.verdict == "yes" and woke is not None:
        return Decision(verdict="undecided", reason=f"{woke}; over all requests: {decision.reason}")
    drifted = _drifted(decision, measured.turns)
    if limited.verdict == "yes" and drifted is not None:
        return Decision(verdict="undecided", reason=f"{drifted}; over all turns: {decision.reason}")
    if limited is not decision:
        return limited
    margin = settings.failure_margin
    counts = (checks.failures, checks.slow, checks.refused)
    more = [str(one) for one in counts if one is not None and one.possibly_more(margin)]
    found = more + ([cached] if cached else [])
    return decision.model_copy(update={"reason": "; ".join([decision.reason, *found])}) if found else decision


def _cached(standard: Interval | None, ours: Interval | None) -> str | None:
    if ours is None or ours.low <= CACHED or (standard is not None and standard.high >= ours.low):
        return None
    return (
        f"repeats come from a cache: the first request of a prompt takes {ours.estimate:.2f}× "
        f"[{ours.low:.2f}, {ours.high:.2f}] as long as its repeats, n={ours.n}, and the standard's does not"
    )


def _woke(places: Sequence[Sequence[Times]]) -> str | None:
    """A sentence where visits begin with a higher speed-up than they go on with, and only the beginning shows
    a gain: the standard had been idle, and woke up. In production it would not be idle."""
    ratios = [math.exp(fmean(math.log(ours / theirs) for ours, theirs in taken)) for taken in places]
    found = stats.changed_start(ratios)
    if found is None or found[1].low <= NOTABLE:
        return None
    count, change = found
    rest = [pair for taken in places[count:] for pair in taken]
    later = stats.paired_ratio(*zip(*rest, strict=True)) if rest else None
    if later is not None and later.low > 1:
        return None
    shown = times(later) if later is not None else "too few to say"
    return (
        f"the speed-up is {times(change)} as high in about the first {count} requests of each visit as in "
        f"the later ones: an idle server may be slow at first, and the later requests "
        f"show no gain ({shown})"
    )


def _drifted(decision: Decision, turns: Mapping[tuple[int, int], Interval]) -> str | None:
    """Turns that surely differ, where one does not show the gain or an even change of one server could have
    made it. Of a latency that grows evenly to R times, the mean is (1 + R) / 2 of what it was at first."""
    if not turns:
        return None
    least, most = min(turns, key=lambda turn: turns[turn].high), max(turns, key=lambda turn: turns[turn].low)
    if turns[most].low <= turns[least].high:
        return None
    drift = (1 + turns[most].estimate / turns[least].estimate) / 2
    exceeds = decision.speedup is not None and decision.speedup.low > drift
    if exceeds and turns[least].low > NOTABLE:  # a turn has noise of its own, which its interval lacks
        return None
    shown = ", ".join(
        f"{times(turns[rung, turn])} in turn {turn + 1} of rung {rung + 1}"
        for rung, turn in sorted((least, most))
    )
    return f"the speed-up changed ({shown}): the standard or the setting drifted"


class Answers(Frozen):
    """The greedy answers of a setting at one concurrency: each prompt once, in the first rung that sent
    it."""

    setting: str
    concurrency: int
    equal: int
    compared: int
    control_equal: int
    control_compared: int
    """The standard's answers before and after the setting's."""

    differ: bool
    """The setting's answers are surely less often equal than the control's."""

    other_start: int = 0
    """Answers that differ from the standard's at the first character, where the standard repeats its own
    first one."""

    starts_differ: bool = False
    """There are surely more of these than in the control."""

    ignored: str | None = None
    """A sentence where the setting ignores the temperature, and the standard does not."""

    def __str__(self) -> str:
        return (
            f"{self.equal} of {self.compared} greedy answers are the standard's, which repeats "
            f"{self.control_equal} of {self.control_compared} of its own"
            + (f"; {self.other_start} differ from the first character on" if self.starts_differ else "")
        )


def compare_answers(
    cells: Sequence[SweptCell], standard: str, setting: str, concurrency: int
) -> Answers | None:
    """A setting's greedy answers beside the standard's. None where no prompt was answered at temperature 0 by
    both, and twice by the standard."""
    answered: dict[tuple[int, str, str], dict[tuple[str, int], dict[str, Row]]] = defaultdict(dict)
    at = [cell for cell in cells if cell.cell.concurrency == concurrency]
    for cell in at:
        greedy = cell.cell if cell.temperature == 0 else cell.greedy
        if greedy is not None:
            answered[cell.rung, cell.machine, cell.length][cell.setting, cell.turn] = _answered(greedy)
    as_sampled = {
        name: _as_greedy([cell for cell in at if cell.setting == name]) for name in (standard, setting)
    }
    first: dict[str, Row] = {}
    again: dict[str, Row] = {}
    theirs: dict[str, Row] = {}
    for _, of in sorted(answered.items()):
        ours, repeated = of.get((standard, 0), {}), of.get((standard, 1), {})
        others = of.get((setting, 1), {}) | of.get((setting, 0), {})
        for prompt in ours.keys() & repeated.keys() & others.keys() - first.keys():
            first[prompt], again[prompt], theirs[prompt] = ours[prompt], repeated[prompt], others[prompt]
    if not first:
        return None
    arms, control = matches(first, theirs), matches(first, again)
    parity = Parity(setting, False, Level(concurrency=concurrency), arms, control)
    other, own = _starts(arms, first), _starts(control, first)
    other, own = other - own, own - other
    return Answers(
        other_start=len(other),
        starts_differ=chance(len(other), len(other) + len(own)) < 1 - stats.LEVEL,
        setting=setting,
        concurrency=concurrency,
        differ=parity.surely_lower(stats.LEVEL),
        ignored=greedy_instead(as_sampled[standard], as_sampled[setting], stats.LEVEL),
        **_counts("", arms),
        **_counts("control_", control),
    )


def _as_greedy(cells: Sequence[SweptCell]) -> dict[str, bool]:
    """Return by prompt whether a setting's answer at the highest temperature is its greedy one. Both may come
    from different rungs: loads of different temperatures have the same prompts, at different times."""
    greedy: dict[str, Row] = {}
    sampled: dict[str, Row] = {}
    for cell in sorted(cells, key=lambda cell: cell.temperature):
        if cell.temperature > 0:
            sampled |= _answered(cell.cell)
        found = cell.cell if cell.temperature == 0 else cell.greedy
        greedy |= _answered(found) if found is not None else {}
    return as_greedy([sampled], greedy)


def _answered(cell: CellRecord) -> dict[str, Row]:
    """Return by prompt its first whole answer."""
    return {row.prompt: row for row in reversed(cell.rows) if row.error is None}


def _starts(found: Matches, answers: Mapping[str, Row]) -> frozenset[str]:
    """Prompts whose two answers differ from the first character on, white space aside; `answers` are
    the standard's."""
    return frozenset(
        witness.prompt
        for witness in found.witnesses
        if not answers[witness.prompt].text[: witness.character].strip()
    )


def _counts(of: str, found: Matches) -> dict[str, int]:
    return {f"{of}equal": found.equal, f"{of}compared": found.compared}
