"""Trends and differences by rank: found where they are, not where a few requests stalled."""

from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops import stats

latencies = st.lists(st.floats(0.1, 1e3), min_size=8, max_size=40)


def stalling(generator: np.random.Generator, n: int, times: float = 1.0) -> list[float]:
    """Latencies of about `times`; one in twenty is stalled."""
    stalled = generator.random(n) < 0.05
    latencies = times * generator.lognormal(0, 0.1, n) * np.where(stalled, 20.0, 1.0)
    return [float(latency) for latency in latencies]


def test_a_slow_down_is_found_through_stalls() -> None:
    generator = np.random.default_rng(0)
    at = sorted(float(instant) for instant in generator.uniform(100.0, 900.0, 80))
    steady = stalling(generator, 80)
    slowing = [1.5 ** ((instant - at[0]) / (at[-1] - at[0])) for instant in at]
    change = stats.trend(at, [one * other for one, other in zip(steady, slowing, strict=True)])
    assert change is not None
    assert 1.1 < change.low < 1.5 < change.high < 2
    assert change.n == 80


def test_what_does_not_change_is_called_a_trend_as_rarely_as_stated() -> None:
    generator = np.random.default_rng(1)
    wrong = 0
    for _ in range(400):
        change = stats.trend(range(40), stalling(generator, 40))
        assert change is not None
        wrong += not change.low <= 1 <= change.high
    assert 6 <= wrong <= 34  # 20 expected, one deviation is 4.4


def test_groups_that_are_alike_are_called_different_as_rarely_as_stated() -> None:
    generator = np.random.default_rng(2)
    wrong = 0
    for _ in range(400):
        change = stats.two_groups(stalling(generator, 30), stalling(generator, 12))
        assert change is not None
        wrong += not change.low <= 1 <= change.high
    assert 6 <= wrong <= 34


def test_a_difference_is_a_ratio_of_the_first_to_the_second() -> None:
    generator = np.random.default_rng(3)
    change = stats.two_groups(stalling(generator, 40, 1.5), stalling(generator, 40))
    assert change is not None
    assert 1.3 < change.low < 1.5 < change.high < 1.7


def test_an_even_slope_is_found_exactly() -> None:
    change = stats.trend([float(i) for i in range(20)], [math.exp(i / 19) for i in range(20)])
    assert change is not None
    assert (change.low, change.estimate, change.high) == pytest.approx((math.e,) * 3)


@given(latencies, st.sampled_from([0.5, 4.0]), st.floats(1.0, 100.0))
def test_units_do_not_matter(values: list[float], times: float, stretch: float) -> None:
    at = [float(i) for i in range(len(values))]
    one = stats.trend(at, values)
    two = stats.trend([stretch * instant for instant in at], [times * value for value in values])
    assert one is not None
    assert two is not None
    assert (two.low, two.estimate, two.high) == pytest.approx((one.low, one.estimate, one.high), rel=1e-6)


@given(latencies, latencies)
def test_swapping_the_groups_turns_the_interval_over(one: list[float], other: list[float]) -> None:
    there, back = stats.two_groups(one, other), stats.two_groups(other, one)
    assert there is not None
    assert back is not None
    assert (1 / back.high, 1 / back.estimate, 1 / back.low) == pytest.approx(
        (there.low, there.estimate, there.high)
    )


@pytest.mark.parametrize("at", [[0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 1, 2], [0, 0, 0, 1, 1, 1]])
def test_the_variance_of_kendalls_statistic_is_that_of_all_orders(at: list[float]) -> None:
    from specops.stats.samples import _kendall_variance

    def statistic(order: tuple[int, ...]) -> float:
        return sum(
            float(np.sign(at[j] - at[i]) * np.sign(order[j] - order[i])) for i, j in combinations(range(6), 2)
        )

    enumerated = np.var([statistic(order) for order in permutations(range(6))])
    assert _kendall_variance(np.array(at)) == pytest.approx(enumerated)


def test_a_long_run_is_thinned_evenly() -> None:
    n = 5_000  # only the second half slows down
    change = stats.trend(range(n), [math.exp(max(0.0, 2 * i / n - 1)) for i in range(n)])
    assert change is not None
    assert change.low > 1.5
    assert change.n <= 2_000


def test_too_little_says_nothing() -> None:
    assert stats.trend([1.0] * 7, [1.0] * 7) is None
    assert stats.trend([1.0] * 20, [2.0] * 20) is None  # one instant
    assert stats.two_groups([1.0] * 3, [1.0] * 4) is None
    assert stats.two_groups([1.0] * 20, []) is None
    assert stats.two_groups([1.0, 2.0], [3.0] * 6, level=0.999) is None  # no rank is so far out


def test_what_has_no_logarithm_is_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        stats.trend(range(8), [1.0] * 7 + [0.0])
    with pytest.raises(ValueError, match="an instant for each"):
        stats.trend(range(9), [1.0] * 8)


def test_a_start_that_differs_is_found_with_its_size() -> None:
    generator = np.random.default_rng(0)
    for place in (3, 5, 8, 12):
        values = np.exp(generator.normal(0, 0.05, 24))
        values[:place] *= 3
        found = stats.changed_start(list(values))
        assert found is not None
        assert found[0] == place
        assert found[1].low < 3 < found[1].high
        assert found[1].low > 2.5
        turned = stats.changed_start(list(1 / values))
        assert turned is not None
        assert turned[1].high == pytest.approx(1 / found[1].low)


def test_an_even_start_is_not_accused() -> None:
    """The intervals at all places hold together; the best of them is shown."""
    generator = np.random.default_rng(1)
    wrong = 0
    for _ in range(300):
        found = stats.changed_start(list(np.exp(generator.normal(0, 0.3, 24))))
        assert found is not None
        wrong += not found[1].low <= 1 <= found[1].high
    assert wrong <= 15 + 8


def test_the_start_is_an_eighth_to_a_half() -> None:
    one = stats.changed_start([9.0] + [1.0, 1.1] * 16)
    assert one is not None
    assert one[0] >= 33 // 8
    late = stats.changed_start([1.0, 1.1] * 9 + [9.0] * 6)
    assert late is not None
    assert late[0] <= 12
    assert stats.changed_start([1.0] * 7) is None
    few = stats.changed_start([9.0, 9.1] + [1.0, 1.1] * 3)
    assert few is not None
    assert few[0] == 2


def test_the_interval_of_a_start_is_students() -> None:
    logs = [1.0, 1.2, 0.1, -0.1, 0.0, 0.1, -0.1, 0.0]
    found = stats.changed_start([math.exp(x) for x in logs], level=0.9)
    assert found is not None
    spread = (0.1**2 * 2) + 4 * 0.1**2
    half = stats.t_quantile(1 - 0.1 / 3, 6) * math.sqrt(spread / 6 * (1 / 2 + 1 / 6))
    assert found[0] == 2
    assert (math.log(found[1].low), math.log(found[1].high)) == pytest.approx((1.1 - half, 1.1 + half))


def test_eight_values_are_enough_for_two_groups() -> None:
    found = stats.two_groups([2.0, 2.1, 2.2, 2.3], [1.0, 1.1, 1.2, 1.3])
    assert found is not None
    assert found.low > 1
