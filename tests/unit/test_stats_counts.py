"""Shares of paired requests, compared exactly: against published values, and the other way round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops import stats
from specops.stats.interval import at_least


@pytest.mark.parametrize(
    ("successes", "tries", "low", "high"),
    [
        # R: binom.test(x, n)$conf.int
        (0, 10, 0.0, 0.3084971),
        (1, 10, 0.002528579, 0.4450161),
        (5, 10, 0.1870860, 0.8129140),
        (7, 10, 0.3475471, 0.9332605),
        (10, 10, 0.6915029, 1.0),
        (7, 7, 0.5903836, 1.0),
    ],
)
def test_clopper_and_pearson(successes: int, tries: int, low: float, high: float) -> None:
    assert stats.binomial_interval(successes, tries) == pytest.approx((low, high), abs=1e-6)


def test_a_binomial_tail() -> None:
    assert at_least(5, 5, 0.5) == pytest.approx(1 / 32)
    assert at_least(0, 5, 0.5) == 1
    assert at_least(1, 5, 0.2) == pytest.approx(1 - 0.8**5)
    assert (at_least(1, 5, 0.0), at_least(5, 5, 1.0)) == (0.0, 1.0)


def test_a_difference_of_paired_shares() -> None:
    """7 of 128 to the second arm alone: its part of the 7 is at least 0.59, so 0.98 points more at least."""
    found = stats.paired_difference(0, 7, 128)
    assert found.estimate == pytest.approx(7 / 128)
    assert found.low == pytest.approx(7 / 128 * (2 * 0.5903836 - 1), abs=1e-7)
    assert found.high == pytest.approx(7 / 128)
    assert found.n == 128
    assert stats.paired_difference(0, 6, 128).low == pytest.approx(6 / 128 * (2 * 0.5407419 - 1), abs=1e-7)


def test_five_pairs_one_way_could_be_chance_and_six_could_not() -> None:
    """McNemar's exact test: 2 / 2^5 is above 5%, 2 / 2^6 is below."""
    assert stats.paired_difference(0, 5, 64).low < 0 < stats.paired_difference(0, 6, 64).low


def test_where_nothing_happened_to_one_arm_alone_there_is_no_difference() -> None:
    found = stats.paired_difference(0, 0, 9)
    assert (found.estimate, found.low, found.high) == (0.0, 0.0, 0.0)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 40), st.floats(0.6, 0.9999))
def test_the_other_way_round_is_the_opposite(one: int, other: int, rest: int, level: float) -> None:
    pairs = one + other + rest + 1
    there, back = (
        stats.paired_difference(one, other, pairs, level),
        stats.paired_difference(other, one, pairs, level),
    )
    assert (there.estimate, there.low, there.high) == pytest.approx((-back.estimate, -back.high, -back.low))
    assert there.low <= there.estimate <= there.high
    assert -1 <= there.low <= there.high <= 1


@given(st.integers(1, 20), st.integers(0, 20))
def test_more_confidence_is_wider(one: int, other: int) -> None:
    narrow, wide = (stats.paired_difference(one, other, 60, level) for level in (0.8, 0.99))
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high


@pytest.mark.parametrize("parts", [(-1, 0, 5), (3, 3, 5), (0, 0, 0)])
def test_what_is_not_a_part_is_refused(parts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="are not parts of"):
        stats.paired_difference(*parts)
