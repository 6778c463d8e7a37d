"""The rule: what is bad, how much traffic that takes, and that arrays are judged as floats are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.guard.signals import noise
from specops.guard.signals.noise import BAD, HEALTHY, LEAST, NO_DATA, NO_TRAFFIC, UNKNOWN

REGRESSION = 0.2
cvs = st.floats(0.02, 1.0)
small_errors = st.floats(0.0, 0.02)
any_errors = st.floats(0.0, 0.3)


def judged(ratio: float, n: float, cv: float, error: float) -> int:
    least = noise.least_requests(cv, error, REGRESSION)
    limit = noise.bad_from(n, cv, error, REGRESSION)
    return int(noise.latency(ratio, ratio, n, least, limit))


@given(cvs, small_errors, st.floats(1.0, 1000.0))
def test_with_the_minimum_traffic_the_regression_is_bad_and_no_speculation_is_not(
    cv: float, error: float, times: float
) -> None:
    n = float(noise.least_requests(cv, error, REGRESSION)) * times
    assert judged(1.0 + REGRESSION, n, cv, error) == BAD
    assert judged(1.0 + REGRESSION / 4, n, cv, error) == HEALTHY
    # Z standard errors of the window lie between the limit and either of them.
    limit = float(noise.bad_from(n, cv, error, REGRESSION))
    assert float(noise.detectable(n, cv, error, REGRESSION)) >= 1 + REGRESSION - 1e-9
    window = noise.Z * cv * math.sqrt(noise.CLUSTERED / n)
    assert min(limit - 1, 1 + REGRESSION - limit) >= window * (1 - 1e-6)


@given(cvs, any_errors, st.floats(16.0, 1e6))
def test_nothing_is_bad_that_may_pay(cv: float, error: float, n: float) -> None:
    limit = float(noise.bad_from(n, cv, error, REGRESSION))
    assert limit - float(noise.margin(n, cv, error, REGRESSION)) >= 1 - 1e-9


@given(cvs, any_errors, st.floats(16.0, 1e5), st.floats(1.0, 2.0))
def test_more_requests_never_make_the_limit_less_sure(
    cv: float, error: float, n: float, times: float
) -> None:
    few, many = (float(noise.margin(count, cv, error, REGRESSION)) for count in (n, n * times))
    assert many <= few + 1e-12


@given(cvs, any_errors)
def test_the_minimum_traffic_is_finite_however_bad_the_baseline(cv: float, error: float) -> None:
    least = float(noise.least_requests(cv, error, REGRESSION))
    assert LEAST <= least <= 2.01 * max(float(noise.least_requests(cv, 0.0, REGRESSION)), LEAST)
    assert judged(3.0, least, cv, error) == BAD


def test_a_ratio_that_is_known_from_one_side_only() -> None:
    least, limit = 100.0, 1.1
    beyond_the_highest = (0.0, 1.5)
    below_the_lowest = (1.5, math.inf)
    assert int(noise.latency(*beyond_the_highest, 500.0, least, limit)) == UNKNOWN
    assert int(noise.latency(0.0, 1.0, 500.0, least, limit)) == HEALTHY
    assert int(noise.latency(*below_the_lowest, 500.0, least, limit)) == BAD
    assert int(noise.latency(0.9, math.inf, 500.0, least, limit)) == UNKNOWN


@pytest.mark.parametrize(
    ("ratio", "n", "code"),
    [
        (math.nan, math.nan, NO_DATA),
        (math.nan, 0.0, NO_TRAFFIC),
        (math.nan, 500.0, NO_DATA),
        (9.0, 99.0, NO_TRAFFIC),
        (9.0, 100.0, BAD),
        (0.5, 100.0, HEALTHY),
    ],
)
def test_no_data_no_traffic_and_bad_are_told_apart(ratio: float, n: float, code: int) -> None:
    assert int(noise.latency(ratio, ratio, n, 100.0, 1.1)) == code


def test_acceptance_is_bad_only_where_it_surely_is() -> None:
    def code(rate: float, drafted: float, requests: float) -> int:
        return int(noise.acceptance(rate, drafted, requests, 100, 0.5))

    assert code(0.1, 9000, 100) == BAD
    assert code(0.45, 9000, 100) == HEALTHY  # one text is not like another
    assert code(0.45, 900_000, 10_000) == BAD
    assert code(0.0, 9000, 100) == BAD
    assert code(0.0, 9000, 99) == NO_TRAFFIC
    assert code(math.nan, 0, 500) == UNKNOWN, "flat counters under traffic are not too little traffic"
    assert code(math.nan, 0, 99) == NO_TRAFFIC
    assert code(math.nan, 9000, 100) == NO_DATA
    # Close to a break-even that was measured, nobody knows whether it pays.
    assert int(noise.acceptance(0.48, 900_000, 100_000, 100, 0.5)) == BAD
    assert int(noise.acceptance(0.48, 900_000, 100_000, 100, 0.5, known_to=0.03)) == HEALTHY
    assert int(noise.acceptance(0.46, 900_000, 100_000, 100, 0.5, known_to=0.03)) == BAD
    assert code(0.1, math.nan, 100) == NO_DATA


@given(st.floats(0.0, 1.0), st.integers(100, 10_000), st.floats(1.0, 500.0))
def test_the_minimum_traffic_knows_acceptance_to_a_tenth(rate: float, requests: int, drafted: float) -> None:
    """At most a token's own variance more, where requests draft next to nothing."""
    error = noise.acceptance_error(rate, requests * drafted, requests)
    assert noise.Z * float(error) <= noise.ACCEPTANCE_KNOWN * math.sqrt(1 + 4 / drafted) + 1e-9


