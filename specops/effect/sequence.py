"""Confidence sequences: intervals that hold at every moment together, so that one may look at any time.

Means: the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas ("Time-uniform
central limit theory and asymptotic confidence sequences", arXiv 2103.06476), with Robbins' normal mixture.
Failures: a mixture of likelihood ratios, a nonnegative martingale under the truth, by Ville's inequality. It
uses only the group of each failure, so it also holds for few failures.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating[Any]]

TIGHTEST_PAIRS = 500.0
"""Effective pairs of requests, n·m/(n+m), at which the sequence is narrowest: 1,000 requests a group, or half
an hour at 5 requests/s with a holdout of 10%."""

TIGHTEST_BLOCKS = 48.0
"""The same, in blocks of random windows."""

MOST_RATIO = 64.0
"""The ratios of failure shares that are considered: from 1/64 to 64."""
RATIOS: Array = np.geomspace(1 / MOST_RATIO, MOST_RATIO, 385)
_PRIOR_SD = 1.0


def always(pairs: Array, alpha: float) -> Array:
    """Return how many standard errors an interval has to each side, so that all intervals of a growing sample
    hold together with probability 1 - `alpha`. `pairs` is the effective number of pairs at each look."""
    tuned = -2 * math.log(alpha) + math.log(-2 * math.log(alpha)) + 1
    information = np.maximum(pairs, 1e-9) * tuned / TIGHTEST_PAIRS
    return np.asarray(np.sqrt((1 + 1 / information) * (np.log1p(information) - 2 * math.log(alpha))))


def student(errors: Array, freedom: Array | float) -> Array:
    """Return how many standard errors an interval has to each side, where the error is estimated with so many
    degrees of `freedom`, and it would be `errors` if it were known (Wallace, Ann. Math. Statist. 30, 1959).
    Infinite without any."""
    nu = np.clip(freedom, 1e-9, 1e9)
    normal = errors * (8 * nu + 3) / (8 * nu + 1)
    with np.errstate(over="ignore"):
        return np.asarray(np.sqrt(nu * np.expm1(np.square(normal) / nu)))


def log_likelihoods(failed: Array, requests: Array) -> Array:
    """Return the log likelihood of which group each failure was in, for each of `RATIOS`.

    `failed` and `requests` are [strata, 2]: holdout, speculative. With a ratio r of the failure shares, a
    failure of a stratum is in the speculative group with probability r·n1 / (r·n1 + n0). The result is
    [strata, ratios]; constant terms are left out.
    """
    expected = requests[:, 1:] * RATIOS + requests[:, :1]
    with np.errstate(divide="ignore", invalid="ignore"):
        total = np.where(expected > 0, np.log(expected), 0.0)
    return np.asarray(failed[:, 1:] * np.log(RATIOS) - failed.sum(axis=1, keepdims=True) * total)


def ratios_held(likelihoods: Array, alpha: float) -> tuple[float, float]:
    """Return the lowest and highest ratio of failure shares that the data do not exclude, at any moment.

    `likelihoods` is [ratios], the sum of `log_likelihoods` so far. An end is 0 or infinite where the range of
    `RATIOS` does not contain it.
    """
    log_ratios = np.log(RATIOS)
    prior = np.exp(-0.5 * np.square(log_ratios / _PRIOR_SD))
    weighted = likelihoods + np.log(prior / prior.sum())
    most = float(weighted.max())
    mixture = most + math.log(float(np.exp(weighted - most).sum()))
    held = np.flatnonzero(mixture - likelihoods < -math.log(alpha))
    first, last = int(held[0]), int(held[-1])
    low = 0.0 if first == 0 else float(RATIOS[first - 1])
    high = math.inf if last == RATIOS.size - 1 else float(RATIOS[last + 1])
    return low, high


def once(alpha: float) -> float:
    """Return the same for one interval that is looked at once, at a time fixed beforehand."""
    return NormalDist().inv_cdf(1 - alpha / 2)
