"""Simulated traffic of both groups, as the routers would count it: what the statistics are checked with, and
what simulated weeks of the guard have.

Traffic has a daily rhythm and bursts, prompts grow and shrink over hours, caches help for a while, servers
slow down with their load and with what both pools have in common, the pools have different loads, and
requests of a minute share shocks: of both groups, and of one group. One group's servers also wander for a
quarter of an hour at a time, as hardware does.

Requests are drawn, but not one by one: the sums over n requests are those over n neighbours in a fixed list
of drawn requests, from a random place on. So the time to draw a week does not depend on its traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from specops.effect.estimate import FIGURES, Counters, Figure, Moments
from specops.effect.sequence import Array

DAY_S = 86400.0
DRAWN = 1 << 18
"""Requests in the list."""

LOAD_SPREAD = 0.4
"""Standard deviation of the load that a request meets, over the mean of its minute."""

SKEWED = 0.6
"""Requests' times are as skewed as a lognormal time with this standard deviation over its mean."""

WANDER_S = 900.0


@dataclass(frozen=True)
class Traffic:
    """The truth behind simulated counters."""

    seconds: float
    per_s: float = 1.0
    """Eligible requests a second, on average over a day."""

    holdout: float = 0.1
    """Share of the eligible requests that stays standard, 0 to 1."""

    window_s: float | None = None
    """Length of random windows: `holdout` is a share of these. None: of requests."""

    burn_in_s: float = 0.0
    """Begin of a window whose requests do not count."""

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

    rhythm: float = 0.6
    """Amplitude of the day's curve of traffic, relative."""

    shared_shock: float = 0.1
    """Standard deviation of what all requests of a minute have in common, relative."""

    group_shock: float = 0.02
    """The same, of the requests of one group only."""

    wander: float = 0.005
    """The same, for a quarter of an hour."""

    bursts: float = 0.02
    """Share of minutes with four times the traffic."""

    caches: float = 0.3
    """By how much caches shorten requests for hours of a day, relative."""

    capacity: float = 0.05
    """Relative slowdown of both pools, when the traffic of both is twice the mean."""


SPREAD: Mapping[Figure, float] = {"ttft": 0.6, "e2e": 0.6, "tpot": 0.25}


@dataclass(frozen=True)
class Simulated:
    counters: Counters
    plain_ratio: float
    """E2E of the speculative pool over that of the standard pool, where the latter also serves the short
    requests that are not eligible: what a comparison of the pools' means gives."""


