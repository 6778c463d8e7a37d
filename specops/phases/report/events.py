"""Events of the window: gaps in the scrapes, alerts that fired, fallbacks of the guard. Pure.

Prometheus stores a sample of ALERTS at each evaluation while an alert fires. Adjacent samples are one
incident. A hole between samples splits it only if targets of the rollout were scraped during the hole: then
Prometheus ran, and the alert did not fire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from specops.guard.journal import Entry
from specops.guard.state import FULL
from specops.phases.report.prometheus_data import Floats, Gauge
from specops.phases.report.report import AlertIncident, FallbackPeriod, Gap, ReportWindow

LONGER = 2.5
"""A factor for the usual interval between samples: one failed scrape is not a gap, two in a row are."""

Span = tuple[float, float]


def gaps(window: ReportWindow, gauges: Sequence[Gauge]) -> list[Gap]:
    """The gaps of the pool in order, then those of each server that are not inside a gap of the pool.

    The pool's reach to the window's ends; a server's lie between its own first and last sample, since it may
    have been added or taken away.
    """
    times = {name: np.concatenate(parts) for name, parts in _by_server(gauges).items()}
    usual = interval(gauges)
    if usual is None:
        return [_gap(window, (window.start, window.end), None)]
    edges = (window.start, *_within(window, np.concatenate(list(times.values()))), window.end)
    whole = list(_between(edges, usual))
    all_gaps = [_gap(window, span, None) for span in whole]
    for name in sorted(times):
        for span in _between(_within(window, times[name]), usual):
            if not any(begin <= span[0] and span[1] <= end for begin, end in whole):
                all_gaps.append(_gap(window, span, name))
    return all_gaps


def servers(gauges: Iterable[Gauge]) -> int:
    return len(_by_server(gauges))


def interval(gauges: Iterable[Gauge]) -> float | None:
    """Seconds between samples of one series: the median."""
    differences = [np.diff(gauge.times) for gauge in gauges if gauge.times.size > 1]
    return float(np.median(np.concatenate(differences))) if differences else None


def _by_server(gauges: Iterable[Gauge]) -> dict[str, list[Floats]]:
    by_server: dict[str, list[Floats]] = {}
    for gauge in gauges:
        by_server.setdefault(gauge.labels.get("instance", ""), []).append(gauge.times)
    return by_server


def _within(window: ReportWindow, times: Floats) -> list[float]:
    """Sorted, each once."""
    return [float(time_s) for time_s in np.unique(times[(times > window.start) & (times <= window.end)])]


def _between(times: Sequence[float], usual: float) -> Iterator[Span]:
    return (pair for pair in pairwise(times) if pair[1] - pair[0] > LONGER * usual)


def _gap(window: ReportWindow, span: Span, server: str | None) -> Gap:
    begin, end = span
    return Gap(start=window.iso(begin), end=window.iso(end), seconds=end - begin, server=server)


_NOT_OURS = ("__name__", "alertname", "alertstate", "severity")
DEFAULT_S = 60.0
"""Seconds between two evaluations, where nothing shows it."""
LOOKBACK_S = 300.0
"""Prometheus': what it evaluates more seldom is gone in between. An alert whose samples are further apart has
fired for an instant each time."""


def incidents(window: ReportWindow, firing: Sequence[Gauge], up: Sequence[Gauge]) -> list[AlertIncident]:
    """Return the alerts that fired within the window, as they began. `firing` and `up` reach back beyond its
    start, so that one that began before is known as such."""
    alive = np.unique(np.concatenate([gauge.times for gauge in up])) if up else np.empty(0)
    fired = []
    for gauge in firing:
        usual = _between_evaluations(gauge, firing, up)
        for begin, end in _runs(gauge.times, alive, usual):
            if end > window.start and begin <= window.end:
                fired.append(_incident(window, gauge.labels, begin, end, usual, alive))
    return sorted(fired, key=lambda incident: (incident.start, incident.alert))


def _between_evaluations(gauge: Gauge, firing: Sequence[Gauge], up: Sequence[Gauge]) -> float:
    """Return the time between evaluations, by the alert's own samples; else by those of the other alerts."""
    own = interval([gauge])
    if own is not None and own <= LOOKBACK_S:
        return own
    intervals = [seconds for seconds in (interval([alert]) for alert in firing) if seconds is not None]
    return min(*intervals, LOOKBACK_S) if intervals else interval(up) or DEFAULT_S


