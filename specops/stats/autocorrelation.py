"""Noise that lasts: how much wider an interval must be where neighbours in time were disturbed together.

A server that is slow now is often slow a minute later. Then n windows are worth fewer than n, and an
interval that takes them for independent excludes the truth too often. How long the noise lasts is measured,
and 40 windows do not measure it well. So no single value is plugged in: the interval is averaged over all
that the windows leave plausible (a mixture, as in Müller and Watson, Econometrica 2008). With independent
windows, nearly all of the weight is on "does not last", and the interval is hardly wider.

The noise is a first-order autoregression of windows, AR(1), with or without independent noise on top. Its
likelihood is Whittle's (1953), on cosine transforms: they leave the mean out, so it is free of the bias
towards zero that estimates of autocorrelation have (restricted likelihood).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

INDEPENDENT = 0.9
"""Prior probability that noise does not last. With less, intervals of few independent windows get wider;
with more, noise that lasts is missed in few windows. Chosen by simulation: benchmarks/experiment_power.py."""

_KINDS = np.array(
    [(0.0, 0.0)]
    + [(phi, 0.0) for phi in (0.5, 0.8, 0.9, 0.96)]
    + [(phi, nugget) for phi in (0.8, 0.9, 0.96) for nugget in (0.2, 0.5)]
).T
"""Kinds of noise, [2, kinds]: the autocorrelation of neighbouring windows, and the share of the variance that
does not last. The first kind does not last at all."""

_LOG_PRIOR = np.log([INDEPENDENT] + [(1 - INDEPENDENT) / (_KINDS.shape[1] - 1)] * (_KINDS.shape[1] - 1))

_erfc = np.frompyfunc(math.erfc, 1, 1)


def widening(pulls: Array, level: float) -> Array:
    """Return by what factor the interval of a mean must be wider, because the noise lasts; at least 1.

    `pulls` [..., n] are the parts of n windows in the estimate's error, in the order of time. Only their
    order counts, not the time between them. `level` is the two-sided confidence of the interval.
    """
    n = pulls.shape[-1]
    noise = LastingNoise.among(n)
    squares = noise.squares((pulls @ noise.cosines.T) ** 2)
    # Autocovariances weighted by how many pairs of windows are so far apart.
    lags = np.arange(n)
    excess = noise.correlations @ (np.where(lags, 2.0, 1.0) * (1 - lags / n))
    return mixed(noise.log_likelihood(squares, n - 1), excess * squares / squares[..., :1], level)


@dataclass(frozen=True)
class LastingNoise:
    """What each kind of noise makes of n windows, transformed by cosines."""

    cosines: Array
    """The transforms, all but the constant one [n - 1, n]."""

    spectra: Array
    """Variance of each transform [kinds, n - 1], of noise with variance 1."""

    correlations: Array
    """Between windows 0, 1, … n - 1 apart [kinds, n]."""

    @staticmethod
    @lru_cache(maxsize=64)
    def among(n: int) -> LastingNoise:
        phi, nugget = _KINDS[:, :, None]
        lags = np.arange(n)
        waves = math.pi * lags[1:] / n
        cosines = math.sqrt(2 / n) * np.cos(waves[:, None] * (lags + 0.5))
        spectra = (1 - nugget) * (1 - phi**2) / (1 - 2 * phi * np.cos(waves) + phi**2) + nugget
        correlations = np.where(lags, (1 - nugget) * phi**lags, 1.0)
        return LastingNoise(cosines, spectra, correlations)

    def squares(self, power: Array) -> Array:
        """Return the sums of squares [..., kinds] of whitened transforms, whose squares are `power`."""
        return np.maximum(power @ (1 / self.spectra).T, np.finfo(np.float64).tiny)

    def log_likelihood(self, squares: Array, freedom: int) -> Array:
        """Return the logarithm of prior times likelihood of each kind, its variance integrated out."""
        log: Array = _LOG_PRIOR - np.log(self.spectra).sum(axis=1) / 2 - freedom / 2 * np.log(squares)
        return log


def mixed(log_weights: Array, variances: Array, level: float) -> Array:
    """Return the factor on an interval's half-width where its variance is one of `variances` [..., kinds].

    They are multiples of the variance that the interval was made with; below 1 they count as 1. Each has a
    weight, by its logarithm. The interval is that of the mixture of normal distributions.
    """
    weights = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    errors = np.sqrt(np.maximum(1.0, variances))
    normal = NormalDist().inv_cdf((1 + level) / 2)
    low, high = np.full(errors.shape[:-1], normal), normal * errors.max(axis=-1)
    for _ in range(40):
        middle = (low + high) / 2
        beyond = (weights * _erfc(middle[..., None] / errors / math.sqrt(2)).astype(np.float64)).sum(axis=-1)
        narrow = beyond > 1 - level
        low, high = np.where(narrow, middle, low), np.where(narrow, high, middle)
    factors: Array = high / normal
    return factors
