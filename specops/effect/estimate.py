"""The effect on each figure: how many times as large it is with speculation as without it.

Requests are compared only with requests of the same time bin and traffic class, so drifting traffic does not
bias the ratio. A stratum with requests of one group only says nothing, and is counted. Where the groups meet
other loads, the means are adjusted to the same load, by the slope that the requests of both groups show.

For a ratio r, each bin has the score  U(r) = Σ w (mean1 - r·mean0),  w = n1·n0 / (n1 + n0)  over its
strata. At the true ratio its expectation is 0. The interval has the ratios for which the sum of the scores is
not too many standard errors from 0 (Fieller). The variance is the larger of two: by the sums of squares of
requests, and by the scores of the bins, which also has what requests of one minute have in common.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from specops.effect.sequence import (
    RATIOS,
    TIGHTEST_BLOCKS,
    TIGHTEST_PAIRS,
    Array,
    always,
    log_likelihoods,
    once,
    ratios_held,
    student,
)
from specops.section import Frozen
from specops.stats.interval import t_quantile

Latency = Literal["ttft", "e2e", "tpot"]
Figure = Literal["ttft", "e2e", "tpot", "tokens", "failures"]
Mode = Literal["requests", "windows"]
"""What chance draws: requests, or windows of time in which all eligible requests stay standard."""

LATENCIES: tuple[Latency, ...] = get_args(Latency)
FIGURES: tuple[Figure, ...] = get_args(Figure)
"""Mean seconds to the first output, to the end, and per output token; tokens of an answer; the share of
requests that failed."""

ALPHA = 0.05
WITHIN = (0.2, 5.0)
"""What a load may change, as a factor of the mean at the middle load."""

ITERATIONS = 12
"""Of the slope by load. With bursts of four times the load, an error is 0.4 times the one before: four
iterations left 1% of the ratio."""

MOST_AGAIN = 0.9
"""Share of an error of the slope that an iteration leaves."""

LEAST = 32
"""Requests of each group: with fewer, a mean has no interval."""


@dataclass(frozen=True)
class Moments:
    """Of one figure: the number of values, their sum, and the sum of their squares; of the loads at which the
    requests arrived, the sum, the sum of squares, and the sum of load times value.

    Each array is [bins, strata, 2]; the last axis is holdout, speculative. A load is the number of requests
    for each server of the pool.
    """

    n: Array
    total: Array
    squares: Array
    load: Array
    load_squares: Array
    load_product: Array

    def part(self, rows: slice | NDArray[np.bool_], columns: slice | list[int]) -> Moments:
        """The moments of some bins and strata."""
        return Moments(*(getattr(self, sums.name)[rows][:, columns] for sums in fields(self)))


@dataclass(frozen=True)
class Counters:
    """What the routers counted of the eligible requests."""

    ends: Array
    """[bins]: when each bin ends, in seconds since the epoch, every `bin_s`. A bin without data has zeros."""

    bin_s: float

    classes: tuple[str, ...]
    """Traffic classes: the strata of a bin."""

    figures: Mapping[Figure, Moments]
    mode: Mode = "requests"
    """Of windows, a bin is a block of windows, one of which is the holdout's."""

    def scores(self, figure: Figure) -> Scores:
        """The scores of one figure by bin."""
        return Scores.from_moments(self.figures[figure], by_window=self.mode == "windows")

    def of_class(self, name: str) -> Counters:
        """The counters of one traffic class."""
        column = [self.classes.index(name)]
        figures = {figure: moments.part(slice(None), column) for figure, moments in self.figures.items()}
        return replace(self, classes=(name,), figures=figures)

    def after(self, ts: float) -> Counters:
        """The bins that end after `ts`."""
        rows = self.ends > ts
        figures = {figure: moments.part(rows, slice(None)) for figure, moments in self.figures.items()}
        return replace(self, ends=self.ends[rows], figures=figures)


@dataclass(frozen=True)
class Noise:
    """What is estimated from all bins, whichever of them are summed."""

    slope_variance: Array
    """[classes]: of the slope by load."""

    slope_freedom: Array
    """[classes]: its degrees of freedom."""

    excess: float
    """Variance of the scores of bins over that by their requests, at least 1: more than 1 by what requests of
    a bin have in common."""

    freedom: float
    """Its degrees of freedom."""