def simulate(traffic: Traffic, rng: Generator, bin_s: float = 60.0) -> Simulated:
    """Counters by minute, or by block of random windows, of one class."""
    is_windows = traffic.window_s is not None
    step_s = traffic.window_s or bin_s
    block = round(1 / traffic.holdout) if is_windows else 1
    steps = int(traffic.seconds // (step_s * block)) * block
    begins = np.arange(steps) * step_s
    intensity = 1 + traffic.rhythm * np.sin(2 * np.pi * begins / DAY_S)
    intensity *= np.where(rng.random(steps) < traffic.bursts, 4.0, 1.0)
    cached = np.where(np.sin(2 * np.pi * begins / (0.7 * DAY_S) + 2) > 0.7, 1 - traffic.caches, 1.0)
    level = (1 + 0.25 * np.sin(2 * np.pi * begins / (0.3 * DAY_S) + 1)) * cached
    level *= (1 + traffic.capacity * (intensity - 1)) * _shocks(rng, steps, traffic.shared_shock)
    ratio = np.full(steps, traffic.ratio)
    if traffic.later_ratio is not None:
        ratio[begins >= traffic.change_s] = traffic.later_ratio
    counted_s = step_s - traffic.burn_in_s
    held = np.full(steps, traffic.holdout)
    if is_windows:
        chosen = rng.integers(0, block, steps // block)
        held = (np.arange(steps) % block == np.repeat(chosen, block)).astype(float)
    n = rng.poisson(traffic.per_s * counted_s * intensity[:, None] * np.stack([held, 1 - held], axis=-1))
    load = np.asarray(traffic.loads) * intensity[:, None]
    own = _shocks(rng, (steps, 2), traffic.group_shock) * _wander(rng, steps, step_s, traffic.wander)
    mean = level[:, None] * own * np.stack([np.ones(steps), ratio], axis=-1)
    spread = SPREAD if traffic.spread is None else traffic.spread
    every: dict[Figure, Moments] = {}
    for figure in FIGURES:
        sums = drawn_moments(
            rng, n if figure in spread else 0 * n, mean, spread.get(figure, 0.0), load, traffic.slope
        )
        arrays = (getattr(sums, part.name).reshape(-1, block, 1, 2).sum(axis=1) for part in fields(sums))
        every[figure] = Moments(*arrays)
    counters = Counters(
        ends=(1 + np.arange(steps // block)) * step_s * block,
        bin_s=step_s * block,
        classes=("default",),
        figures=every,
        mode="windows" if is_windows else "requests",
    )
    return Simulated(counters, _plain(every["e2e"]))


def drawn_moments(
    rng: Generator,
    n: Array | NDArray[np.int_],
    mean: Array,
    cv: Array | float,
    load: Array,
    slope: Array | float,
) -> Moments:
    """Sums over `n` requests, up to `DRAWN`, of `mean` seconds without load, with a standard deviation of
    `cv` over that (up to `SKEWED`). They meet a `load` in the mean, and each unit of it lengthens them by
    `slope`, relative. The arrays are of the shape of `n`, or broadcast to it; so is the result."""
    first = (rng.random(np.shape(n)) * (DRAWN - n)).astype(np.intp)
    # Of deviations u of the time and g of the load, both with mean 0 and standard deviation 1.
    u, g, uu, gg, gu, ggu, guu, gguu = (sums[first + n] - sums[first] for sums in _deviations())
    spread = LOAD_SPREAD * load
    at_mean, by_deviation = 1 + slope * load, slope * spread
    total = mean * (at_mean * (n + cv * u) + by_deviation * (g + cv * gu))
    squares = np.square(mean) * (
        np.square(at_mean) * (n + 2 * cv * u + np.square(cv) * uu)
        + 2 * at_mean * by_deviation * (g + 2 * cv * gu + np.square(cv) * guu)
        + np.square(by_deviation) * (gg + 2 * cv * ggu + np.square(cv) * gguu)
    )
    with_deviation = mean * (at_mean * (g + cv * gu) + by_deviation * (gg + cv * ggu))
    return Moments(
        n=np.asarray(n, dtype=float),
        total=total,
        squares=squares,
        load=load * n + spread * g,
        load_squares=np.square(load) * n + 2 * load * spread * g + np.square(spread) * gg,
        load_product=load * total + spread * with_deviation,
    )


@cache
def _deviations() -> tuple[Array, ...]:
    """Cumulative sums of products of both deviations, over the list of drawn requests."""
    rng = np.random.default_rng(1)
    sd = np.sqrt(np.log1p(SKEWED * SKEWED))
    g = rng.gamma(1 / LOAD_SPREAD**2, 1.0, DRAWN)
    g = (g - g.mean()) / g.std()
    u = rng.lognormal(0.0, sd, DRAWN)
    by_load = np.stack([np.ones(DRAWN), g, g * g], axis=-1)  # chance has tied them in a list of any length
    u -= by_load @ np.linalg.lstsq(by_load, u, rcond=None)[0]
    u /= u.std()
    products = (u, g, u * u, g * g, g * u, g * g * u, g * u * u, g * g * u * u)
    return tuple(np.concatenate([[0.0], product.cumsum()]) for product in products)


def _plain(e2e: Moments) -> float:
    """The ratio of the pools' means, with as many requests of half the length on the standard pool."""
    mean = e2e.total.sum(axis=(0, 1)) / e2e.n.sum(axis=(0, 1))
    return float(mean[1] / (0.75 * mean[0]))


def _shocks(rng: Generator, shape: int | tuple[int, int], sd: float) -> Array:
    return np.exp(sd * rng.standard_normal(shape) - sd * sd / 2)


def _wander(rng: Generator, steps: int, step_s: float, sd: float) -> Array:
    """[steps, 2]: factors that last for `WANDER_S`."""
    lasting = max(round(WANDER_S / step_s), 1)
    return np.repeat(_shocks(rng, (steps // lasting + 1, 2), sd), lasting, axis=0)[:steps]
