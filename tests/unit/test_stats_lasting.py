"""Noise that lasts longer than a window: intervals know it, and a step is not taken for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from specops import stats
from specops.stats.autocorrelation import widening
from specops.stats.sequential import HIGHEST_LEVEL

Array = NDArray[np.float64]

series = st.lists(st.floats(-1, 1), min_size=2, max_size=40)


def lasting(generator: np.random.Generator, shape: tuple[int, ...], phi: float) -> Array:
    """Noise of variance 1, each value `phi` of the one before it and something of its own."""
    noise = generator.standard_normal(shape)
    for place in range(1, shape[-1]):
        noise[..., place] = phi * noise[..., place - 1] + math.sqrt(1 - phi**2) * noise[..., place]
    return noise


def compared(
    generator: np.random.Generator, trials: int, requests: int, window: int, phi: float, window_sd: float
) -> tuple[Array, Array]:
    """Whether each trial's 95% interval excludes the truth, and how many times the plain one it is.

    Two equal servers; answers of many lengths; noise of 15% of each server's own, and of each window.
    """
    windows = requests // window
    lengths = generator.lognormal(0, 0.6, (trials, windows, window))
    noise = 0.15 * lasting(generator, (2, trials, windows * window), phi).reshape(2, *lengths.shape)
    noise += window_sd * generator.standard_normal((2, trials, windows, 1))
    before, after = (lengths * np.exp(noise)).sum(axis=-1)
    log, variance, freedom = stats.log_ratio(before, after)
    pulls = before / before.sum(axis=-1, keepdims=True) - after / after.sum(axis=-1, keepdims=True)
    factors = widening(pulls, 0.95)
    t = np.array([stats.t_quantile(0.95, value) for value in freedom.tolist()])
    return np.abs(log) > factors * t * np.sqrt(variance), factors


@pytest.mark.parametrize("requests", [300, 750])
@pytest.mark.parametrize("phi", [0.95, 0.98])
def test_equal_servers_with_noise_that_lasts_are_equal(phi: float, requests: int) -> None:
    excluded, _ = compared(np.random.default_rng(1), 300, requests, 8, phi, 0.0)
    assert excluded.mean() <= 0.07  # without the factor, 39% to 60%


@pytest.mark.parametrize("window_sd", [0.0, 0.1])
@pytest.mark.parametrize("requests", [300, 750])
def test_independent_windows_cost_next_to_nothing(window_sd: float, requests: int) -> None:
    excluded, factors = compared(np.random.default_rng(2), 500, requests, 8, 0.0, window_sd)
    assert 0.015 <= excluded.mean() <= 0.075  # a deviation is 0.01
    assert factors.mean() <= 1.11
    assert np.median(factors) <= 1.04


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requests", "window", "phi", "most"),
    [
        (300, 8, 0.9, 0.07),
        (300, 8, 0.95, 0.07),
        (300, 8, 0.98, 0.07),
        (750, 8, 0.95, 0.07),
        (750, 8, 0.98, 0.07),
        (750, 24, 0.98, 0.07),
        # Thirteen windows, and noise over 35 requests: no estimate sees that such windows are but a few.
        (320, 24, 0.98, 0.12),
        (300, 4, 0.98, 0.12),
    ],
)
def test_many_comparisons_of_equal_servers(requests: int, window: int, phi: float, most: float) -> None:
    excluded, _ = compared(np.random.default_rng(3), 4000, requests, window, phi, 0.0)
    assert excluded.mean() <= most


@given(series, st.sampled_from([0.8, 0.95, 0.999, HIGHEST_LEVEL]))
def test_it_widens_only_and_does_not_depend_on_units_or_direction(values: list[float], level: float) -> None:
    pulls = np.array(values)
    factor = float(widening(pulls, level))
    assert 1 <= factor < 100
    for same in (pulls * 1e-3, -pulls, pulls[::-1], pulls + 1.0):
        if np.ptp(pulls) > 1e-3:
            assert float(widening(same, level)) == pytest.approx(factor, rel=1e-6)


def test_it_is_of_the_order_in_time() -> None:
    slow = np.sin(np.arange(40) / 6)
    mixed = np.random.default_rng(0).permutation(slow)
    assert float(widening(slow, 0.95)) > 3
    assert float(widening(mixed, 0.95)) < 1.2
    both = widening(np.stack([slow, mixed]), 0.95)
    assert both == pytest.approx([float(widening(slow, 0.95)), float(widening(mixed, 0.95))])


def test_a_ratio_is_as_wide_as_neighbours_in_time_say() -> None:
    """The instants decide which clusters are neighbours, not the order in which pairs are given."""
    generator = np.random.default_rng(4)
    clusters = [number // 4 for number in range(160)]
    before = np.exp(0.2 * np.repeat(np.sin(np.arange(40) / 6), 4)) * generator.lognormal(0, 0.01, 160)
    after = generator.lognormal(0, 0.01, 160)
    instants = {number: 10.0 * number for number in range(40)}
    order = generator.permutation(160)
    mixed = dict(zip(range(40), generator.permutation(40).tolist(), strict=True))

    def log_width(instants: dict[int, float] | None, order: NDArray[np.int64]) -> float:
        interval = stats.paired_ratio(
            before[order].tolist(),
            after[order].tolist(),
            clusters=[clusters[place] for place in order],
            instants=instants,
        )
        assert interval is not None
        return math.log(interval.high / interval.low)

    straight = np.arange(160)
    plain, wide = log_width(None, straight), log_width(instants, straight)
    assert wide > 3 * plain
    assert log_width(instants, order) == pytest.approx(wide)
    assert plain <= log_width(mixed, straight) < 1.3 * plain
    with pytest.raises(ValueError, match="no instant for 1 of 40 clusters"):
        log_width(dict.fromkeys(range(39), 0.0), straight)


# one step


def fires(values: Array, level: float = 0.95) -> bool:
    step = stats.largest_step(values.tolist(), level)
    assert step is not None
    return step[1].low > 1 or step[1].high < 1


@pytest.mark.parametrize("phi", [0.0, 0.66, 0.85])
def test_noise_is_no_step(phi: float) -> None:
    """Neighbouring windows of 8 requests with 0.95 and 0.98 between neighbouring requests."""
    noise = lasting(np.random.default_rng(5), (80, 37), phi)
    assert sum(fires(values) for values in noise) <= 5  # plain Student's t: 3%, 53% and 82%


@pytest.mark.slow
@pytest.mark.parametrize("windows", [24, 37, 94])
@pytest.mark.parametrize("phi", [0.0, 0.3, 0.66, 0.85, 0.95])
def test_noise_is_no_step_of_many(phi: float, windows: int) -> None:
    noise = lasting(np.random.default_rng(6), (600, windows), phi)
    assert np.mean([fires(values) for values in noise]) <= 0.05


@pytest.mark.parametrize(("first", "windows"), [(0.2, 24), (0.5, 24), (0.2, 60), (0.85, 60)])
def test_a_server_that_gets_slower_has_a_step(first: float, windows: int) -> None:
    """1.5 times slower from some window on; windows scatter by 7%."""
    generator = np.random.default_rng(7)
    place = round(first * windows)
    for _ in range(20):
        values = 0.07 * generator.standard_normal(windows)
        values[place:] += math.log(1.5)
        step = stats.largest_step(values.tolist(), 0.95)
        assert step is not None
        index, interval = step
        assert index == pytest.approx(place, abs=1)
        assert 1.02 < interval.low < 1.5 < interval.high
        assert interval.n == windows


@given(st.lists(st.floats(-3, 3), min_size=8, max_size=40))
def test_a_step_backwards_in_time_is_the_reciprocal(values: list[float]) -> None:
    there, back = stats.largest_step(values), stats.largest_step(values[::-1])
    assert there is not None
    assert back is not None
    assert 0 < there[1].low <= there[1].estimate <= there[1].high
    least = max(2, len(values) // 8)
    assert least <= there[0] <= len(values) - least
    first, later = np.split(np.array(values), [there[0]])
    assert there[1].estimate == pytest.approx(math.exp(later.mean() - first.mean()), rel=1e-9)
    if there[0] == len(values) - back[0]:  # two places may be as good
        assert back[1].inverse.low == pytest.approx(there[1].low, rel=1e-6)


def test_too_few_windows_have_no_step() -> None:
    assert stats.largest_step([0.0, 1.0] * 3) is None
    with pytest.raises(ValueError, match="finite"):
        stats.largest_step([0.0] * 9 + [math.nan])
