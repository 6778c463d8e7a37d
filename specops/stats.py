"""Statistics of measurements: percentiles, intervals over repeats, paired speed-ups. Pure functions.

Nothing here answers with a number that the samples cannot carry: a percentile or an interval from too few
samples is `None`, and `shortage` says how many it takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

PERCENTILE_METHOD: Final = "linear"
"""Linear interpolation between closest ranks (Hyndman and Fan's type 7, numpy's default)."""

MIN_PAIRS = 8
"""Fewer pairs than this give no bootstrap interval: there are too few distinct resamples to speak of."""

_RESAMPLES = 10_000
_BLOCK = 2_000_000  # resampled values held at once, which bounds the memory of a large prompt set


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval."""

    estimate: float
    low: float
    high: float
    n: int
    """What was resampled or averaged over: pairs of prompts, or repeats."""

    level: float = 0.95


def needed(q: float) -> int:
    """Samples that the quantile `q` (0 < q < 1) takes: ceil(1 / min(q, 1 - q)).

    With fewer, less than one sample is expected beyond the quantile, and an interpolated value is little
    more than the largest (or smallest) sample: 2 for the median, 20 for p95, 100 for p99.
    """
    if not 0 < q < 1:
        raise ValueError(f"a quantile lies between 0 and 1, not at {q}")
    return math.ceil(round(1 / min(q, 1 - q), 9))  # rounded: 1 - 0.9 is a little less than 0.1


def percentile(samples: Sequence[float], q: float) -> float | None:
    """The quantile `q` of `samples` by `PERCENTILE_METHOD`; None where there are fewer than `needed(q)`."""
    if len(samples) < needed(q):
        return None
    return float(np.quantile(np.asarray(samples, dtype=np.float64), q, method=PERCENTILE_METHOD))


def shortage(count: int, q: float) -> str | None:
    """Why `count` samples give no quantile `q`, or None where they do."""
    if count >= needed(q):
        return None
    return f"p{q * 100:g} needs {needed(q)} samples, there are {count}"


def mean_interval(samples: Sequence[float], level: float = 0.95) -> Interval | None:
    """The mean with Student's t interval; None for fewer than two samples."""
    n = len(samples)
    if n < 2:
        return None
    values = np.asarray(samples, dtype=np.float64)
    mean = float(values.mean())
    half = t_quantile(level, n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n, level)


def t_quantile(level: float, freedom: int) -> float:
    """The t for which P(|T| <= t) = `level`, with `freedom` degrees of freedom, by bisection."""
    low, high = 0.0, 1.0
    while _t_coverage(high, freedom) < level:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if _t_coverage(middle, freedom) < level:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _t_coverage(t: float, freedom: int) -> float:
    """P(|T| <= t): the finite series for whole degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cos2 = math.cos(angle) ** 2
    if freedom == 1:
        return 2 * angle / math.pi
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term
    for k in range(2 + odd, freedom - 1, 2):
        term *= cos2 * (k - 1) / k
        total += term
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def paired_ratio(
    before: Sequence[float], after: Sequence[float], *, seed: int = 0, level: float = 0.95
) -> Interval | None:
    """mean(before) / mean(after) with a bootstrap interval over the pairs; above 1, `after` is faster.

    The ratio of means, not the mean of ratios: it is the change in the time that the whole set takes, and
    a handful of very short answers does not outvote the long ones. Pairs are resampled together, so what
    makes one prompt slower than another cancels. The interval is bias-corrected and accelerated (BCa,
    Efron 1987), from a seeded generator. None with fewer than `MIN_PAIRS` pairs.
    """
    top = np.asarray(before, dtype=np.float64)
    bottom = np.asarray(after, dtype=np.float64)
    if top.shape != bottom.shape or top.ndim != 1:
        raise ValueError(f"pairs need two lists of one length, not {top.shape} and {bottom.shape}")
    if not (np.all(top > 0) and np.all(bottom > 0)):
        raise ValueError("durations to compare must be positive")
    n = len(top)
    if n < MIN_PAIRS:
        return None
    estimate = float(top.sum() / bottom.sum())
    ratios = _resampled_ratios(top, bottom, np.random.default_rng(seed))
    if np.ptp(ratios) <= 1e-12 * estimate:  # every pair has the same ratio: nothing varies
        return Interval(estimate, estimate, estimate, n, level)
    lower, upper = _bca_quantiles(ratios, estimate, top, bottom, level)
    low, high = np.quantile(ratios, [lower, upper], method=PERCENTILE_METHOD)
    return Interval(estimate, float(low), float(high), n, level)


def _resampled_ratios(
    top: NDArray[np.float64], bottom: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.float64]:
    n = len(top)
    rows = max(1, _BLOCK // n)
    blocks = []
    for start in range(0, _RESAMPLES, rows):
        picks = generator.integers(0, n, size=(min(rows, _RESAMPLES - start), n))
        blocks.append(top[picks].sum(axis=1) / bottom[picks].sum(axis=1))
    return np.concatenate(blocks)


def _bca_quantiles(
    ratios: NDArray[np.float64],
    estimate: float,
    top: NDArray[np.float64],
    bottom: NDArray[np.float64],
    level: float,
) -> tuple[float, float]:
    """Which quantiles of the resampled ratios are the interval's ends."""
    normal = NormalDist()
    tied = np.isclose(ratios, estimate, rtol=1e-9, atol=0)  # common with few pairs; rounding must not decide
    below = float(np.mean((ratios < estimate) & ~tied) + np.mean(tied) / 2)
    edge = 1 / (len(ratios) + 1)
    bias = normal.inv_cdf(min(max(below, edge), 1 - edge))
    without_one = (top.sum() - top) / (bottom.sum() - bottom)
    spread = without_one.mean() - without_one
    variance = float((spread**2).sum())
    acceleration = float((spread**3).sum()) / (6 * variance**1.5) if variance > 0 else 0.0

    def corrected(p: float) -> float:
        z = bias + normal.inv_cdf(p)
        return normal.cdf(bias + z / (1 - acceleration * z))

    tail = (1 - level) / 2
    return corrected(tail), corrected(1 - tail)
