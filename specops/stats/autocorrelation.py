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
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

INDEPENDENT = 0.9
"""Prior probability that noise does not last. With less, intervals of few independent windows get wider;
with more, noise that lasts is missed in few windows. Chosen by simulation: benchmarks/lasting_noise.py."""

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
    spectra, excess = _kinds_of_noise(n)
    power = (pulls @ _cosines(n).T) ** 2
    return mixed_widening(power, spectra, excess, n - 1, level)


def mixed_widening(power: Array, spectra: Array, excess: Array, freedom: int, level: float) -> Array:
    """Return the factor of `widening` from the squares of transforms, [..., m], of residuals with `freedom`
    degrees of freedom, the `spectra` [kinds, m] that each kind of noise expects of them, and the variance
    [kinds] that each adds to the estimate, in multiples of the first kind's."""
    squares = np.maximum(power @ (1 / spectra).T, np.finfo(np.float64).tiny)
    log = _LOG_PRIOR - np.log(spectra).sum(axis=1) / 2 - freedom / 2 * np.log(squares)
    weights = np.exp(log - log.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    # What each kind makes of the standard error, in multiples of the one for independent windows.
    errors = np.sqrt(np.maximum(1.0, excess * squares / squares[..., :1]))
    normal = NormalDist().inv_cdf((1 + level) / 2)
    low, high = np.full(log.shape[:-1], normal), normal * errors.max(axis=-1)
    for _ in range(40):
        middle = (low + high) / 2
        beyond = (weights * _erfc(middle[..., None] / errors / math.sqrt(2)).astype(np.float64)).sum(axis=-1)
        narrow = beyond > 1 - level
        low, high = np.where(narrow, middle, low), np.where(narrow, high, middle)
    factors: Array = high / normal
    return factors


@lru_cache(maxsize=64)
def _cosines(n: int) -> Array:
    """Cosine transforms that are orthogonal to a constant, [n - 1, n]."""
    waves = math.pi * np.arange(1, n)[:, None] * (np.arange(n) + 0.5) / n
    cosines: Array = math.sqrt(2 / n) * np.cos(waves)
    return cosines


@lru_cache(maxsize=64)
def _kinds_of_noise(n: int) -> tuple[Array, Array]:
    """Return what each kind expects of the squares of the transforms [kinds, n - 1], and how many times the
    variance of a mean of n independent windows it has [kinds]."""
    phi, nugget = _KINDS[:, :, None]
    waves = math.pi * np.arange(1, n) / n
    lags = np.arange(1, n)
    spectra = (1 - nugget) * (1 - phi**2) / (1 - 2 * phi * np.cos(waves) + phi**2) + nugget
    excess = 1 + 2 * (1 - nugget[:, 0]) * ((1 - lags / n) * phi**lags).sum(axis=1)
    return spectra, excess