@dataclass(frozen=True)
class Scores:
    """The scores of one figure, U(r) = speculative - r * holdout, and what their variance needs. All arrays
    are [bins] or [bins, 2], and add up over bins; in a sum, the squares are those of single bins."""

    speculative: Array
    holdout: Array
    speculative_squared: Array
    product: Array
    holdout_squared: Array
    pairs: Array
    """The weight w: the effective number of pairs."""

    bins: Array
    """1 for a bin with pairs, else 0."""

    within: Array
    """[bins, 2]: sum of squares of the requests around their stratum's mean; holdout, speculative."""

    freedom: Array
    """[bins, 2]: its degrees of freedom, times the square of the stratum's mean."""

    leverage: Array
    """[bins, 2]: the variance of the score, if the relative variance of a request is 1."""

    gap: Array
    """[bins, classes]: change of the score by the slope of the class, at a ratio of 1."""

    matched: Array
    """[bins, 2]: requests of strata with both groups."""

    loads: Array
    """[bins, 2]: sum of the loads of these."""

    noise: Noise
    by_window: bool = False
    """Whether a bin is a block of windows. What requests of a window have in common is the noise then, so
    the number of bins bounds what is known; and the load is an outcome, for which nothing is adjusted."""

    @classmethod
    def from_moments(cls, moments: Moments, *, by_window: bool = False) -> Scores:
        """The scores by bin."""
        n, total = moments.n, moments.total
        requests = n.sum(axis=2)
        is_matched = n.min(axis=2) > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            opposite = np.where(is_matched[..., None], n[..., ::-1] / requests[..., None], 0.0)
            pooled = np.where(requests > 0, total.sum(axis=2) / requests, 0.0)[..., None]
            within = np.where(n > 1, moments.squares - np.square(total) / n, 0.0)
        factor, gap, slope_variance, slope_freedom = (_as_counted if by_window else _same_load)(moments)
        at_load = total * factor
        holdout, speculative = np.moveaxis((opposite * at_load).sum(axis=1), -1, 0)
        pairs = (opposite[..., 1] * n[..., 1]).sum(axis=1)
        bins = (pairs > 0).astype(float)
        within = np.maximum(within, 0.0).sum(axis=1)
        freedom = (np.maximum(n - 1, 0.0) * np.square(pooled)).sum(axis=1)
        leverage = (np.square(opposite * pooled) * n).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = np.stack([-speculative.sum() / holdout.sum(), 1.0])
            by_request = (
                np.square(weights) * leverage.sum(axis=0) * within.sum(axis=0) / freedom.sum(axis=0)
            ).sum()
            by_bin = np.square(speculative + weights[0] * holdout).sum() * bins.sum() / (bins.sum() - 1)
            excess = float(np.fmax(by_bin / by_request, 1.0))
        return cls(
            speculative=speculative,
            holdout=holdout,
            speculative_squared=np.square(speculative),
            product=speculative * holdout,
            holdout_squared=np.square(holdout),
            pairs=pairs,
            bins=bins,
            within=within,
            freedom=freedom,
            leverage=leverage,
            gap=np.where(is_matched, opposite[..., 1] * n[..., 1] * pooled[..., 0] * gap, 0.0),
            matched=(n * is_matched[..., None]).sum(axis=1),
            loads=(moments.load * is_matched[..., None]).sum(axis=1),
            noise=Noise(slope_variance, slope_freedom, excess, float(bins.sum()) - 1),
            by_window=by_window,
        )

    def since(self, first: int = 0, stop: int | None = None) -> Scores:
        """The sums from the bin `first` on, up to each bin before `stop`."""
        return self._of_bins(lambda part: part[first:stop].cumsum(axis=0))

    def totals(self, firsts: NDArray[np.intp]) -> Scores:
        """The sums from each of the bins `firsts` on, to the last bin."""
        return self._of_bins(lambda part: part[::-1].cumsum(axis=0)[::-1][firsts])

    def _of_bins(self, change: Callable[[Array], Array]) -> Scores:
        names = (part.name for part in fields(self) if part.name not in ("noise", "by_window"))
        sums: dict[str, Any] = {name: change(getattr(self, name)) for name in names}
        return replace(self, **sums)

    @property
    def information(self) -> Array:
        """The time of the confidence sequence: pairs of requests, or blocks in the same unit."""
        return self.bins * (TIGHTEST_PAIRS / TIGHTEST_BLOCKS) if self.by_window else self.pairs

    @property
    def ratio(self) -> Array:
        """The estimate; NaN without pairs."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.holdout > 0, self.speculative / self.holdout, np.nan)

    @property
    def is_enough(self) -> NDArray[np.bool_]:
        enough: NDArray[np.bool_] = (self.matched >= LEAST).all(axis=1) & (self.bins > 1) & (self.ratio > 0)
        return enough

    def interval(self, errors: Array | float) -> tuple[Array, Array]:
        """The ratios within so many standard `errors`. Without enough requests, and where there is no bound,
        the ends are 0 and infinite."""
        noise, normal = self.noise, np.broadcast_to(np.asarray(errors, dtype=float), self.bins.shape)
        errors = student(normal, noise.freedom)
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = self.within / self.freedom
            own = noise.excess * self.leverage * np.where(np.isfinite(spread), spread, 0.0)
            uncertain = student(normal[:, None], noise.slope_freedom) / errors[:, None]
            by_slope = (noise.slope_variance * np.square(self.gap * uncertain)).sum(axis=1)
            by_request = self._within(errors, own[:, 1] + by_slope, own[:, 0])
            by_bin = self.bins / (self.bins - 1)
            around = self.speculative_squared - self.ratio * (
                2 * self.product - self.ratio * self.holdout_squared
            )
            half = errors * np.sqrt(np.maximum(by_bin * around, 0.0) + by_slope) / self.holdout
        by_score = self.ratio - half, self.ratio + half
        low = np.minimum(by_request[0], by_score[0])
        high = np.maximum(by_request[1], by_score[1])
        is_known = self.is_enough & np.isfinite(errors)
        return np.where(is_known, np.maximum(low, 0.0), 0.0), np.where(is_known, high, np.inf)

    def _within(self, errors: Array | float, speculative: Array, holdout: Array) -> tuple[Array, Array]:
        """Solve (A - r B)² <= errors² (speculative + r² holdout) for r, with the variances of A and B."""
        a, b, k = self.speculative, self.holdout, np.square(errors)
        square, linear, constant = b * b - k * holdout, a * b, a * a - k * speculative
        root = np.sqrt(np.maximum(linear * linear - square * constant, 0.0))
        is_bounded = square > 0
        low = np.where(is_bounded, (linear - root) / square, 0.0)
        return low, np.where(is_bounded, (linear + root) / square, np.inf)


def _as_counted(moments: Moments) -> tuple[Array, Array, Array, Array]:
    """The same as `_same_load`, without a change."""
    none = np.zeros(moments.n.shape[1])
    return np.ones_like(moments.n), np.zeros(moments.n.shape[:2]), none, none + np.inf


def _same_load(moments: Moments) -> tuple[Array, Array, Array, Array]:
    """Return the factors that turn the means of the groups into those at the mean load of the stratum,
    [bins, classes, 2]; the relative change of their ratio by the slope, [bins, classes]; and the variance of
    the slope and its degrees of freedom, [classes].

    Of a class, a value is taken to be proportional to 1 + slope (load - middle), in both groups, with the
    slope that fits all its requests around the means of their bins and groups.
    """
    n, load = moments.n, moments.load
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(n > 0, moments.total / n, 0.0)
        square = np.where(n > 1, moments.load_squares - np.square(load) / n, 0.0)
        product = np.where(n > 1, moments.load_product - load * mean, 0.0)
        middle = np.nan_to_num(load.sum(axis=(0, 2)) / n.sum(axis=(0, 2)))
        own = np.where(n > 0, load / n - middle[:, None], 0.0)
        pooled = np.where(n.sum(axis=2) > 0, load.sum(axis=2) / n.sum(axis=2) - middle, 0.0)
        slope = np.zeros_like(middle)
        for _ in range(ITERATIONS):
            per_slope = mean / np.clip(1 + slope[:, None] * own, *WITHIN) * square
            fitted = product.sum(axis=(0, 2)) / per_slope.sum(axis=(0, 2))
            slope = np.nan_to_num(fitted, posinf=0.0, neginf=0.0)
        share = per_slope / per_slope.sum(axis=(0, 2))[:, None]
        # Of leaving out one bin of a group at a time: few bursts may have most of the weight.
        errors = (product / per_slope.sum(axis=(0, 2))[:, None] - slope[:, None] * share) / (1 - share)
        # An error of the slope changes the fitted means, and these the slope again.
        again = slope * (share * own / np.clip(1 + slope[:, None] * own, *WITHIN)).sum(axis=(0, 2))
        variance = np.square(errors).sum(axis=(0, 2)) / np.square(1 - np.minimum(again, MOST_AGAIN))
        variance = np.nan_to_num(variance, posinf=0.0)
        freedom = np.nan_to_num(1 / np.square(share).sum(axis=(0, 2)) - 1, nan=np.inf)
    at_own = np.clip(1 + slope[:, None] * own, *WITHIN)
    factor = np.clip(1 + slope * pooled, *WITHIN)[..., None] / at_own
    by_slope = own / at_own
    return np.asarray(factor), by_slope[..., 1] - by_slope[..., 0], np.asarray(variance), np.asarray(freedom)


class FigureEffect(Frozen):
    """The effect on one figure."""

    figure: Figure
    ratio: float | None = None
    """Speculative over holdout; below 1, speculation is faster, or fails less. None: too few requests."""

    low: float | None = None
    """The interval that holds at every moment; None: not bounded."""

    high: float | None = None
    once_low: float | None = None
    """The narrower interval, for one look at a time fixed beforehand, as in a weekly report."""

    once_high: float | None = None
    speculative: float | None = None
    """Mean of the compared requests: seconds, tokens, or a share from 0 to 1."""

    holdout: float | None = None
    requests: int
    """Of the speculative group, compared."""

    holdout_requests: int
    unmatched: int
    """Requests of strata that had requests of one group only."""

    load: float | None = None
    """Mean number of requests for each server, as the compared requests of the speculative group met it."""

    holdout_load: float | None = None


class ClassEffect(Frozen):
    traffic_class: str | None
    """None: all classes together."""

    figures: tuple[FigureEffect, ...]

    def figure_effect(self, figure: Figure) -> FigureEffect:
        return next(effect for effect in self.figures if effect.figure == figure)


def effects(counters: Counters) -> tuple[ClassEffect, ...]:
    """The effect over all traffic, then by class."""
    parts = [(None, counters), *((name, counters.of_class(name)) for name in counters.classes)]
    return tuple(
        ClassEffect(traffic_class=name, figures=tuple(_effect(figure, part) for figure in FIGURES))
        for name, part in parts
    )


def _effect(figure: Figure, counters: Counters) -> FigureEffect:
    moments = counters.figures[figure]
    if figure == "failures":
        return _failures(moments)
    sums = counters.scores(figure).since()
    if not sums.pairs.size:
        return _nothing(figure)
    holdout_n, requests = (round(float(count)) for count in sums.matched[-1])
    pairs, bins = float(sums.pairs[-1]), float(sums.bins[-1])
    one_look = max(once(ALPHA), t_quantile(1 - ALPHA, max(bins - 1, 1.0)))
    (low, high), (once_low, once_high) = (
        tuple(float(end[-1]) for end in sums.interval(errors))
        for errors in (always(sums.information, ALPHA), one_look)
    )
    return FigureEffect(
        figure=figure,
        ratio=_finite(float(sums.ratio[-1])) if sums.is_enough[-1] else None,
        low=_bounded(low),
        high=_bounded(high),
        once_low=_bounded(once_low),
        once_high=_bounded(once_high),
        speculative=float(sums.speculative[-1]) / pairs if pairs > 0 else None,
        holdout=float(sums.holdout[-1]) / pairs if pairs > 0 else None,
        requests=requests,
        holdout_requests=holdout_n,
        unmatched=round(float(moments.n.sum())) - holdout_n - requests,
        load=float(sums.loads[-1, 1]) / requests if requests else None,
        holdout_load=float(sums.loads[-1, 0]) / holdout_n if holdout_n else None,
    )


def _nothing(figure: Figure) -> FigureEffect:
    return FigureEffect(figure=figure, requests=0, holdout_requests=0, unmatched=0)


def _failures(moments: Moments) -> FigureEffect:
    failed, requests = (array.reshape(-1, 2) for array in (moments.total, moments.n))
    is_matched = requests.min(axis=1) > 0
    failed, requests = failed[is_matched], requests[is_matched]
    holdout_n, n = (round(float(count)) for count in requests.sum(axis=0))
    low, high, ratio = 0.0, math.inf, math.nan
    if requests.size and failed.sum() > 0:
        likelihoods = log_likelihoods(failed, requests).sum(axis=0)
        low, high = ratios_held(likelihoods, ALPHA)
        ratio = float(RATIOS[int(likelihoods.argmax())])
    shares = failed.sum(axis=0) / np.maximum(requests.sum(axis=0), 1.0)
    return FigureEffect(
        figure="failures",
        ratio=_finite(ratio),
        low=_bounded(low),
        high=_bounded(high),
        once_low=_bounded(low),
        once_high=_bounded(high),
        speculative=float(shares[1]) if n else None,
        holdout=float(shares[0]) if holdout_n else None,
        requests=n,
        holdout_requests=holdout_n,
        unmatched=round(float(moments.n.sum())) - n - holdout_n,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _bounded(end: float) -> float | None:
    return end if 0 < end < math.inf else None
