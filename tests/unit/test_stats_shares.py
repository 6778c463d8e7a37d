"""Bounds of shares: against every sample that there can be, and against published values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops import stats

TRIES = 40
LEVELS = (0.9, 0.95, 0.99)


def chances(share: float, n: int) -> np.ndarray:
    """The probability of 0 to `n` events."""
    return np.array([math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("share", [0.0, 0.004, 0.03, 0.2, 0.5, 0.93, 1.0])
def test_a_bound_of_a_share_misses_it_as_rarely_as_it_says(share: float, level: float) -> None:
    probability = chances(share, TRIES)
    above = [stats.share_upper(events, TRIES, level) < share for events in range(TRIES + 1)]
    below = [stats.share_lower(events, TRIES, level) > share for events in range(TRIES + 1)]
    assert probability @ above <= 1 - level + 1e-9
    assert probability @ below <= 1 - level + 1e-9


@pytest.mark.parametrize("level", LEVELS)
def test_a_bound_is_the_share_at_which_so_few_events_are_just_too_rare(level: float) -> None:
    for events in range(TRIES):
        bound = stats.share_upper(events, TRIES, level)
        assert chances(bound, TRIES)[: events + 1].sum() == pytest.approx(1 - level, rel=1e-6)


@pytest.mark.parametrize(
    ("events", "n", "level", "bound"),
    [
        # R: binom.test(x, n, alternative = "less")$conf.int; without events 1 - (1 - level)^(1 / n)
        (0, 320, 0.95, 0.009317979),
        (0, 64, 0.95, 1 - 0.05 ** (1 / 64)),
        (1, 10, 0.95, 0.3941633),
        (10, 10, 0.95, 1.0),
    ],
)
def test_published_bounds(events: int, n: int, level: float, bound: float) -> None:
    assert stats.share_upper(events, n, level) == pytest.approx(bound, abs=1e-7)
    assert stats.share_lower(n - events, n, level) == pytest.approx(1 - bound, abs=1e-7)


def test_no_requests_show_nothing() -> None:
    assert (stats.share_lower(0, 0), stats.share_upper(0, 0)) == (0.0, 1.0)
    assert stats.difference_upper(0, 0, 0, 64) == stats.share_upper(0, 64)
    assert stats.difference_upper(20, 64, 0, 0) == 1.0
    assert stats.difference_lower(0, 0, 20, 64) == -1.0
    for events, n in ((1, 0), (-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="successes in"):
            stats.share_upper(events, n)


@pytest.mark.parametrize("level", [0.5, 0.0, 1.0])
def test_a_level_that_is_no_confidence_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="one-sided confidence"):
        stats.share_upper(0, 10, level)


@pytest.mark.parametrize("sizes", [(24, 24), (12, 48), (48, 12)])
def test_a_bound_of_a_difference_misses_it_as_rarely_as_it_says(sizes: tuple[int, int]) -> None:
    """Over every pair of counts. It may err a little more often where the two differ more than any margin."""
    standard_n, challenger_n = sizes
    bounds = np.array(
        [
            [stats.difference_upper(k, standard_n, j, challenger_n, 0.95) for j in range(challenger_n + 1)]
            for k in range(standard_n + 1)
        ]
    )
    for standard in (0.0, 0.01, 0.05, 0.2, 0.5, 0.8):
        for challenger in (0.0, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9):
            probability = np.outer(chances(standard, standard_n), chances(challenger, challenger_n))
            missed = probability[bounds < challenger - standard - 1e-12].sum()
            allowed = 0.05 if challenger - standard <= 0.31 else 0.065
            assert missed <= allowed + 1e-9, (standard, challenger)


counts = st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(counts, counts, st.sampled_from(LEVELS))
def test_a_difference_lies_within_its_bounds(
    standard: tuple[int, int], challenger: tuple[int, int], level: float
) -> None:
    low = stats.difference_lower(*standard, *challenger, level)
    high = stats.difference_upper(*standard, *challenger, level)
    difference = challenger[0] / challenger[1] - standard[0] / standard[1]
    assert -1 <= low <= difference + 1e-12
    assert difference - 1e-12 <= high <= 1
    assert high == -stats.difference_lower(*challenger, *standard, level)
    assert high <= stats.share_upper(*challenger, level) + 1e-12  # the standard's events can only help
    if not standard[0]:
        assert high == pytest.approx(stats.share_upper(*challenger, level))


@given(counts, st.sampled_from(LEVELS))
def test_an_event_more_raises_a_bound_and_a_request_more_lowers_it(
    sample: tuple[int, int], level: float
) -> None:
    events, n = sample
    bound = stats.share_upper(events, n, level)
    assert stats.share_upper(events, n + 1, level) <= bound
    if events < n:
        assert stats.share_upper(events + 1, n, level) >= bound


@pytest.mark.parametrize(
    ("margin", "level", "events", "n"), [(0.01, 0.95, 0, 299), (0.05, 0.95, 0, 59), (0.5, 0.95, 0, 5)]
)
def test_how_many_requests_a_margin_takes(margin: float, level: float, events: int, n: int) -> None:
    assert stats.needed_for(margin, level, events) == n


@given(st.floats(1e-6, 0.99), st.integers(0, 5), st.sampled_from(LEVELS))
def test_one_request_fewer_is_not_enough(margin: float, events: int, level: float) -> None:
    n = stats.needed_for(margin, level, events)
    assert stats.share_upper(events, n, level) <= margin
    assert n - 1 <= events or stats.share_upper(events, n - 1, level) > margin


@pytest.mark.parametrize("margin", [0.0, 1.0, -0.1, 1e-12])
def test_a_margin_that_no_number_of_requests_shows_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match="margin"):
        stats.needed_for(margin)
