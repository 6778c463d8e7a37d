"""Simulated traffic of both groups, as the routers would count it: what the statistics are checked with.

Traffic has a daily rhythm and bursts, prompts grow and shrink over hours, servers slow down with their load,
the pools have different loads, and requests of a minute share shocks: of both groups (shared capacity,
caches) and of one group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from specops.effect.estimate import FIGURES, Counters, Figure, Moments
from specops.effect.sequence import Array

DAY_S = 86400.0


@dataclass(frozen=True)
class Traffic:
    """The truth behind simulated counters."""

    seconds: float
    per_s: float = 1.0
    """Eligible requests a second, on average over a day."""

    holdout: float = 0.1
    """Share of the eligible requests that stays standard, 0 to 1."""

    ratio: float = 1.0
    """Time of a request with speculation over that without it, at equal load."""

    later_ratio: float | None = None
    """The same from `change_s` on; None: it does not change."""

    change_s: float = 0.0
    spread: Mapping[Figure, float] | None = None
    """Standard deviation over the mean of a request at a given moment and load, by figure."""

    loads: tuple[float, float] = (2.0, 5.0)
    """Mean load of a server: holdout's pool, speculative pool."""

    slope: float = 0.08
    """Relative slowdown by each further request of a server."""

    shared_shock: float = 0.1
    """Standard deviation of what all requests of a minute have in common, relative."""

    group_shock: float = 0.02
    """The same, of the requests of one group only."""

    bursts: float = 0.02
    """Share of minutes with four times the traffic."""


SPREAD: Mapping[Figure, float] = {"ttft": 0.6, "e2e": 0.6, "tpot": 0.25}


@dataclass(frozen=True)
class Simulated:
    counters: Counters
    plain_ratio: float
    """E2E of the speculative pool over that of the standard pool, where the latter also serves the short
    requests that are not eligible: what a comparison of the pools' means gives."""


def simulate(traffic: Traffic, rng: Generator, bin_s: float = 60.0) -> Simulated:
    """Counters by minute, of one class."""
    bins = int(traffic.seconds // bin_s)
    begins = np.arange(bins) * bin_s
    rhythm = 1 + 0.6 * np.sin(2 * np.pi * begins / DAY_S)
    burst = np.where(rng.random(bins) < traffic.bursts, 4.0, 1.0)
    intensity = rhythm * burst
    level = (1 + 0.25 * np.sin(2 * np.pi * begins / (0.3 * DAY_S) + 1)) * _shocks(
        rng, bins, traffic.shared_shock
    )
    ratio = np.full(bins, traffic.ratio)
    if traffic.later_ratio is not None:
        ratio[begins >= traffic.change_s] = traffic.later_ratio
    spread = SPREAD if traffic.spread is None else traffic.spread
    sums: dict[Figure, list[tuple[Array, ...]]] = {figure: [] for figure in spread}
    e2e_means = []
    for group, share in enumerate((traffic.holdout, 1 - traffic.holdout)):
        n = rng.poisson(traffic.per_s * bin_s * share * intensity)
        bin_of = np.repeat(np.arange(bins), n)
        load = rng.poisson(3 * traffic.loads[group] * intensity[bin_of]) / 3
        own = level * _shocks(rng, bins, traffic.group_shock) * (ratio if group else 1.0)
        mean = own[bin_of] * (1 + traffic.slope * load)
        for figure, cv in spread.items():
            values = mean * _noise(rng, bin_of.size, cv)
            sums[figure].append(_summed(bin_of, values, load, bins))
            if figure == "e2e":
                e2e_means.append((values.sum(), values.size))
    figures = {figure: _moments(groups) for figure, groups in sums.items()}
    empty = np.zeros_like(next(iter(figures.values())).n)
    every: dict[Figure, Moments] = {
        figure: figures.get(figure, Moments(*[empty] * len(fields(Moments)))) for figure in FIGURES
    }
    counters = Counters(
        ends=begins + bin_s,
        bin_s=bin_s,
        classes=("default",),
        figures=every,
    )
    return Simulated(counters, _plain(e2e_means))


def _plain(e2e: list[tuple[float, int]]) -> float:
    """The ratio of the pools' means, with as many requests of half the length on the standard pool."""
    (holdout_s, holdout_n), (speculative_s, speculative_n) = e2e
    standard = (holdout_s + 0.5 * holdout_s) / (2 * holdout_n)
    return float(speculative_s / speculative_n / standard)


def _shocks(rng: Generator, bins: int, sd: float) -> Array:
    return np.exp(sd * rng.standard_normal(bins) - sd * sd / 2)


def _noise(rng: Generator, size: int, cv: float) -> Array:
    """Lognormal values with mean 1 and this standard deviation."""
    sd = np.sqrt(np.log1p(cv * cv))
    return np.asarray(rng.lognormal(-sd * sd / 2, sd, size))


def _summed(bin_of: NDArray[np.intp], values: Array, load: Array, bins: int) -> tuple[Array, ...]:
    """The sums of `Moments` for one group, each [bins, 1]."""
    weights = (None, values, np.square(values), load, np.square(load), load * values)
    return tuple(np.bincount(bin_of, weight, minlength=bins)[:, None].astype(float) for weight in weights)


def _moments(groups: list[tuple[Array, ...]]) -> Moments:
    return Moments(*(np.stack(arrays, axis=-1) for arrays in zip(*groups, strict=True)))
