"""Percentiles only where samples carry them; intervals that cover what they should."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops import stats

durations = st.lists(st.floats(0.001, 1e6), min_size=20, max_size=200)


@pytest.mark.parametrize(
    ("q", "count"), [(0.5, 2), (0.9, 10), (0.95, 20), (0.99, 100), (0.999, 1000), (0.01, 100)]
)
def test_a_quantile_needs_as_many_samples_as_reach_beyond_it(q: float, count: int) -> None:
    assert stats.needed(q) == count
    assert stats.percentile([1.0] * (count - 1), q) is None
    assert stats.percentile([1.0] * count, q) == 1.0
    assert stats.shortage(count - 1, q) == f"p{q * 100:g} needs {count} samples, there are {count - 1}"
    assert stats.shortage(count, q) is None


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, 95])
def test_what_is_no_quantile_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        stats.needed(q)


def test_percentiles_interpolate_linearly() -> None:
    assert stats.percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert stats.percentile([float(i) for i in range(1, 22)], 0.95) == 20.0


@given(durations, st.sampled_from([0.5, 0.9, 0.95]))
def test_a_percentile_lies_among_its_samples_whatever_their_order(samples: list[float], q: float) -> None:
    value = stats.percentile(samples, q)
    assert value is not None
    assert min(samples) <= value <= max(samples)
    assert value == stats.percentile(sorted(samples, reverse=True), q)


@given(durations)
def test_percentiles_rise_with_q(samples: list[float]) -> None:
    low, middle, high = (stats.percentile(samples, q) for q in (0.1, 0.5, 0.95))
    assert low is not None
    assert middle is not None
    assert high is not None
    assert low <= middle <= high


@pytest.mark.parametrize(  # from the usual tables, two-sided 95%
    ("freedom", "t"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423), (1000, 1.9623)],
)
def test_student_t(freedom: int, t: float) -> None:
    assert stats.t_quantile(0.95, freedom) == pytest.approx(t, abs=5e-5)


def test_other_levels_of_student_t() -> None:
    assert stats.t_quantile(0.99, 5) == pytest.approx(4.0321, abs=5e-5)
    assert stats.t_quantile(0.5, 1) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("level", "freedom", "t"),  # scipy.stats.t.ppf((1 + level) / 2, freedom)
    [(0.95, 1.5, 6.01666), (0.95, 2.5, 3.57465), (0.9999, 3.3, 22.49698), (0.95, 6.7, 2.38626)],
)
def test_student_t_between_whole_degrees_of_freedom_is_never_too_small(level, freedom, t) -> None:
    assert t <= stats.t_quantile(level, freedom) * (1 + 1e-4)
    assert stats.t_quantile(level, freedom) <= t * 1.04
    with pytest.raises(ValueError, match="at least 1 degree of freedom"):
        stats.t_quantile(level, 0.9)


def test_one_repeat_has_no_interval() -> None:
    assert stats.mean_interval([3.0]) is None


def test_the_mean_of_repeats() -> None:
    interval = stats.mean_interval([10.0, 12.0, 14.0])
    assert interval is not None
    assert (interval.estimate, interval.n) == (12.0, 3)
    assert interval.high - 12.0 == pytest.approx(4.3027 * 2 / 3**0.5, abs=1e-3)
    assert interval.low + interval.high == pytest.approx(24.0)


def test_mean_intervals_cover_the_truth_as_often_as_they_say() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for sample in generator.normal(5.0, 2.0, size=(1000, 4)):
        interval = stats.mean_interval(sample.tolist())
        assert interval is not None
        covered += interval.low <= 5.0 <= interval.high
    assert 930 <= covered <= 970  # 950 expected, one deviation is 6.9


def test_a_quantile_of_clusters_that_are_alike_is_no_surer_than_of_independent_samples() -> None:
    found = stats.quantile_interval([list(range(1, 11))] * 10, 0.5)
    assert found is not None
    half = stats.t_quantile(0.95, 9) * math.sqrt(0.25 / 100)
    assert found.low <= 10 * (0.5 - half) + 1
    assert found.high >= 10 * (0.5 + half) - 1


def test_an_interval_that_begins_before_the_first_sample_is_none() -> None:
    clusters = [[float(at), float(at + 10)] for at in range(10)]
    half = stats.t_quantile(0.95, 9) * math.sqrt(0.25 * 0.75 / 20)
    assert math.floor((0.25 - half) * 20) == 0
    assert stats.quantile_interval(clusters, 0.25) is None
    assert stats.quantile_interval(clusters, 0.5) is not None


def test_the_interval_of_a_rate_is_that_of_its_clusters() -> None:
    found = stats.rate_interval([(1.0, 2.0), (3.0, 4.0), (2.0, 4.0)])
    assert found is not None
    rate = 0.6
    variance = 3 / 2 * sum((part - rate * whole) ** 2 for part, whole in [(1, 2), (3, 4), (2, 4)]) / 10**2
    assert found.estimate == pytest.approx(rate)
    assert found.high - rate == pytest.approx(stats.t_quantile(0.95, 2) * math.sqrt(variance))
