"""Ratios of sums over hours, their standard error, and the hours that were lowest and highest. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specops.phases.report.grown import Floats
from specops.phases.report.report import Extreme, Hours
from specops.phases.report.window import Window


@dataclass(frozen=True)
class Ratio:
    value: float
    error: float | None
    """With hours as what was sampled: those next to each other are alike, so it is rather too small."""

    n: int
    """Hours."""


def ratio(parts: Floats, wholes: Floats) -> Ratio | None:
    """Sum over sum, of the hours that have both and a whole above 0; never a mean of hourly ratios."""
    both = ~np.isnan(parts) & ~np.isnan(wholes) & (wholes > 0)
    part, whole = parts[both], wholes[both]
    n = int(both.sum())
    if n == 0:
        return None
    value = math.fsum(part) / math.fsum(whole)
    if n == 1:
        return Ratio(value, None, n)
    missed = math.fsum((part - value * whole) ** 2)
    return Ratio(value, math.sqrt(missed * n / (n - 1)) / math.fsum(whole), n)


def divided(parts: Floats, wholes: Floats) -> Floats:
    """Hour for hour; NaN where there is no whole."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(wholes > 0, parts / wholes, np.nan)


def extremes(
    window: Window, values: Floats, counted: NDArray[np.bool_]
) -> tuple[Extreme | None, Extreme | None]:
    """The lowest and the highest of the hours that are `counted`, the first of equals."""
    which = np.flatnonzero(counted & ~np.isnan(values))
    if which.size == 0:
        return None, None
    low, high = (int(which[at]) for at in (values[which].argmin(), values[which].argmax()))
    return extreme(window, values, low), extreme(window, values, high)


def extreme(window: Window, values: Floats, hour: int) -> Extreme:
    return Extreme(value=float(values[hour]), at=iso(window, window.start + hour * 3600))


def iso(window: Window, ts: float) -> str:
    return window.local(ts).isoformat(timespec="seconds")


def hours(values: Floats) -> Hours:
    return [None if np.isnan(value) else float(value) for value in values]
