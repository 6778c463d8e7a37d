"""The ratio of two means over pairs, with an interval, and how many more pairs would decide it.

The interval is Student's t on the logarithm of the ratio, with a jackknife standard error that leaves out
one cluster at a time (Efron and Stein, Annals of Statistics 1981). A cluster holds the pairs that share
noise: requests that ran side by side were slow or fast together, so they are not independent evidence. With
few clusters of unequal weight the jackknife is the most reliable of the cluster-robust errors (MacKinnon,
Nielsen and Webb, Journal of Applied Econometrics 2023).

A long answer weighs more than a short one, so a few clusters carry most of the estimate and of its error.
The degrees of freedom are those of a sum of squares with such weights (Satterthwaite, Biometrics 1946): one
less than the number of clusters where all weigh the same, far fewer where one dominates.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specops.stats.interval import Interval, t_quantile

MIN_PAIRS = 8
"""Fewer pairs than this give no interval: one stall would be an eighth of the evidence."""

MOST_TIMES = 100
"""More than so many times the pairs are not worth promising: the estimate is 1 as far as anyone can tell."""

_WIDEST = math.log(1e6)  # of an interval's half: wider says nothing more, and overflows


@dataclass(frozen=True)
class Starts:
    """What the difference between one start of an arm and the next adds to a logarithm of a ratio."""

    variance: float
    """Of the mean over all starts."""

    freedom: float
    """Of the estimate of that variance."""


def paired_ratio(
    before: Sequence[float],
    after: Sequence[float],
    *,
    level: float = 0.95,
    clusters: Sequence[Hashable] | None = None,
    starts: Starts | None = None,
) -> Interval | None:
    """mean(before) / mean(after) with an interval; above 1, `after` is faster.

    The ratio of means, not the mean of ratios: it is the change in the time that the whole set takes, and
    a handful of very short answers does not outvote the long ones. A prompt is one pair, with its mean over
    the rounds. `clusters` names the cluster of each pair; without it, each pair is one of its own. `starts`
    widens the interval where arms were restarted between the rounds. None with fewer than `MIN_PAIRS`
    pairs, and where less than two clusters carry the estimate.
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
    top, bottom = (_summed(values, clusters) for values in (top, bottom))
    log, variance, freedom = (float(value) for value in log_ratio(top, bottom))
    if freedom < 1:
        return None
    if starts is not None and starts.variance > 0:
        summed = variance + starts.variance
        # Never more than the clusters have: restarts must not narrow an interval.
        freedom = min(freedom, summed**2 / (variance**2 / freedom + starts.variance**2 / starts.freedom))
        variance = summed
    half = min(t_quantile(level, max(freedom, 1.0)) * math.sqrt(variance), _WIDEST)
    estimate = math.exp(log)
    return Interval(estimate, estimate * math.exp(-half), estimate * math.exp(half), n, level)


def log_ratio(
    before: NDArray[np.float64], after: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The logarithm of sum(before) / sum(after) over the last axis, its variance and degrees of freedom.

    The last axis holds clusters, each the sum of its pairs; a cluster without pairs is 0 in both. Of one
    cluster the variance is infinite and the degrees of freedom are 0.
    """
    tops, bottoms = before.sum(axis=-1), after.sum(axis=-1)
    log = np.log(tops / bottoms)
    there = before > 0
    count = there.sum(axis=-1)
    least = np.finfo(np.float64).tiny  # a difference of sums may round to nothing
    rest_before = np.maximum(tops[..., None] - before, least)
    rest_after = np.maximum(bottoms[..., None] - after, least)
    with np.errstate(divide="ignore", invalid="ignore"):
        left_out = np.where(there, np.log(rest_before / rest_after), 0.0)
        mean = left_out.sum(axis=-1) / count
        apart = np.where(there, (left_out - mean[..., None]) ** 2, 0.0).sum(axis=-1)
        variance = np.where(count > 1, (count - 1) / count * apart, np.inf)
    squares = (before / tops[..., None] + after / bottoms[..., None]) ** 2
    freedom = squares.sum(axis=-1) ** 2 / (squares**2).sum(axis=-1) - 1
    return log, variance, freedom


def start_effect(stages: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Starts | None:
    """How much the arms' restarts disturb the logarithm of their ratio, over all stages together.

    Each stage is what both arms took, [rounds, prompts], prompts that every round has in both. Where a
    round has starts of its own, prompts are no independent evidence on them: all share the few starts that
    there were. A stage's rounds have prompts in common, so their ratios differ by the starts, and by the
    noise of requests, which the clusters count already. So this is the variance between
    rounds less the part that the scatter of prompts within them explains, pooled over the stages (a one-way
    random-effects estimate). All traffic classes share the starts: give all prompts, and use what comes
    back for each class. None without two rounds of two prompts. One stage of two rounds has one degree of
    freedom: an effect that dominates makes the interval as wide as that deserves. Four stages have four.
    """
    between, within, freedom, rounds_all = 0.0, 0.0, 0, 0
    for before, after in stages:
        rounds, prompts = before.shape
        if rounds < 2 or prompts < 2:
            continue
        logs = np.log(before.mean(axis=1) / after.mean(axis=1))
        pulls = before / before.mean(axis=1, keepdims=True) - after / after.mean(axis=1, keepdims=True)
        noise = pulls - pulls.mean(axis=0)
        between += float(((logs - logs.mean()) ** 2).sum())
        within += float((noise**2).sum()) / (prompts * (prompts - 1))
        freedom += rounds - 1
        rounds_all += rounds
    if not freedom:
        return None
    of_rounds, of_noise = between / freedom, within / freedom
    excess = max(0.0, of_rounds - of_noise)
    # The degrees of freedom are those of all that lies between rounds, of which the excess is a part.
    known = freedom * (excess / of_rounds) ** 2 if of_rounds > 0 else float(freedom)
    return Starts(excess / rounds_all, known)


def pairs_needed(interval: Interval) -> int | None:
    """How many more pairs until an interval like this one would exclude 1, at its present estimate.

    On the logarithm's scale, where a paired ratio's interval is symmetric, its width shrinks with the root
    of the pairs. 0 where 1 is excluded already; None where it would take over `MOST_TIMES` times as many.
    """
    if interval.low > 1 or interval.high < 1:
        return 0
    effect = abs(math.log(interval.estimate))
    half = math.log(interval.high / interval.low) / 2
    if effect * math.sqrt(MOST_TIMES) < half or effect == 0:
        return None
    return max(1, math.ceil(interval.n * ((half / effect) ** 2 - 1)))


def _summed(values: NDArray[np.float64], clusters: Sequence[Hashable] | None) -> NDArray[np.float64]:
    """By cluster."""
    if clusters is None:
        return values
    if len(clusters) != len(values):
        raise ValueError(f"{len(values)} pairs need as many clusters, not {len(clusters)}")
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    sums = np.zeros(len(numbers))
    np.add.at(sums, [numbers[cluster] for cluster in clusters], values)
    return sums