def test_the_error_of_acceptance_is_that_of_requests_whose_tokens_go_together() -> None:
    """Drawn: each request has a rate of its own, as unlike the others' as `SAME_REQUEST` says."""
    random = np.random.default_rng(0)
    drafted, requests, mean = 60, 200, 0.5
    alike = (1 / noise.SAME_REQUEST - 1) * mean
    rates = random.beta(alike, alike, (4000, requests))
    drawn = random.binomial(drafted, rates).sum(axis=1) / (drafted * requests)
    expected = float(noise.acceptance_error(mean, float(drafted * requests), float(requests)))
    assert drawn.std() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("failed", "asked", "others", "others_asked", "code"),
    [
        (0, 1000, 0, 1000, HEALTHY),
        (40, 1000, 0, 1000, HEALTHY),
        (300, 1000, 0, 1000, BAD),
        (300, 1000, 300, 1000, HEALTHY),  # the other pool fails as well: it is not speculation
        (300, 1000, math.nan, math.nan, BAD),
        (100, 1000, 3, 60, HEALTHY),  # twice the other's share, which 60 requests hardly show
        (100, 1000, 300, 6000, BAD),
        (16, 16, 0, 0, BAD),
        (15, 15, 0, 0, NO_TRAFFIC),
        (3, 20, 0, 1000, HEALTHY),
        (math.nan, 1000, 0, 1000, NO_DATA),
    ],
)
def test_errors_are_bad_beyond_the_limit_and_beyond_the_other_pool_s(
    failed: float, asked: float, others: float, others_asked: float, code: int
) -> None:
    assert int(noise.errors(failed, asked, others, others_asked, 0.05)) == code


@given(st.integers(16, 5000), st.floats(0.0, 1.0))
def test_wilson_s_lower_end_lies_below_the_share_and_not_below_nothing(n: int, share: float) -> None:
    low = float(noise.wilson_low(share, float(n)))
    assert -1e-12 <= low <= share + 1e-12


@given(
    st.lists(
        st.tuples(
            *[st.one_of(st.just(math.nan), st.floats(0.0, 3.0))] * 2,
            st.one_of(st.just(math.nan), st.floats(0.0, 2000.0)),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_arrays_are_judged_as_floats_are(windows: list[tuple[float, float, float]]) -> None:
    low, high, n = (np.array(column) for column in zip(*windows, strict=True))
    together = noise.latency(low, high, n, np.full(len(n), 150.0), np.full(len(n), 1.1))
    assert [int(noise.latency(*window, 150.0, 1.1)) for window in windows] == together.tolist()
    shares = np.clip(low, 0, 1)
    accepted = noise.acceptance(shares, n * 50, n, 100, 0.5)
    one_by_one = [
        int(noise.acceptance(a, b * 50, b, 100, 0.5))
        for a, b in zip(shares.tolist(), n.tolist(), strict=True)
    ]
    assert one_by_one == accepted.tolist()


def test_the_upper_end_of_a_count_is_that_of_its_poisson_distribution() -> None:
    tail = 3.2e-5  # of a normal distribution beyond 4 standard errors
    for count in (0, 1, 5, 40):
        mean = float(noise.most_of(float(count)))
        below = sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))
        assert tail / 2 < below < tail * 2, (count, mean, below)
