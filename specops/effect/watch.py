"""Whether speculation is slower or faster now, at every evaluation of a guard.

A change may begin at any time, and an average since long ago hides it. So the comparison begins anew every
`START_S`, and each start is followed for `LOOKBACK_S`. The error of a week is divided among all starts of the
week, the figures, and the two directions: by the union bound, all these intervals hold together.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specops.effect.estimate import ALPHA, LATENCIES, Counters, Latency, Scores
from specops.effect.sequence import Array, always
from specops.section import Frozen

START_S = 900.0
LOOKBACK_S = 6 * 3600.0
RECENT_S = 1800.0
"""Faster needs a comparison over at least half an hour, so that a lucky minute does not hide the baseline."""

LEAST_WATCHED = 100
"""Requests of each group: with fewer, means of skewed times are not normal as far out as `PER_START`."""

WEEK_S = 7 * 86400.0
PER_START = ALPHA / (WEEK_S / START_S) / len(LATENCIES)

Direction = Literal["slower", "faster", "open"]


class Standing(Frozen):
    """What one latency's effect is now."""

    figure: Latency
    direction: Direction
    ratio: float
    """Speculative over holdout, since `since`."""

    low: float
    high: float | None
    """None: not bounded."""

    since: float
    """Start of the comparison, in seconds since the epoch."""

    requests: int
    holdout_requests: int


def standing(counters: Counters, figure: Latency) -> Standing | None:
    """Return how one latency stands at the end of `counters`; None with too few requests in the last
    `lookback_s`.

    Slower: the interval of a start is above 1. Faster: that of a start of `RECENT_S` ago or longer is below
    1. Neither, where the latest start with enough requests contradicts by its estimate: what was, is over.
    """
    begins = counters.ends - counters.bin_s
    is_recent = begins >= counters.ends[-1:] - lookback_s(counters.bin_s)
    firsts = np.flatnonzero(is_start(begins, counters.bin_s) & is_recent)
    sums = counters.scores(figure).totals(firsts)
    usable = np.flatnonzero(sums.is_enough)
    if not usable.size:
        return None
    low, high = bounds(sums)
    latest_ratio = float(sums.ratio[usable[-1]])
    recent = usable[counters.ends[-1] - begins[firsts[usable]] >= RECENT_S]
    slower = usable[(low[usable] > 1) & (latest_ratio > 1)]
    faster = recent[(high[recent] < 1) & (latest_ratio < 1)]
    direction: Direction = "slower" if slower.size else "faster" if faster.size else "open"
    start = next(int(starts[-1]) for starts in (slower, faster, recent[:1], usable) if starts.size)
    holdout_n, n = (round(float(count)) for count in sums.matched[start])
    return Standing(
        figure=figure,
        direction=direction,
        ratio=float(sums.ratio[start]),
        low=float(low[start]),
        high=float(high[start]) if math.isfinite(high[start]) else None,
        since=float(begins[firsts[start]]),
        requests=n,
        holdout_requests=holdout_n,
    )


def bounds(sums: Scores) -> tuple[Array, Array]:
    """The ends of the interval of a start at each look. With probability 1 - `PER_START`, they are right at
    every moment."""
    low, high = sums.interval(always(sums.information, PER_START))
    is_enough = sums.matched.min(axis=1) >= LEAST_WATCHED
    return np.where(is_enough, low, 0.0), np.where(is_enough, high, np.inf)


def slower_after(counters: Counters, figure: Latency, ts: float) -> bool | None:
    """Return whether the requests after `ts` alone were slower with speculation; None without requests of
    both groups."""
    sums = counters.after(ts).scores(figure).since()
    if not sums.pairs.size or math.isnan(sums.ratio[-1]):
        return None
    return bool(sums.ratio[-1] > 1)


def lookback_s(bin_s: float) -> float:
    """Seconds for which a start is followed: `LOOKBACK_S` of minutes. Blocks of windows are longer, and as
    many are needed, but of a week at most."""
    return min(LOOKBACK_S * max(bin_s / 60.0, 1.0), WEEK_S)


def is_start(begins: Array, bin_s: float) -> NDArray[np.bool_]:
    """Return whether a comparison begins with a bin: the first after each multiple of `START_S`, so that the
    starts do not depend on the time of the evaluation."""
    starts: NDArray[np.bool_] = np.mod(begins, START_S) < bin_s
    return starts
