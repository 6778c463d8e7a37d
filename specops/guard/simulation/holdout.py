"""The holdout's counters of a trace: made up for a synthetic week, cut to what the guard reads at an instant,
and stored as lines of JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from specops.effect.counters import GROUPS
from specops.effect.estimate import FIGURES, Counters, Mode, Moments
from specops.effect.sequence import Array
from specops.effect.simulation import SKEWED, drawn_moments
from specops.effect.watch import lookback_s
from specops.guard.signals.live_effect import SIGNALS, LatencySignal

SUMS = tuple(part.name for part in fields(Moments))


@dataclass(frozen=True)
class SimulatedGroup:
    """The truth behind one group's counters, in arrays of (week, interval)."""

    requests: NDArray[np.int_]
    load: Array
    """Requests for each server of its pool."""

    latency: Callable[[Array], Mapping[LatencySignal, Array]]
    """Mean seconds of each latency at a load."""

    cv: Mapping[LatencySignal, Array]
    """Standard deviation of one request over the mean."""


def drawn_counters(
    groups: Sequence[SimulatedGroup],
    together: float,
    ends: Array,
    interval_s: float,
    rng: np.random.Generator,
) -> Counters:
    """Counters of the holdout and the speculative group, in this order, by interval, of one class. Requests
    of an interval vary as if they were 1 / `together` as many. Arrays are [weeks, intervals, 1, 2]."""
    figures: dict[Any, Moments] = {}
    for figure in SIGNALS:
        columns = []
        for group in groups:
            cv = np.minimum(group.cv[figure], SKEWED)
            mean, further = (group.latency(load)[figure] for load in (group.load, group.load + 0.5))
            slope = np.maximum(further / mean - 1, 0.0) / 0.5  # relative to the mean at this load
            unloaded = np.clip(1 - slope * group.load, 0.05, 1.0)
            shared = cv * np.sqrt((together - 1) / np.maximum(group.requests, 1))
            mean = mean * np.maximum(1 + shared * rng.standard_normal(mean.shape), 0.05)
            columns.append(
                drawn_moments(rng, group.requests, mean * unloaded, cv, group.load, slope / unloaded)
            )
        stacked = (np.stack([getattr(sums, name) for sums in columns], axis=-1) for name in SUMS)
        figures[figure] = Moments(*(sums[..., None, :] for sums in stacked))
    empty = Moments(*[np.zeros_like(figures["tpot"].n)] * len(SUMS))
    every = {figure: figures.get(figure, empty) for figure in FIGURES}
    return Counters(ends=ends, bin_s=interval_s, classes=("default",), figures=every)


def of_week(counters: Counters, week: int) -> Counters:
    """Return one week of many."""
    return _changed(counters, counters.ends[week], lambda sums: sums[week])


def at_instant(counters: Counters, ts: float, since: float | None, share: float) -> Counters:
    """Return what the guard reads at `ts`, had only `share` of the traffic been eligible since the last
    change of the share, at `since`. None: it has not changed."""
    first = ts - lookback_s(counters.bin_s)
    if since is not None:
        first = max(first, since + counters.bin_s)
    rows = slice(*np.searchsorted(counters.ends, (first, ts), side="right"))
    return _changed(counters, counters.ends[rows], lambda sums: sums[rows] * share)


def _changed(counters: Counters, ends: Array, change: Callable[[Array], Array]) -> Counters:
    figures = {
        figure: Moments(*(change(getattr(moments, name)) for name in SUMS))
        for figure, moments in counters.figures.items()
    }
    return replace(counters, ends=ends, figures=figures)


def head(counters: Counters) -> dict[str, Any]:
    """Return what the first line of a trace says of the counters."""
    return {
        "bin_s": counters.bin_s,
        "mode": counters.mode,
        "first_end": float(counters.ends[0]) if counters.ends.size else 0.0,
        "bins": int(counters.ends.size),
        "classes": list(counters.classes),
    }


def lines(counters: Counters) -> Iterator[dict[str, Any]]:
    """A line for each bin and class with requests: by latency and group, the sums of `Moments`."""
    for row, column in np.ndindex(counters.ends.size, len(counters.classes)):
        latencies: dict[str, Any] = {}
        for figure in SIGNALS:
            moments = counters.figures[figure]
            if moments.n[row, column].any():
                latencies[figure] = [
                    [float(getattr(moments, name)[row, column, group]) for name in SUMS]
                    for group in range(len(GROUPS))
                ]
        if latencies:
            yield {"bin": row, "class": counters.classes[column], **latencies}


def parsed(first_line: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Counters:
    """Return the counters of such lines. Raises ValueError, KeyError or TypeError for others."""
    bins, classes, bin_s = (
        int(first_line["bins"]),
        tuple(map(str, first_line["classes"])),
        first_line["bin_s"],
    )
    mode: Mode = first_line["mode"]
    if not (0 <= bins <= 1e6 and 0 < bin_s <= 1e6 and mode in get_args(Mode)):
        raise ValueError(f"invalid counters: {bins} bins of {bin_s:g} s of {mode}")
    shape = (bins, len(classes), len(GROUPS))
    every = {figure: Moments(*(np.zeros(shape) for _ in SUMS)) for figure in FIGURES}
    for row in rows:
        for figure in SIGNALS:
            for group, sums in enumerate(row.get(figure, ())):
                if len(sums) != len(SUMS) or not all(map(math.isfinite, sums)):
                    raise ValueError(f"{len(sums)} sums of {figure}: expected {len(SUMS)} finite numbers")
                for name, total in zip(SUMS, sums, strict=True):
                    place = int(row["bin"]), classes.index(row["class"]), group
                    getattr(every[figure], name)[place] = total
    ends = float(first_line["first_end"]) + bin_s * np.arange(bins)
    return Counters(ends=ends, bin_s=float(bin_s), classes=classes, figures=every, mode=mode)
