"""How often something happens in one of two arms and not in the other, compared exactly.

Requests are paired: one to each arm. Pairs in which it happened to both, or to neither, say nothing of a
difference (McNemar 1947). Of the others, each arm's part is binomial, so an exact interval of that part
(Clopper and Pearson, Biometrika 1934) gives one of the difference between the two shares.
"""

from __future__ import annotations

import math

from specops.stats.interval import Interval


def paired_difference(only_first: int, only_second: int, pairs: int, level: float = 0.95) -> Interval:
    """The second arm's share less the first's, of `pairs`, with an exact conditional interval.

    `only_first` and `only_second` are the pairs in which it happened to that arm alone. The number of such
    pairs is taken as it is; with none, the interval is the point 0.
    """
    if min(only_first, only_second) < 0 or only_first + only_second > pairs or pairs < 1:
        raise ValueError(f"{only_first} and {only_second} are not parts of {pairs} pairs")
    apart = only_first + only_second
    if not apart:
        return Interval(0.0, 0.0, 0.0, pairs, level)
    low, high = binomial_interval(only_second, apart, level)
    share = apart / pairs
    estimate = (only_second - only_first) / pairs
    return Interval(estimate, share * (2 * low - 1), share * (2 * high - 1), pairs, level)


def binomial_interval(successes: int, tries: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a probability, after `successes` in `tries`."""
    if not 0 <= successes <= tries or tries < 1:
        raise ValueError(f"{successes} successes in {tries} tries")
    side = (1 - level) / 2
    # From above: the probability at which so many or more are as rare as `side`.
    low = _where(successes, tries, side) if successes else 0.0
    high = 1 - _where(tries - successes, tries, side) if successes < tries else 1.0
    return low, high


def at_least(successes: int, tries: int, probability: float) -> float:
    """The chance of `successes` or more in `tries`."""
    if successes <= 0:
        return 1.0
    if not 0 < probability < 1:
        return float(probability >= 1)
    log, rest = math.log(probability), math.log1p(-probability)
    return min(
        1.0,
        math.fsum(
            math.exp(_log_choose(tries, k) + k * log + (tries - k) * rest)
            for k in range(successes, tries + 1)
        ),
    )


def _where(successes: int, tries: int, chance: float) -> float:
    """The probability at which `successes` or more in `tries` have `chance`, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_least(successes, tries, middle) < chance else (low, middle)
    return (low + high) / 2


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