def _runs(times: Floats, alive: Floats, usual: float) -> Iterator[tuple[float, float]]:
    begin = previous = float(times[0])
    for time_s in map(float, times[1:]):
        if time_s - previous > LONGER * usual and _any_between(alive, previous + usual, time_s - usual):
            yield begin, previous
            begin = time_s
        previous = time_s
    yield begin, previous


def _any_between(times: Floats, low: float, high: float) -> bool:
    return bool(np.searchsorted(times, high, "right") > np.searchsorted(times, low, "right"))


def _incident(
    window: ReportWindow, labels: Mapping[str, str], begin: float, end: float, usual: float, alive: Floats
) -> AlertIncident:
    # Open, unless something was scraped after it and it was not there any more.
    open_ = end >= window.end - LONGER * usual or not _any_between(alive, end + usual, window.end)
    until = float(window.end) if open_ else end
    return AlertIncident(
        alert=labels.get("alertname", ""),
        severity=labels.get("severity"),
        labels={name: value for name, value in sorted(labels.items()) if name not in _NOT_OURS},
        start=window.iso(begin),
        end=None if open_ else window.iso(end),
        seconds=until - begin,
        began_before=begin <= window.start,
    )


GUARD = "the guard"


@dataclass
class _Standing:
    """A fallback that is being read."""

    began: float
    by: str
    why: str
    percent: int
    ended: float | None = None
    full: float | None = None


def fallbacks(window: ReportWindow, entries: Iterable[Entry]) -> list[FallbackPeriod]:
    """Return the fallbacks that began within the window, and one that held when it began. While one is not
    over, falling further is the same one; falling during an attempt to re-enable is another."""
    standing: list[_Standing] = []
    for entry in _first_lines(entries):
        if entry.ts > window.end:
            break
        _read(entry, standing)
    return [_record(window, fallback) for fallback in standing if _overlaps(window, fallback)]


def _first_lines(entries: Iterable[Entry]) -> Iterable[Entry]:
    """A decision's first line: what it came to has the same id, and a journal begins with old ones."""
    observed: set[int] = set()
    for entry in entries:
        if entry.id not in observed:
            observed.add(entry.id)
            yield entry


def _read(entry: Entry, standing: list[_Standing]) -> None:
    last = standing[-1] if standing else None
    percent = entry.state.target_percent
    if last is not None and last.full is None and percent > last.percent:
        last.ended = last.ended or entry.ts
        if percent == FULL:
            last.full = entry.ts
    pinned = entry.state.override
    by_person = "override" in entry.evidence.events and pinned is not None and pinned.pool == "standard"
    if by_person or "fell_back" in entry.evidence.events:
        holds = last is not None and last.ended is None
        if by_person and holds:
            return  # nothing changes: it was off already
        by = pinned.by if by_person and pinned is not None else GUARD
        standing.append(_Standing(entry.ts, by, entry.evidence.why, percent))
    elif last is not None and last.ended is None and percent < last.percent:
        last.percent = percent


def _overlaps(window: ReportWindow, fallback: _Standing) -> bool:
    return window.start < fallback.began <= window.end or (
        fallback.began <= window.start and (fallback.ended or window.end) > window.start
    )


def _record(window: ReportWindow, fallback: _Standing) -> FallbackPeriod:
    return FallbackPeriod(
        at=window.iso(fallback.began),
        by=fallback.by,
        why=fallback.why,
        percent=fallback.percent,
        ended=None if fallback.ended is None else window.iso(fallback.ended),
        seconds=(window.end if fallback.ended is None else fallback.ended) - fallback.began,
        full=None if fallback.full is None else window.iso(fallback.full),
    )
