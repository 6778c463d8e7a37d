"""Percentiles, where there are enough samples, and changes that rare stalls cannot fake.

A trend and a difference between two groups are ratios by ranks. Both are the median of all slopes between
two samples (Theil 1950, Sen 1968) with the interval that Kendall's test inverts to (Sen 1968; Hollander and
Wolfe, Nonparametric Statistical Methods, 9.3). Between two groups the slopes are differences: that is Hodges
and Lehmann's estimate with the interval of the Mann-Whitney test. A change at the start, at an unknown
place, is found by least squares: ranks of a few values are too coarse for all places where it could be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specops.stats.interval import LEVEL, Interval, t_quantile

PERCENTILE_METHOD: Final = "linear"
"""Linear interpolation between closest ranks (Hyndman and Fan's type 7, numpy's default)."""


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
    """Return why `count` samples give no quantile `q`, or None where they do."""
    if count >= needed(q):
        return None
    return f"p{q * 100:g} needs {needed(q)} samples, there are {count}"


def quantile_interval(clusters: Sequence[Sequence[float]], q: float, level: float = LEVEL) -> Interval | None:
    """The quantile `q` of all samples; those of one cluster are not independent of each other.

    Woodruff's interval (JASA 1952): Student's t interval of the share of samples up to the quantile, by
    cluster, read off the ordered samples. Not narrower than for independent samples. None with fewer than
    two clusters, or where the interval would reach beyond the samples.
    """
    samples = np.sort(np.array([value for cluster in clusters for value in cluster], dtype=np.float64))
    estimate = percentile(samples.tolist(), q)
    sizes = np.array([len(cluster) for cluster in clusters if len(cluster)], dtype=np.float64)
    if estimate is None or len(sizes) < 2:
        return None
    below = np.array(
        [np.count_nonzero(np.asarray(cluster) <= estimate) for cluster in clusters if len(cluster)]
    )
    number, total = len(sizes), len(samples)
    deviations = below - below.sum() / total * sizes
    variance = float(number / (number - 1) * (deviations**2).sum() / total**2)
    half = t_quantile(level, number - 1) * math.sqrt(max(variance, q * (1 - q) / total))
    first, last = math.floor((q - half) * total), math.ceil((q + half) * total) + 1
    if first < 1 or last > total:
        return None
    return Interval(estimate, float(samples[first - 1]), float(samples[last - 1]), total, level)


def rate_interval(counts: Sequence[tuple[float, float]], level: float = LEVEL) -> Interval | None:
    """The sum of the first counts over the sum of the second; each pair of counts is one cluster.

    Student's t interval of a ratio estimator. `n` is the number of clusters. None with fewer than two.
    """
    nonempty = [(part, whole) for part, whole in counts if whole > 0]
    if len(nonempty) < 2:
        return None
    parts, wholes = np.array(nonempty, dtype=np.float64).T
    rate, number = float(parts.sum() / wholes.sum()), len(nonempty)
    variance = number / (number - 1) * float(((parts - rate * wholes) ** 2).sum()) / float(wholes.sum()) ** 2
    half = t_quantile(level, number - 1) * math.sqrt(variance)
    return Interval(rate, rate - half, rate + half, number, level)


MIN_SAMPLES = 8
"""Fewer give no interval: the normal approximation of the ranks' distribution does not hold."""

_MOST_SAMPLES = 2_000  # evenly through time; two million slopes


def trend(instants: Sequence[float], values: Sequence[float], *, level: float = LEVEL) -> Interval | None:
    """Return by how much `values` changed from the first instant to the last: 1.2 is a fifth more at the end.

    `values` are positive and comparable with each other, each an independent sample: of a prompt's visits
    soon after each other, the mean. (A value divided by its prompt's own mean has no trend left when all of
    the prompt's visits lie close together.) None with fewer than `MIN_SAMPLES`, or one instant.
    """
    times = np.asarray(instants, dtype=np.float64)
    if times.shape != (len(values),) or not np.all(np.isfinite(times)):
        raise ValueError(f"a trend needs an instant for each of its {len(values)} values")
    if len(times) < MIN_SAMPLES or np.ptp(times) == 0:
        return None
    return _change((times - times.min()) / np.ptp(times), _logs(values), level)


def two_groups(
    values: Sequence[float], reference: Sequence[float], *, level: float = LEVEL
) -> Interval | None:
    """Return how many times `reference` the values of `values` are; both positive, all independent samples.

    None where the two have fewer than `MIN_SAMPLES` together, or one of them too few for that `level`.
    """
    if len(values) + len(reference) < MIN_SAMPLES:
        return None
    return _change(
        np.concatenate([np.ones(len(values)), np.zeros(len(reference))]), _logs([*values, *reference]), level
    )


def changed_start(values: Sequence[float], *, level: float = LEVEL) -> tuple[int, Interval] | None:
    """Return how many of the first `values` differ from the others, and how many times the others they are.

    One change, by least squares on logarithms. The start is an eighth to a half of the values, two at least.
    Student's t interval by the spread on both sides holds for all places of the change together (Bonferroni).
    `values` are positive, each an independent sample, in the order of time. None with fewer than
    `MIN_SAMPLES`.
    """
    logs = _logs(values)
    n = len(logs)
    if n < MIN_SAMPLES:
        return None
    places = range(max(2, n // 8), n // 2 + 1)
    spread, place = min(
        (float(logs[:split].var() * split + logs[split:].var() * (n - split)), split) for split in places
    )
    log_ratio = float(logs[:place].mean() - logs[place:].mean())
    error = math.sqrt(spread / (n - 2) * (1 / place + 1 / (n - place)))
    half = t_quantile(1 - (1 - level) / len(places), n - 2) * error
    return place, Interval(
        math.exp(log_ratio), math.exp(log_ratio - half), math.exp(log_ratio + half), n, level
    )


def _logs(values: Sequence[float]) -> NDArray[np.float64]:
    durations = np.asarray(values, dtype=np.float64)
    if not np.all(durations > 0):
        raise ValueError("durations to compare must be positive")
    return np.log(durations)


def _change(times: NDArray[np.float64], logs: NDArray[np.float64], level: float) -> Interval | None:
    """exp of Sen's slope of `logs` over `times`; None where no rank is far enough out for `level`."""
    order = np.argsort(times, kind="stable")[:: math.ceil(len(times) / _MOST_SAMPLES)]
    times, logs = times[order], logs[order]
    earlier, later = np.triu_indices(len(times), k=1)
    untied = times[later] > times[earlier]
    earlier, later = earlier[untied], later[untied]
    slopes = np.sort((logs[later] - logs[earlier]) / (times[later] - times[earlier]))
    reach = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(_kendall_variance(times))
    rank = math.floor((len(slopes) - reach) / 2)
    if rank < 1:
        return None
    estimate, low, high = (math.exp(x) for x in (np.median(slopes), slopes[rank - 1], slopes[-rank]))
    return Interval(estimate, low, high, len(times), level)


def _kendall_variance(times: NDArray[np.float64]) -> float:
    """Return the variance of the concordant less the discordant pairs, where nothing changes; instants may be
    tied."""
    n = len(times)
    _, ties = np.unique(times, return_counts=True)
    return float(n * (n - 1) * (2 * n + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
