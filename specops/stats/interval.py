"""An estimate with its confidence interval, and Student's t, which most intervals are made with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval."""

    estimate: float
    low: float
    high: float
    n: int
    """What was resampled or averaged over: pairs of prompts, or repeats."""

    level: float = 0.95

    def times(self, factor: float) -> Interval:
        """Of the quantity times a known positive factor."""
        return replace(self, estimate=self.estimate * factor, low=self.low * factor, high=self.high * factor)


def mean_interval(samples: Sequence[float], level: float = 0.95) -> Interval | None:
    """The mean with Student's t interval; None for fewer than two samples."""
    n = len(samples)
    if n < 2:
        return None
    values = np.asarray(samples, dtype=np.float64)
    mean = float(values.mean())
    half = t_quantile(level, n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n, level)


def t_quantile(level: float, freedom: float) -> float:
    """The t for which P(|T| <= t) = `level`, with `freedom` degrees of freedom, at least 1.

    Between whole degrees of freedom its logarithm is interpolated in their reciprocal: never too small, and
    by at most 4% too large below 2 degrees, by 1% above.
    """
    if freedom < 1:
        raise ValueError(f"Student's t needs at least 1 degree of freedom, not {freedom}")
    below = math.floor(freedom)
    share = (1 / below - 1 / freedom) / (1 / below - 1 / (below + 1))
    least = _whole_t_quantile(level, below)
    return least if not share else least ** (1 - share) * _whole_t_quantile(level, below + 1) ** share


@cache
def _whole_t_quantile(level: float, freedom: int) -> float:
    """By bisection."""
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
