"""What limits the verdict on a setting, however fast it looks. Pure.

Other answers, failures, a tail, one answer to several prompts, a client that was the bottleneck, repeats from
a cache, and a gain that only some rungs show. Lengths of answers are compared with the pairs (ab/verdict.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specops.load.record import CellRecord
from specops.phases.ab.confounders import Requests
from specops.phases.ab.settings import AbSettings
from specops.phases.ab.verdict import Checks, Decision, times
from specops.phases.sweep.answers import Answers
from specops.stats import Interval

CACHED = 1.2
"""Repeats that are surely so many times as fast as first requests come from a cache. Less than that may be
the difference between two starts of a server, which the intervals contain."""

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measured:
    """All that was measured of a setting and of the standard at one concurrency, in both stages."""

    requests: Requests
    """The standard's and the setting's, pair by pair."""

    cells: Sequence[CellRecord]
    """Of both."""

    repeats: tuple[Interval | None, Interval | None]
    """First requests' time over their repeats': the standard's, the setting's."""

    rungs: Mapping[int, Interval] = field(default_factory=dict)
    """The speed-up in each rung alone."""

    answers: Answers | None = None
    """The setting's greedy answers beside the standard's; None where none were compared."""


def limit(decision: Decision, measured: Measured, settings: AbSettings) -> Decision:
    """`decision`, unless requests of the setting failed or hung, its answers are others, it has a cache, the
    client was slow, or rungs differ by so much that a server that drifted may have made the gain."""
    if decision.verdict != "no" and measured.answers is not None and measured.answers.starts_differ:
        return Decision(verdict="no", reason=f"other answers: {measured.answers}; {decision.reason}")
    bound = next((cell.client_bound for cell in measured.cells if cell.client_bound), None)
    failed = measured.requests.counted("failed", CONFIDENCE)
    slow = measured.requests.counted("slow", CONFIDENCE)
    late = measured.requests.counted("late", CONFIDENCE)
    stock = measured.requests.counted("stock", CONFIDENCE)
    limited = Checks(failed, slow, late, stock, bound).limit(decision, settings)
    cached = _cached(*measured.repeats)
    if limited.verdict == "yes" and cached is not None:
        return Decision(verdict="undecided", reason=f"{cached}; by speed alone: {decision.reason}")
    drifted = _drifted(decision, measured.rungs)
    if limited.verdict == "yes" and drifted is not None:
        return Decision(verdict="undecided", reason=f"{drifted}; over all rungs: {decision.reason}")
    if limited is not decision:
        return limited
    margin = settings.failure_margin
    more = [str(one) for one in (failed, slow) if one is not None and one.possibly_more(margin)]
    found = more + ([cached] if cached else [])
    return decision.model_copy(update={"reason": "; ".join([decision.reason, *found])}) if found else decision


def _cached(standard: Interval | None, ours: Interval | None) -> str | None:
    if ours is None or ours.low <= CACHED or (standard is not None and standard.high >= ours.low):
        return None
    return (
        f"repeats come from a cache: the first request of a prompt takes {ours.estimate:.2f}× "
        f"[{ours.low:.2f}, {ours.high:.2f}] as long as its repeats, n={ours.n}, and the standard's does not"
    )


def _drifted(decision: Decision, rungs: Mapping[int, Interval]) -> str | None:
    """Rungs that surely differ, where one does not show the gain or an even change of one server could have
    made it. Of a latency that grows evenly to R times, the mean is (1 + R) / 2 of what it was at first."""
    if not rungs:
        return None
    least, most = min(rungs, key=lambda rung: rungs[rung].high), max(rungs, key=lambda rung: rungs[rung].low)
    if rungs[most].low <= rungs[least].high:
        return None
    drift = (1 + rungs[most].estimate / rungs[least].estimate) / 2
    exceeds = decision.speedup is not None and decision.speedup.low > drift
    if exceeds and rungs[least].low > 1:
        return None
    shown = ", ".join(f"{times(rungs[rung])} in rung {rung + 1}" for rung in sorted((least, most)))
    return f"the speed-up changed between rungs ({shown}): the standard or the setting drifted"
