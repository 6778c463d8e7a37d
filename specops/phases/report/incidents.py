"""Incidents: each time that an alert fired, once, with how long. Pure.

Prometheus keeps a sample of ALERTS at every evaluation while an alert fires. Samples next to each other are
one incident. Where they have a hole, it is two if anything of the rollout was scraped in the hole, for then
Prometheus was there and the alert was not; if nothing was, it is one that nobody could see for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from specops.phases.report.gaps import LONGER, interval
from specops.phases.report.grown import Floats
from specops.phases.report.ratios import iso
from specops.phases.report.report import Incident
from specops.phases.report.seen import Gauge
from specops.phases.report.window import Window

_NOT_OURS = ("__name__", "alertname", "alertstate", "severity")
DEFAULT_S = 60.0
"""Between two evaluations, where nothing shows it."""
LOOKBACK_S = 300.0
"""Prometheus': what it evaluates more seldom is gone in between. An alert whose samples are further apart has
fired for an instant each time."""


def incidents(window: Window, firing: Sequence[Gauge], up: Sequence[Gauge]) -> list[Incident]:
    """Those that fired within the window, as they began. `firing` and `up` reach back beyond its start, so
    that one that began before is known as such."""
    alive = np.unique(np.concatenate([gauge.at for gauge in up])) if up else np.empty(0)
    found = []
    for gauge in firing:
        usual = _between_evaluations(gauge, firing, up)
        for begin, end in _runs(gauge.at, alive, usual):
            if end > window.start and begin <= window.end:
                found.append(_incident(window, gauge.labels, begin, end, usual, alive))
    return sorted(found, key=lambda one: (one.start, one.alert))


def _between_evaluations(gauge: Gauge, firing: Sequence[Gauge], up: Sequence[Gauge]) -> float:
    """By the alert's own samples; else by those of the others, as far as they can tell."""
    own = interval([gauge])
    if own is not None and own <= LOOKBACK_S:
        return own
    others = [apart for apart in (interval([other]) for other in firing) if apart is not None]
    return min(*others, LOOKBACK_S) if others else interval(up) or DEFAULT_S


def _runs(times: Floats, alive: Floats, usual: float) -> Iterator[tuple[float, float]]:
    begin = previous = float(times[0])
    for at in map(float, times[1:]):
        if at - previous > LONGER * usual and _any_between(alive, previous + usual, at - usual):
            yield begin, previous
            begin = at
        previous = at
    yield begin, previous


def _any_between(times: Floats, low: float, high: float) -> bool:
    return bool(np.searchsorted(times, high, "right") > np.searchsorted(times, low, "right"))


def _incident(
    window: Window, labels: Mapping[str, str], begin: float, end: float, usual: float, alive: Floats
) -> Incident:
    # Open, unless something was scraped after it and it was not there any more.
    open_ = end >= window.end - LONGER * usual or not _any_between(alive, end + usual, window.end)
    until = float(window.end) if open_ else end
    return Incident(
        alert=labels.get("alertname", ""),
        severity=labels.get("severity"),
        labels={name: value for name, value in sorted(labels.items()) if name not in _NOT_OURS},
        start=iso(window, begin),
        end=None if open_ else iso(window, end),
        seconds=until - begin,
        began_before=begin <= window.start,
    )
