"""The routers' counters of the holdout, from Prometheus: increases by time bin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from specops.effect.estimate import FIGURES, Counters, Figure, Mode, Moments
from specops.effect.sequence import Array
from specops.prometheus.api import MOST_POINTS, Api, Series
from specops.prometheus.promql import selector
from specops.prometheus.series import EFFECT, EFFECT_LEFT_OUT, ROLLOUT, ROUTE_DECISIONS

GROUPS = ("holdout", "speculative")
_Key = tuple[str, str, str]
"""figure, group, class."""


def read_counters(
    api: Api,
    rollout: str,
    labels: Mapping[str, str],
    span: tuple[float, float],
    bin_s: float,
    figures: Sequence[Figure] = FIGURES,
    mode: Mode = "requests",
) -> Counters:
    """Return what the routers of `rollout` counted within `span`, its two ends in seconds since the epoch, by
    bins of `bin_s` whole seconds, which end at multiples of it, as blocks of random windows do.

    Raises EndpointError where Prometheus does not answer.
    """
    first, last = math.ceil(span[0] / bin_s) * bin_s, math.floor(span[1] / bin_s) * bin_s
    which = selector({ROLLOUT: rollout, **labels})[1:-1]
    names = f'__name__=~"{"|".join(EFFECT.values())}",figure=~"{"|".join(figures)}"'
    times = first + bin_s * np.arange(round((last - first) / bin_s) + 1)
    series = []
    for begin in range(0, times.size, MOST_POINTS):
        chunk = times[begin : begin + MOST_POINTS]
        series += api.range(f"{{{names},{which}}}", chunk[0], chunk[-1], bin_s)
    return counters_of(series, times, bin_s, mode)


def read_left_out(
    api: Api, rollout: str, labels: Mapping[str, str], span: tuple[float, float], mode: Mode = "requests"
) -> dict[str, int]:
    """Return the requests within `span` that are in no mean, by the router's reason: those that one pool
    alone may have had, and those of a group that have no time. Raises EndpointError."""
    in_means = f"{GROUPS[0]}|in-flight" if mode == "windows" else GROUPS[0]
    which = selector({ROLLOUT: rollout, **labels})[1:-1]
    window = f"{round(span[1] - span[0])}s"
    outside = f'{ROUTE_DECISIONS}{{pool="standard",reason!~"{in_means}",{which}}}[{window}]'
    untimed = f"{EFFECT_LEFT_OUT}{{{which}}}[{window}]"
    sums = " or ".join(f"sum by (reason) (increase({series}))" for series in (outside, untimed))
    samples = api.instant(sums, span[1])
    counts = {sample.labels.get("reason", ""): round(sample.value) for sample in samples}
    return {reason: count for reason, count in counts.items() if count > 0}


def counters_of(series: Iterable[Series], times: Array, bin_s: float, mode: Mode = "requests") -> Counters:
    """Counters by bin, from the samples of the routers' series at `times`.

    A router's bin is left out where it has no samples at the begin or at the end, or a counter went down:
    the router started within it. A series that appears while its router is there began at 0.
    """
    by_router: dict[str, dict[tuple[str, _Key], Array]] = {}
    for one_series in series:
        label = one_series.labels
        key = (label["figure"], label["group"], label["class"])
        rows = by_router.setdefault(label.get("instance", ""), {})
        values = np.full(times.size, np.nan)
        for ts, value in one_series.points:
            values[round((ts - times[0]) / bin_s)] = value
        same = rows.get((label["__name__"], key))  # as from a second replica of Prometheus
        rows[label["__name__"], key] = values if same is None else np.fmax(same, values)
    increases: dict[tuple[str, _Key], Array] = {}
    for rows in by_router.values():
        for row, increase in _increases(rows, times.size).items():
            increases[row] = increases.get(row, 0.0) + increase
    return replace(_arranged(increases, times, bin_s), mode=mode)


def _increases(rows: Mapping[tuple[str, _Key], Array], size: int) -> dict[tuple[str, _Key], Array]:
    is_present = np.zeros(size, dtype=bool)
    for values in rows.values():
        is_present |= np.isfinite(values)
    usable = is_present[1:] & is_present[:-1]
    steps = {row: np.diff(np.nan_to_num(values)) for row, values in rows.items()}
    for step in steps.values():
        usable &= step >= 0
    return {row: np.where(usable, step, 0.0) for row, step in steps.items()}


def _arranged(increases: Mapping[tuple[str, _Key], Array], times: Array, bin_s: float) -> Counters:
    classes = tuple(sorted({traffic_class for _, (_, _, traffic_class) in increases}))
    nothing = np.zeros(max(times.size - 1, 0))

    def moments(figure: Figure) -> Moments:
        arrays: Sequence[Array] = [
            np.stack(
                [
                    np.stack(
                        [increases.get((name, (figure, group, name_of_class)), nothing) for group in GROUPS],
                        -1,
                    )
                    for name_of_class in classes
                ],
                axis=1,
            )
            if classes
            else np.zeros((nothing.size, 0, 2))
            for name in EFFECT.values()
        ]
        return Moments(*arrays)

    return Counters(
        ends=times[1:],
        bin_s=bin_s,
        classes=classes,
        figures={figure: moments(figure) for figure in FIGURES},
    )
