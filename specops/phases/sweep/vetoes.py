"""What limits the verdict on a setting, however fast it looks: failures, a tail, a client that was the
bottleneck, and repeats from a cache. Pure. Lengths of answers are compared with the pairs (ab/verdict.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specops.load.record import CellRecord
from specops.phases.ab.faults import Requests
from specops.phases.ab.settings import AbSettings
from specops.phases.ab.verdict import Checks, Decision
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


def limit(decision: Decision, measured: Measured, settings: AbSettings) -> Decision:
    """`decision`, unless requests of the setting failed or hung, it has a cache, or the client was slow."""
    bound = next((cell.client_bound for cell in measured.cells if cell.client_bound), None)
    failed = measured.requests.counted("failed", CONFIDENCE)
    slow = measured.requests.counted("slow", CONFIDENCE)
    late = measured.requests.counted("late", CONFIDENCE)
    limited = Checks(failed, slow, late, bound).limit(decision, settings)
    cached = _cached(*measured.repeats)
    if limited.verdict == "yes" and cached is not None:
        return Decision(verdict="undecided", reason=f"{cached}; by speed alone: {decision.reason}")
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
