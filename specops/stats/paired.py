"""The ratio of two means over pairs, with an interval; what restarts of servers add to its error.

The interval is Student's t on the logarithm of the ratio, with a jackknife standard error that leaves out
one cluster at a time (Efron and Stein, Annals of Statistics 1981). A cluster holds the pairs that share
noise: requests that ran side by side were slow or fast together, so they are not independent evidence. With
few clusters of unequal weight the jackknife is the most reliable of the cluster-robust errors (MacKinnon,
Nielsen and Webb, Journal of Applied Econometrics 2023).

A long answer weighs more than a short one, so a few clusters carry most of the estimate and of its error.
The degrees of freedom are those of a sum of squares with such weights (Satterthwaite, Biometrics 1946): one
less than the number of clusters where all weigh the same, far fewer where one dominates.

Where clusters have a place in time, noise that lasts longer than a cluster widens the interval
(autocorrelation.py).

All prompts of one start of a server share it, so they are not independent evidence of it. Two estimates of
its variance are one-way random-effects estimates by moments. `start_effect` takes rounds of both arms, each
round with starts of its own. `one_start` pools over many arms of one machine: between two starts of one arm,
and between the rungs in which an arm was measured. Each exceeds what the scatter of requests explains by a
known multiple of the variance that one start adds to the logarithm of a latency. It is pooled because the
variance is the machine's: one arm's two rungs would say next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specops.stats.autocorrelation import widening
from specops.stats.interval import LEVEL, Interval, t_quantile

MIN_PAIRS = 8
"""Fewer pairs than this give no interval: one stall would be an eighth of the evidence."""

MOST_TIMES = 100
"""A plan for more than so many times the pairs is not given: the estimate is too close to 1."""

_WIDEST = math.log(1e6)  # of an interval's half: wider says nothing more, and overflows


@dataclass(frozen=True)
class Starts:
    """The variance that a difference between one start of an arm and the next adds to a logarithm of a
    ratio."""

    variance: float
    """Variance of the mean over all starts."""

    freedom: float
    """Degrees of freedom of the estimate of that variance."""


def paired_ratio(
    before: Sequence[float],
    after: Sequence[float],
    *,
    level: float = LEVEL,
    clusters: Sequence[Hashable] | None = None,
    instants: Mapping[Any, float] | None = None,
    starts: Starts | None = None,
) -> Interval | None:
    """mean(before) / mean(after) with an interval; above 1, `after` is faster.

    The ratio of means, not the mean of ratios: it is the change in the time that the whole set takes, and
    a handful of very short answers does not outvote the long ones. A prompt is one pair, with its mean over
    the rounds. `clusters` names the cluster of each pair; without it, each pair is one of its own. `instants`
    has the time of each cluster: the interval is then wider by what neighbours in time have in common.
    `starts` widens the interval where arms were restarted between the rounds. None with fewer than
    `MIN_PAIRS` pairs, and where less than two clusters carry the estimate. Raises ValueError where a cluster
    has no instant.
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
    names = list(dict.fromkeys(range(n) if clusters is None else clusters))
    top, bottom = (_summed(values, clusters) for values in (top, bottom))
    log, variance, freedom = (float(value) for value in log_ratio(top, bottom))
    if freedom < 1:
        return None
    if instants is not None:
        if missing := [name for name in names if name not in instants]:
            raise ValueError(
                f"no instant for {len(missing)} of {len(names)} clusters, such as {missing[0]!r}"
            )
        order = np.argsort([instants[name] for name in names], kind="stable")
        pulls = top / top.sum() - bottom / bottom.sum()
        variance *= float(widening(pulls[order], level)) ** 2
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
    present = before > 0
    count = present.sum(axis=-1)
    least = np.finfo(np.float64).tiny  # a difference of sums may round to nothing
    rest_before = np.maximum(tops[..., None] - before, least)
    rest_after = np.maximum(bottoms[..., None] - after, least)
    with np.errstate(divide="ignore", invalid="ignore"):
        left_out = np.where(present, np.log(rest_before / rest_after), 0.0)
        mean = left_out.sum(axis=-1) / count
        squared_deviations = np.where(present, (left_out - mean[..., None]) ** 2, 0.0).sum(axis=-1)
        variance = np.where(count > 1, (count - 1) / count * squared_deviations, np.inf)
    squares = (before / tops[..., None] + after / bottoms[..., None]) ** 2
    freedom = squares.sum(axis=-1) ** 2 / (squares**2).sum(axis=-1) - 1
    return log, variance, freedom


