"""The rule that separates a bad observation from noise. This is decided nowhere else. Pure.

Every function takes floats, or arrays of them: one evaluation and ten thousand simulated weeks go through
the same lines. NaN is what Prometheus had no number for.

**Latency.** `ratio` is how many times as long something takes as in the baseline, at the same load, and
1 + regression what the rollout file allows. It is bad where the pool surely does not pay, and the regression
cannot be excluded:

    ratio - a > 1   and   ratio + b >= 1 + regression

Margins a and b have two errors in them that are not alike. The window's is drawn anew thousands of times a
week: both take Z times its standard error. The baseline's was drawn once, and stays: a takes 95% of it, since
what is at stake is a pool that gains next to nothing; b takes Z, since a regression is to be acted on every
time.

The minimum traffic is that at which a is half the regression. What is bad is then slower than no speculation
by about half of it, which no pool that pays comes near, and whatever is really `regression` slower is bad
but for errors of Z. If the error of the baseline alone exceeds half of the regression, more traffic does not
help. The error of the window may then be 0.7 of that half, and only the first clause decides. A slowdown of
`regression` may be missed; every finding says so.

**Acceptance.** Accepted tokens come in requests, and those of one request go together: a text is easy for
the draft or it is not. The variance of the rate is p (1 - p) / tokens, times Kish's design effect
1 + (tokens a request - 1) * SAME_REQUEST. Bad is a rate that lies below the threshold by more than Z standard
errors, and by more than a break-even that was measured is known to: a pool that gains a little lies close.

**Errors.** A share of few requests is not normal, so its lower end is Wilson's.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specops.guard.state import Verdict

Numbers: TypeAlias = float | NDArray[np.floating[Any]]
Codes: TypeAlias = NDArray[np.int8]
"""Positions in `VERDICTS`."""

VERDICTS: tuple[Verdict, ...] = ("healthy", "no_traffic", "no_data", "unknown", "bad")
HEALTHY, NO_TRAFFIC, NO_DATA, UNKNOWN, BAD = range(len(VERDICTS))
"""Of a signal. Of the parts of a pool, which only one evaluation at a time has, `degraded` follows."""

Z = 4.0
"""One evaluation in 30,000 errs by more, to one side. There are 10,080 in a week."""

AGAIN = 2.0
"""Quantile for the window that repeats a bad one, with new samples: 95%. Both err once in a million."""

OF_BASELINE = 2.0
"""Standard errors of the baseline's mean that may make a pool look as if it did not pay: 95%."""

CLUSTERED = 2.0
"""Requests of a window are not independent: conversations, retries, a neighbour on the machine. Their mean
varies as that of half as many."""

SAME_REQUEST = 0.25
"""Correlation of acceptance between tokens of one request; 1 were all or nothing, request by request. On the
shipped pair's 64 prompts it is 0.06 with the head, 0.11 with the draft model, 0.22 with n-grams."""

ACCEPTANCE_KNOWN = 0.1
"""Error to which, at Z standard errors, acceptance must be known: the minimum traffic follows from it."""

LEAST = 16
"""Requests, whatever they are for: Z squared, with which Wilson's interval of a pool that answers none of
them begins at half."""


def margin(n: Numbers, cv: Numbers, error: Numbers, regression: float, z: float = Z) -> Numbers:
    """Return to how much a ratio of about 1 + `regression` is known from `n` requests: a, above.

    `cv` is the standard deviation of one request over the mean, `error` the standard error of the baseline's
    mean over it.
    """
    return (1 + regression) * np.sqrt(_of_window(n, cv, z) + np.square(OF_BASELINE * error))


def bad_from(n: Numbers, cv: Numbers, error: Numbers, regression: float, z: float = Z) -> Numbers:
    """The ratio from which on it is bad: the later of the two clauses."""
    pays_not = 1 + margin(n, cv, error, regression, z)
    return np.maximum(pays_not, 1 + regression - _excluding(n, cv, error, regression, z))


def detectable(n: Numbers, cv: Numbers, error: Numbers, regression: float) -> Numbers:
    """The ratio that is called bad every time: 1 + regression, unless the baseline is known too badly."""
    return bad_from(n, cv, error, regression) + _excluding(n, cv, error, regression)


def _excluding(n: Numbers, cv: Numbers, error: Numbers, regression: float, z: float = Z) -> Numbers:
    """b, above."""
    return np.asarray((1 + regression) * np.sqrt(_of_window(n, cv, z) + np.square(Z * error)))


def _of_window(n: Numbers, cv: Numbers, z: float) -> Numbers:
    """The square of `z` standard errors of a mean of `n` requests, over the mean."""
    return np.asarray(z * z * CLUSTERED * np.square(cv) / np.maximum(n, 1e-9))


