"""An estimate with its confidence interval: of a mean by Student's t, of counts exactly.

Counts compare how often something happens in two arms. Requests are paired: one to each arm. Pairs in which
it happened to both, or to neither, say nothing of a difference (McNemar 1947). Of the others, each arm's part
is binomial. So an exact interval of that part (Clopper and Pearson, Biometrika 1934) gives one of the
difference between the two shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from specops.defaults import CONFIDENCE

LEVEL = CONFIDENCE
"""The confidence of an interval where nothing else is said."""


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval."""

    estimate: float
    low: float
    high: float
    n: int
    """What was resampled or averaged over: pairs of prompts, or repeats."""

    level: float = LEVEL

    def times(self, factor: float) -> Interval:
        """Return the interval of the quantity times a known positive factor."""
        return replace(self, estimate=self.estimate * factor, low=self.low * factor, high=self.high * factor)

    @property
    def inverse(self) -> Interval:
        """Return the interval of the reciprocal of a positive quantity."""
        return replace(self, estimate=1 / self.estimate, low=1 / self.high, high=1 / self.low)


def mean_interval(samples: Sequence[float], level: float = LEVEL) -> Interval | None:
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
    """Return the quantile of t with whole degrees of freedom, by bisection."""
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


def paired_difference(only_first: int, only_second: int, pairs: int, level: float = LEVEL) -> Interval:
    """The second arm's share less the first's, of `pairs`, with an exact conditional interval.

    `only_first` and `only_second` are the pairs in which it happened to that arm alone. The number of such
    pairs is taken as it is; with none, the interval is the point 0.
    """
    if min(only_first, only_second) < 0 or only_first + only_second > pairs or pairs < 1:
        raise ValueError(f"{only_first} and {only_second} are not parts of {pairs} pairs")
    discordant = only_first + only_second
    if not discordant:
        return Interval(0.0, 0.0, 0.0, pairs, level)
    low, high = binomial_interval(only_second, discordant, level)
    share = discordant / pairs
    estimate = (only_second - only_first) / pairs
    return Interval(estimate, share * (2 * low - 1), share * (2 * high - 1), pairs, level)


def binomial_interval(successes: int, tries: int, level: float = LEVEL) -> tuple[float, float]:
    """Clopper and Pearson's interval of a probability, after `successes` in `tries`."""
    side = (1 - level) / 2
    return least_probability(successes, tries, side), 1 - least_probability(tries - successes, tries, side)


@lru_cache(maxsize=1024)
def least_probability(successes: int, tries: int, chance: float) -> float:
    """Return the probability at which `successes` or more in `tries` have the given `chance`; 0 for none."""
    if not 0 <= successes <= tries or tries < 1:
        raise ValueError(f"{successes} successes in {tries} tries")
    low, high = 0.0, 1.0 if successes else 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_least(successes, tries, middle) < chance else (low, middle)
    return (low + high) / 2


def at_least(successes: int, tries: int, probability: float) -> float:
    """The chance of `successes` or more in `tries`."""
    if successes <= 0:
        return 1.0
    if not 0 < probability < 1:
        return float(probability >= 1)
    counts = np.arange(successes, tries + 1)
    terms = np.exp(
        _log_choose(tries, successes)
        + counts * math.log(probability)
        + (tries - counts) * math.log1p(-probability)
    )
    return min(1.0, float(terms.sum()))


@lru_cache(maxsize=64)
def _log_choose(tries: int, least: int) -> NDArray[np.float64]:
    """The logarithm of `tries` choose k, for k from `least` to `tries`."""
    whole = math.lgamma(tries + 1)
    parts = [math.lgamma(k + 1) + math.lgamma(tries - k + 1) for k in range(least, tries + 1)]
    return whole - np.array(parts)