def start_effect(stages: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Starts | None:
    """Return how much the arms' restarts disturb the logarithm of their ratio, over all stages together.

    Each stage is what both arms took, [rounds, prompts], prompts that every round has in both. Where a round
    has starts of its own, prompts are not independent evidence of them: all share the few starts that there
    were. A stage's rounds have prompts in common, so their ratios differ by the starts, and by the noise of
    requests, which the clusters count already. So this is the variance between rounds less the part that the
    scatter of prompts within them explains, pooled over the stages (a one-way random-effects estimate). All
    traffic classes share the starts: give all prompts, and use what comes back for each class. None without
    two rounds of two prompts. One stage of two rounds has one degree of freedom: an effect that dominates
    makes the interval as wide as that deserves. Four stages have four.
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
    excess_freedom = freedom * (excess / of_rounds) ** 2 if of_rounds > 0 else float(freedom)
    return Starts(excess / rounds_all, excess_freedom)


def pairs_needed(interval: Interval) -> int | None:
    """Return how many more pairs until an interval like this one would exclude 1, at its present estimate.

    On the logarithm's scale, where a paired ratio's interval is symmetric, its width shrinks with the root of
    the pairs. 0 where 1 is excluded already; None where it would take over `MOST_TIMES` times as many.
    """
    if interval.low > 1 or interval.high < 1:
        return 0
    effect = abs(math.log(interval.estimate))
    half = math.log(interval.high / interval.low) / 2
    if effect * math.sqrt(MOST_TIMES) < half or effect == 0:
        return None
    return max(1, math.ceil(interval.n * ((half / effect) ** 2 - 1)))


def _summed(values: NDArray[np.float64], clusters: Sequence[Hashable] | None) -> NDArray[np.float64]:
    """The sum of the values of each cluster."""
    if clusters is None:
        return values
    if len(clusters) != len(values):
        raise ValueError(f"{len(values)} pairs need as many clusters, not {len(clusters)}")
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    sums = np.zeros(len(numbers))
    np.add.at(sums, [numbers[cluster] for cluster in clusters], values)
    return sums


Times = tuple[float, float]
"""What the standard took and what the other arm did, or one arm at its first start and at its second."""


@dataclass(frozen=True)
class RungBlock:
    """One arm in one rung, with the standard that it is compared with."""

    times: Mapping[str, Times]
    """Times by prompt."""

    share: float | None
    """Share of the way between the standard's two starts, whose mean by time it is compared with; None: one
    start."""

    own: int = 1
    """Starts of the arm itself that `taken` is the mean of."""

    @property
    def starts(self) -> float:
        """The variance of the logarithm of the ratio, in variances of one start: its own, and the
        standard's."""
        standard = 1.0 if self.share is None else self.share**2 + (1 - self.share) ** 2
        return 1 / self.own + standard

    @property
    def shared(self) -> float:
        """The share of `starts` that is the standard's, which the arms of a rung have in common."""
        return 1 - 1 / (self.own * self.starts)

    @property
    def weight(self) -> float:
        return sum(own for own, _ in self.times.values())


@dataclass(frozen=True)
class SingleStart:
    variance: float
    """What one start adds to the logarithm of a latency."""

    freedom: float

    def over(self, blocks: Sequence[RungBlock]) -> Starts | None:
        """Return what starts add to a ratio over all of `blocks`, each weighted by what it takes."""
        whole = sum(block.weight for block in blocks)
        if not whole or not self.variance:
            return None
        shares = sum((block.weight / whole) ** 2 * block.starts for block in blocks)
        return Starts(self.variance * shares, self.freedom)


def one_start(
    turns: Sequence[Mapping[str, Times]], repeated: Mapping[str, Sequence[RungBlock]]
) -> SingleStart | None:
    """The variance of one start, from the prompts of each arm that was started twice in a rung (`turns`, by
    prompt), and the blocks of each arm by its name. None with neither two starts nor two rungs."""
    squares = noise = expected = freedom = 0.0
    for turn in turns:
        if len(turn) >= 2:
            before, after = _columns([turn], list(turn))
            squares += float(_log_ratios(before, after)[0] ** 2)
            noise += float(_scatter(before, after)[0])
            expected += 2.0
            freedom += 1
    rungs = [[block for block in blocks if len(block.times) >= MIN_PAIRS] for blocks in repeated.values()]
    rungs = [rung for rung in rungs if len(rung) >= 2]
    shared = fmean(block.shared for rung in rungs for block in rung) if rungs else 0.0
    # Arms of the same rungs vary together with their standard: so many are worth fewer.
    worth = 1 / (1 + max(0, len(rungs) - 1) * shared**2)
    for rung in rungs:
        if rung:
            logs, scatter = _between([block.times for block in rung])
            squares += float(((logs - logs.mean()) ** 2).sum())
            noise += scatter
            expected += sum(block.starts for block in rung) * (1 - 1 / len(rung))
            freedom += worth * (len(rung) - 1)
    if not freedom:
        return None
    excess = max(0.0, squares - noise)
    return SingleStart(excess / expected, freedom * (excess / squares) ** 2 if squares else float(freedom))


def _between(times: Sequence[Mapping[str, Times]]) -> tuple[NDArray[np.float64], float]:
    """The logarithm of each block's ratio, and the sum of squares that its requests' scatter explains.

    Over prompts that all blocks have, where there are enough: what is a prompt's own cancels between them.
    """
    common = sorted(set.intersection(*(set(block) for block in times)))
    if len(common) >= MIN_PAIRS:
        before, after = _columns(times, common)
        pulls = _pulls(before, after)
        scatter = float(((pulls - pulls.mean(axis=0)) ** 2).sum()) / (len(common) * (len(common) - 1))
        return _log_ratios(before, after), scatter
    columns = [_columns([block], sorted(block)) for block in times]
    logs = np.array([_log_ratios(*pair)[0] for pair in columns])
    scatters = [float(_scatter(*pair)[0]) for pair in columns]
    return logs, sum(scatters) * (1 - 1 / len(scatters))


def _columns(
    times: Sequence[Mapping[str, Times]], prompts: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what both took, as two arrays [blocks, prompts]."""
    durations = np.array([[block[prompt] for prompt in prompts] for block in times], dtype=np.float64)
    return durations[:, :, 0], durations[:, :, 1]


def _log_ratios(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    ratios: NDArray[np.float64] = np.log(before.mean(axis=1) / after.mean(axis=1))
    return ratios


def _pulls(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what each prompt does to the logarithm of its block's ratio, [blocks, prompts]; divided by n."""
    pulls: NDArray[np.float64] = before / before.mean(axis=1, keepdims=True) - after / after.mean(
        axis=1, keepdims=True
    )
    return pulls


def _scatter(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    """The variance of each block's ratio that its own prompts explain, [blocks]."""
    n = before.shape[1]
    explained: NDArray[np.float64] = (_pulls(before, after) ** 2).sum(axis=1) / (n * (n - 1))
    return explained