def least_requests(cv: Numbers, error: Numbers, regression: float) -> Numbers:
    """The fewest at which the margin is no more than half the regression, as far as the baseline lets it."""
    half = (regression / 2 / (1 + regression)) ** 2
    left = np.maximum(half - np.square(OF_BASELINE * error), half / 2)
    fewest: Numbers = np.maximum(np.ceil(Z * Z * CLUSTERED * np.square(cv) / left), LEAST)
    return fewest


def least_for_acceptance() -> int:
    """Requests, at the rate that is known worst, one half."""
    return int(np.ceil(Z * Z * 0.25 * SAME_REQUEST / ACCEPTANCE_KNOWN**2))


def latency(low: Numbers, high: Numbers, n: Numbers, least: Numbers, limit: Numbers) -> Codes:
    """Return the verdict on a ratio that lies between `low` and `high`, as far as the load is known, and is
    bad from `limit` on.

    Bad where even `low` is, healthy where not even `high` is, else unknown: so too where the load is beyond
    what was measured, which leaves one of the two open.
    """
    return _first(
        (np.isnan(n), NO_DATA),
        (np.less(n, np.fmin(least, LEAST)), NO_TRAFFIC),
        (np.isnan(low) | np.isnan(high), NO_DATA),
        (np.less(n, least), NO_TRAFFIC),
        (np.greater_equal(low, limit), BAD),
        (np.greater_equal(high, limit), UNKNOWN),
    )


def acceptance_error(rate: Numbers, drafted: Numbers, requests: Numbers) -> Numbers:
    """Standard error of a rate of `drafted` tokens in `requests`."""
    a_request = np.maximum(drafted / np.maximum(requests, 1.0), 1.0)
    design = 1 + (a_request - 1) * SAME_REQUEST
    error: Numbers = np.sqrt(rate * (1 - rate) * design / np.maximum(drafted, 1.0))
    return error


def acceptance_margin(
    rate: Numbers, drafted: Numbers, requests: Numbers, known_to: float, z: float = Z
) -> Numbers:
    """Return the margin of a rate, and of a threshold that is itself known to `known_to`."""
    error = acceptance_error(np.clip(rate, 0.0, 1.0), drafted, requests)
    return np.asarray(np.sqrt(np.square(z * error) + known_to**2))


def acceptance(
    rate: Numbers,
    drafted: Numbers,
    requests: Numbers,
    least: float,
    threshold: float,
    known_to: float = 0.0,
    z: float = Z,
) -> Codes:
    above = rate + acceptance_margin(rate, drafted, requests, known_to, z)
    return _first(
        (np.isnan(drafted) | np.isnan(requests), NO_DATA),
        (np.less(requests, least), NO_TRAFFIC),
        (np.less_equal(drafted, 0), UNKNOWN),
        (np.isnan(rate), NO_DATA),
        (np.less(above, threshold), BAD),
    )


def errors(
    failed: Numbers,
    requests: Numbers,
    other_failed: Numbers,
    other_requests: Numbers,
    limit: float,
    z: float = Z,
) -> Codes:
    """Bad where the share is surely above `limit`, and surely above the other pool's where that has any."""
    share = failed / np.maximum(requests, 1.0)
    standard_share = np.where(
        np.greater(other_requests, 0), other_failed / np.maximum(other_requests, 1.0), 0.0
    )
    variance = np.square(error_of(share, requests)) + np.where(
        np.greater(other_requests, 0), np.square(error_of(standard_share, other_requests)), 0.0
    )
    return _first(
        (np.isnan(failed) | np.isnan(requests), NO_DATA),
        (np.less(requests, LEAST), NO_TRAFFIC),
        (
            np.greater(wilson_low(share, requests, z), limit)
            & (share - standard_share > z * np.sqrt(variance)),
            BAD,
        ),
    )


def wilson_low(share: Numbers, n: Numbers, z: float = Z) -> Numbers:
    """Lower end of Wilson's interval at `z` standard errors."""
    n = np.maximum(n, 1.0)
    centre = share + z * z / (2 * n)
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return np.asarray((centre - half) / (1 + z * z / n))


def most_of(count: Numbers, z: float = Z) -> Numbers:
    """Upper end, at `z` standard errors, of the mean that a Poisson `count` of requests was drawn from; by
    Wilson and Hilferty."""
    above = np.asarray(count, dtype=float) + 1
    return np.asarray(above * (1 - 1 / (9 * above) + z / (3 * np.sqrt(above))) ** 3)


def error_of(share: Numbers, n: Numbers) -> Numbers:
    """Standard error of a share, one success and one failure added: never zero."""
    n = np.maximum(n, 1.0)
    added = (share * n + 1) / (n + 2)
    return np.asarray(np.sqrt(added * (1 - added) / (n + 2)))


def _first(*cases: tuple[Any, int]) -> Codes:
    """The code of the first case that holds; healthy where none does."""
    codes = np.select([case for case, _ in cases], [code for _, code in cases], HEALTHY)
    return codes.astype(np.int8)
