"""Quantiles from a histogram's buckets, which know no more than between which bounds a value lies. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from specops.phases.report.grown import Grown
from specops.phases.report.report import Quantile


def counts(grown: Grown) -> dict[float, float]:
    """By upper bound: how many were at most that, over the window, all series together."""
    found = {}
    for bound, series in grown.by("le").items():
        total = series.total
        if total is not None:
            found[float(bound)] = total
    return found


def quantile(counted: Mapping[float, float], q: float) -> Quantile | None:
    """The bounds of the bucket that the `q`-th of all values lies in; None where there are none."""
    bounds = sorted(counted)
    total = counted[bounds[-1]] if bounds else 0.0
    if not total > 0:
        return None
    at = next(number for number, bound in enumerate(bounds) if counted[bound] >= q * total)
    upper = bounds[at]
    return Quantile(above=bounds[at - 1] if at else 0.0, to=None if math.isinf(upper) else upper)
