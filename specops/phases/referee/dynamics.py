"""What a server's speed does within a phase: the time until it has adapted, and swings. Pure.

The order of a phase's requests is random and the same for all servers. So without a change in time, the
speeds of its requests can be put into any order (they are exchangeable), and a permutation test is exact. A
server with a fixed setting cannot swing by itself: where two of them seem to, the machine did, and nothing is
said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specops import stats
from specops.phases.referee.records import Adaptation, Swing, Word
from specops.stats import Interval

Floats = NDArray[np.float64]

STEP_BINS, SWING_BINS = 24, 96
"""Most pieces of a phase, in the order of its requests: for a step, and for swings."""

FEWEST_BINS, FEWEST_SWING_BINS = 8, 12
"""With fewer pieces there is no answer."""

CONTROL = 0.1
"""p value of a swing between two fixed settings, up to which the machine may have swung."""

ORDERS = 1999
"""Random orders of a permutation test."""


@dataclass(frozen=True)
class Course:
    """One phase in one pass, in the order of its requests, n each."""

    at_s: Floats
    """Seconds from the beginning of the phase until the adaptive server was sent the request."""

    adaptive_ms: Floats
    off_ms: Floats
    static_ms: Floats
    """Of the best static setting."""

    fixed_ms: Floats
    """Mean over all fixed settings."""

    drafting: Floats
    """Drafted tokens for each token of the adaptive answer; NaN where it does not report them."""


def bins_of(courses: Sequence[Course], most: int) -> int:
    return min(most, *(len(course.at_s) for course in courses)) if courses else 0


def adaptation_of(courses: Sequence[Course], verdict: Word, margin: float, level: float) -> Adaptation:
    """How long the adaptive server took to reach its later level, after the change at the beginning.

    The largest step of its speed, relative to the fixed settings, over all passes together. One that comes
    within the first eighth of the requests cannot be detected. The interval of the change is over passes.
    """
    observed_s = round(median(float(course.at_s[-1]) for course in courses), 3) if courses else 0.0
    bins = bins_of(courses, STEP_BINS)
    if bins < FEWEST_BINS:
        return Adaptation(outcome="unknown", time_s=None, observed_s=observed_s, change=None)
    place, p = _step(_binned([course.fixed_ms / course.adaptive_ms for course in courses], bins))
    changes = [_change(course, bin_places(len(course.at_s), bins)[place].start) for course in courses]
    logs = stats.mean_interval(changes, level)
    change = None
    if logs is not None:
        low, high = math.exp(logs.low), math.exp(logs.high)
        change = Interval(math.exp(logs.estimate), low, high, logs.n, level)

    def time_s(number: int) -> float:
        starts = [course.at_s[bin_places(len(course.at_s), bins)[number].start] for course in courses]
        return round(median(map(float, starts)), 3)

    if change is not None and p <= 1 - level:
        if change.low > 1 and change.estimate > 1 + margin:
            return Adaptation(outcome="adapts", time_s=time_s(place), observed_s=observed_s, change=change)
        if change.high < 1 and change.estimate < 1 / (1 + margin):
            return Adaptation(outcome="slows", time_s=time_s(place), observed_s=observed_s, change=change)
    if verdict in ("pays", "even"):
        first_s = time_s(least_part(bins))
        return Adaptation(outcome="at once", time_s=first_s, observed_s=observed_s, change=change)
    outcome: Literal["not observed", "unknown"] = "not observed" if verdict == "loses" else "unknown"
    return Adaptation(outcome=outcome, time_s=None, observed_s=observed_s, change=change)


def swings_of(
    courses: Sequence[Course], since_s: float, margin: float, level: float
) -> tuple[list[Swing], str | None]:
    """Swings of speed and of drafting after `since_s`, and why those of speed cannot be excluded."""
    rest = [_after(course, since_s) for course in courses]
    bins = bins_of(rest, SWING_BINS)
    if bins < FEWEST_SWING_BINS:
        return [], f"fewer than {FEWEST_SWING_BINS} requests of a pass are left after it adapted"
    span_s = median(float(course.at_s[-1] - course.at_s[0]) for course in rest)
    error = (1 - level) / 2
    control = _swing(_binned([course.off_ms / course.static_ms for course in rest], bins))
    swings: list[Swing] = []
    unknown = None
    own = _swing(_binned([course.static_ms / course.adaptive_ms for course in rest], bins))
    drafting = _swing(_binned([course.drafting for course in rest], bins))
    waves: tuple[tuple[Literal["speed", "drafting"], _Wave | None], ...]
    waves = ("speed", own), ("drafting", drafting)
    for figure, wave in waves:
        if wave is None or wave.p > error or wave.size <= margin:
            continue
        if figure == "speed" and control is not None and control.p <= CONTROL:
            unknown = "the fixed settings seem to swing too: the machine's own speed changed"
            continue
        period_s = round(span_s / wave.cycles, 3)
        swings.append(Swing(figure=figure, size=round(wave.size, 4), period_s=period_s, p=wave.p))
    return swings, unknown


def bin_places(count: int, bins: int) -> list[slice]:
    """The requests of each bin, of `count` requests."""
    bounds = [round(number * count / bins) for number in range(bins + 1)]
    return [slice(first, last) for first, last in pairwise(bounds)]


def least_part(bins: int) -> int:
    """The fewest bins on each side of a step."""
    return max(2, bins // 8)


def _change(course: Course, place: int) -> float:
    """The logarithm of the speed from the request at `place` on, over that of the earlier ones."""
    earlier, later = slice(0, place), slice(place, None)
    speeds = [
        float(course.fixed_ms[part].sum() / course.adaptive_ms[part].sum()) for part in (earlier, later)
    ]
    return math.log(speeds[1] / speeds[0])


def _orders(values: Floats) -> Floats:
    """Random orders of [passes, bins], each pass by itself, [ORDERS, passes, bins]."""
    repeated = np.broadcast_to(values, (ORDERS, *values.shape))
    orders: Floats = np.random.default_rng(0).permuted(repeated, axis=-1)
    return orders


def _p_value(own: float, random: Floats) -> float:
    """The share of random orders whose value is as large, this one among them."""
    return (1 + int((random >= own).sum())) / (len(random) + 1)


def _step(values: Floats) -> tuple[int, float]:
    """The bin with which the largest step of [passes, bins] begins, and its p value."""
    bins = values.shape[1]
    least = least_part(bins)
    places = np.arange(least, bins - least + 1)
    steps = np.where(np.arange(bins) < places[:, None], -1 / places[:, None], 1 / (bins - places[:, None]))
    steps /= np.sqrt((steps**2).sum(axis=1, keepdims=True))

    def sizes(series: Floats) -> Floats:
        scaled: Floats = np.abs(series.mean(axis=-2) @ steps.T)
        return scaled

    own = sizes(values)
    return int(places[own.argmax()]), _p_value(float(own.max()), sizes(_orders(values)).max(axis=-1))


def _after(course: Course, since_s: float) -> Course:
    later = course.at_s >= since_s
    return Course(*(values[later] for values in vars(course).values()))


def _binned(series: Sequence[Floats], bins: int) -> Floats:
    """Means of each series in its bins, [passes, bins]."""
    return np.array([[values[part].mean() for part in bin_places(len(values), bins)] for values in series])


@dataclass(frozen=True)
class _Wave:
    cycles: int
    size: float
    """Highest less lowest value, as a share of the mean."""

    p: float


def _swing(values: Floats) -> _Wave | None:
    """The strongest wave of two cycles or more in [passes, bins], each pass with a phase of its own; None of
    constant or unknown values."""
    if not np.all(np.isfinite(values)):
        return None
    centred = values - values.mean(axis=1, keepdims=True)
    total = (centred**2).sum()
    if total <= 1e-12 * values.size:
        return None

    def power(series: Floats) -> Floats:
        spectrum: Floats = (np.abs(np.fft.rfft(series, axis=-1)) ** 2).mean(axis=-2)[..., 2:]
        return spectrum

    own = power(centred)
    strongest = int(own.argmax())
    p = _p_value(float(own[strongest]), power(_orders(centred)).max(axis=-1))
    noise = float(np.median(np.delete(own, strongest)))
    amplitude = 2 * math.sqrt(max(0.0, float(own[strongest]) - noise)) / values.shape[1]
    return _Wave(strongest + 2, 2 * amplitude / abs(float(values.mean())), p)
