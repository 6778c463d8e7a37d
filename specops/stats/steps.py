"""A step in time: one change of a mean, at an unknown place, which noise that lasts cannot fake.

The place is found by least squares. Student's t interval of the change holds for all places together
(Bonferroni). A slow wave of the noise looks like a step, so the interval is wider by what lasting noise
makes of it (autocorrelation.py). How likely each kind of noise is follows from what is left beside a step at
any place: else a true step would itself count as noise that lasts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from specops.stats.autocorrelation import LastingNoise, mixed
from specops.stats.interval import LEVEL, Interval, t_quantile

MIN_WINDOWS = 8
"""Fewer give no interval."""


def largest_step(values: Sequence[float], level: float = LEVEL) -> tuple[int, Interval] | None:
    """Return how many of the first `values` differ most from the later ones, and the factor of change.

    `values` are logarithms of positive figures, one of each window, in the order of time; the interval is of
    the ratio: 1.2 is a fifth more in the later windows. Each side has an eighth of the windows, two at least.
    None with fewer than `MIN_WINDOWS`. Raises ValueError for a value that is not finite.
    """
    series = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(series)):
        raise ValueError("a step needs finite logarithms")
    n = len(series)
    if n < MIN_WINDOWS:
        return None
    least = max(2, n // 8)
    places = np.arange(least, n - least + 1)
    steps = np.where(np.arange(n) < places[:, None], -1 / places[:, None], 1 / (n - places[:, None]))
    lengths = (steps**2).sum(axis=1)  # [places]
    changes = steps @ series
    best = int(np.argmax(changes**2 / lengths))
    residual = max(0.0, float(((series - series.mean()) ** 2).sum() - changes[best] ** 2 / lengths[best]))
    place_level = 1 - (1 - level) / len(places)
    half = t_quantile(place_level, n - 2) * math.sqrt(residual / (n - 2) * lengths[best])

    noise = LastingNoise.among(n)
    waves, step_waves = noise.cosines @ series, steps @ noise.cosines.T
    precision = 1 / noise.spectra
    # Generalised least squares of a step at each place, for each kind of noise [places, kinds].
    explained = step_waves**2 @ precision.T
    pulled = (step_waves * waves) @ precision.T
    squares = np.maximum(noise.squares(waves**2) - pulled**2 / explained, np.finfo(np.float64).tiny)
    log = noise.log_likelihood(squares, n - 2) - np.log(explained) / 2
    weights = np.log(np.exp(log - log.max()).mean(axis=0) + np.finfo(np.float64).tiny)
    # Products of the step's parts, by how many windows lie between them.
    overlaps = np.correlate(steps[best], steps[best], "full")[n - 1 :] * np.where(np.arange(n), 2.0, 1.0)
    excess = noise.correlations @ overlaps / lengths[best]
    half *= float(mixed(weights, excess * squares[best] / squares[best, 0], place_level))
    change = float(changes[best])
    interval = Interval(math.exp(change), math.exp(change - half), math.exp(change + half), n, level)
    return int(places[best]), interval
