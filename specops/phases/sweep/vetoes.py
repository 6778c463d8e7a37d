"""What forbids to recommend a setting however fast it looks: failures, a tail, answers of another length, a
cache, and a client that was the bottleneck. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specops import stats
from specops.load.record import CellRecord
from specops.phases.ab.speedups import Pairs
from specops.phases.ab.verdict import Decision
from specops.stats import Interval

LENGTH_MARGIN = 0.03
"""Answers whose length surely differs by more void an end-to-end speed-up."""

SLOW = 10.0
"""A request that took so many times as long as the other server's to the same prompt counts as hung."""

CACHED = 1.2
"""Repeats that are surely so many times as fast as first requests come from a cache."""

SURELY, POSSIBLY = 0.025, 0.3
"""One-sided p values: below the first a share is surely higher, below the second it may be."""

CONFIDENCE = 0.95

_MOST_TIMES = 100


@dataclass(frozen=True)
class Measured:
    """All that was measured of a setting and of the standard at one concurrency, in both stages."""

    setting: str
    pairs: Pairs
    """Of the setting with the standard."""

    standard: Sequence[CellRecord]
    ours: Sequence[CellRecord]
    """Of the setting."""

    repeats: tuple[Interval | None, Interval | None]
    """First requests' time over their repeats': the standard's, the setting's."""


def veto(measured: Measured) -> Decision | None:
    """Why the speed-up of this setting does not count; None where nothing is against it."""
    for find in (_client_bound, _failures, _lengths, _tail, _cache):
        found = find(measured)
        if found is not None:
            return found
    return None


def _client_bound(measured: Measured) -> Decision | None:
    for cell in (*measured.standard, *measured.ours):
        why: str | None = getattr(cell, "client_bound", None)
        if why:
            return Decision(
                verdict="undecided", reason=f"the client was the bottleneck at {cell.level}: {why}"
            )
    return None


def _failures(measured: Measured) -> Decision | None:
    ours, theirs = _failed(measured.ours), _failed(measured.standard)
    kinds = sorted({row.error for cell in measured.ours for row in cell.rows if row.error is not None})
    found = f"{_of(*ours)} requests failed ({', '.join(kinds)}), {_of(*theirs)} of the standard's"
    return _share(found, ours, theirs)


def _tail(measured: Measured) -> Decision | None:
    rounds = [taken for pair in measured.pairs.all for taken in pair.e2e]
    ours = sum(theirs > SLOW * standard for standard, theirs in rounds), len(rounds)
    theirs = sum(standard > SLOW * theirs for standard, theirs in rounds), len(rounds)
    found = f"{_of(*ours)} requests took over {SLOW:g}× as long as the standard's, {_of(*theirs)} the reverse"
    return _share(found, ours, theirs)


def _share(found: str, ours: tuple[int, int], theirs: tuple[int, int]) -> Decision | None:
    """By a one-sided exact test of two shares (Fisher)."""
    p = exceeds(ours, theirs)
    if p < SURELY:
        return Decision(verdict="no", reason=found)
    if p >= POSSIBLY:
        return None
    more = next(
        (
            (times - 1) * ours[1]
            for times in range(2, _MOST_TIMES)
            if exceeds((times * ours[0], times * ours[1]), (times * theirs[0], times * theirs[1])) < SURELY
        ),
        None,
    )
    takes = f"about {more} more requests would decide" if more else "more requests would decide"
    return Decision(verdict="undecided", reason=f"{found} ({takes})", more_prompts=more)


def exceeds(ours: tuple[int, int], theirs: tuple[int, int]) -> float:
    """The chance of as many of ours or more if both shares are one; each is a count and its whole."""
    both, whole = ours[0] + theirs[0], ours[1] + theirs[1]
    most = min(both, ours[1])
    ways = sum(
        math.comb(ours[1], count) * math.comb(theirs[1], both - count) for count in range(ours[0], most + 1)
    )
    return ways / math.comb(whole, both)


def _lengths(measured: Measured) -> Decision | None:
    means = [
        (sum(one for one, _ in pair.tokens), sum(other for _, other in pair.tokens))
        for pair in measured.pairs.all
        if pair.tokens
    ]
    ratio = stats.paired_ratio([other for _, other in means], [one for one, _ in means], level=CONFIDENCE)
    if ratio is None or (ratio.low <= 1 + LENGTH_MARGIN and ratio.high >= 1 - LENGTH_MARGIN):
        return None
    shorter = ratio.high < 1
    ends = sorted(abs(1 - end) for end in (ratio.low, ratio.high))
    return Decision(
        verdict="undecided",
        reason=f"answers are {abs(1 - ratio.estimate):.0%} [{100 * ends[0]:.0f}, {100 * ends[1]:.0f}] "
        f"{'shorter' if shorter else 'longer'} than the standard's, n={ratio.n}: "
        "an end-to-end speed-up with other lengths does not count",
    )


def _cache(measured: Measured) -> Decision | None:
    standard, ours = measured.repeats
    if ours is None or ours.low <= CACHED or (standard is not None and standard.high >= ours.low):
        return None
    return Decision(
        verdict="undecided",
        reason=f"repeats come from a cache: a prompt's first request takes {ours.estimate:.2f}× "
        f"[{ours.low:.2f}, {ours.high:.2f}] as long as its repeats, n={ours.n}, and the standard's does not",
    )


def _failed(cells: Iterable[CellRecord]) -> tuple[int, int]:
    cells = list(cells)
    return sum(cell.failed for cell in cells), sum(len(cell.rows) for cell in cells)


def _of(count: int, whole: int) -> str:
    return f"{count} of {whole}"
