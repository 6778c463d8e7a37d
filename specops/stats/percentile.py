"""Percentiles, only where there are samples enough for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

PERCENTILE_METHOD: Final = "linear"
"""Linear interpolation between closest ranks (Hyndman and Fan's type 7, numpy's default)."""


def needed(q: float) -> int:
    """Samples that the quantile `q` (0 < q < 1) takes: ceil(1 / min(q, 1 - q)).

    With fewer, less than one sample is expected beyond the quantile, and an interpolated value is little
    more than the largest (or smallest) sample: 2 for the median, 20 for p95, 100 for p99.
    """
    if not 0 < q < 1:
        raise ValueError(f"a quantile lies between 0 and 1, not at {q}")
    return math.ceil(round(1 / min(q, 1 - q), 9))  # rounded: 1 - 0.9 is a little less than 0.1


def percentile(samples: Sequence[float], q: float) -> float | None:
    """The quantile `q` of `samples` by `PERCENTILE_METHOD`; None where there are fewer than `needed(q)`."""
    if len(samples) < needed(q):
        return None
    return float(np.quantile(np.asarray(samples, dtype=np.float64), q, method=PERCENTILE_METHOD))


def shortage(count: int, q: float) -> str | None:
    """Why `count` samples give no quantile `q`, or None where they do."""
    if count >= needed(q):
        return None
    return f"p{q * 100:g} needs {needed(q)} samples, there are {count}"
