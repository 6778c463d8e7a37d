"""What the baseline takes at a load that it was not measured at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


def at_load(load: Floats | float, points: Iterable[tuple[int, float | None]]) -> Floats:
    """Return a figure of the baseline at each load, in streams, from its values at the measured loads:
    interpolated between them, NaN beyond them."""
    measured = sorted((streams, value) for streams, value in points if value is not None)
    if not measured:
        return np.full(np.shape(load), np.nan)
    streams, values = zip(*measured, strict=True)
    return np.asarray(np.interp(load, streams, values, left=np.nan, right=np.nan), dtype=np.float64)


def e2e(ttft: Floats, token: Floats, tokens: Floats | float) -> Floats:
    """Return the time of answers with so many tokens on average; `token` is that of one after the first."""
    return np.asarray(ttft + token * np.maximum(np.subtract(tokens, 1), 0), dtype=np.float64)
