"""When nothing was scraped: of a server that was there before and after, or of a whole pool. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from specops.phases.report.grown import Floats
from specops.phases.report.ratios import iso
from specops.phases.report.report import Gap
from specops.phases.report.seen import Gauge
from specops.phases.report.window import Window

LONGER = 2.5
"""Times the usual interval between samples: one scrape that fails is no gap, two in a row are."""

Span = tuple[float, float]


def gaps(window: Window, gauges: Sequence[Gauge]) -> list[Gap]:
    """The pool's, in order; then of each server those that are not within one of them.

    The pool's reach to the window's ends; a server's lie between its own first and last sample, since it may
    have been added or taken away.
    """
    times = {name: np.concatenate(parts) for name, parts in _by_server(gauges).items()}
    usual = interval(gauges)
    if usual is None:
        return [_gap(window, (window.start, window.end), None)]
    edges = (window.start, *_within(window, np.concatenate(list(times.values()))), window.end)
    whole = list(_between(edges, usual))
    found = [_gap(window, span, None) for span in whole]
    for name in sorted(times):
        for span in _between(_within(window, times[name]), usual):
            if not any(begin <= span[0] and span[1] <= end for begin, end in whole):
                found.append(_gap(window, span, name))
    return found


def servers(gauges: Iterable[Gauge]) -> int:
    return len(_by_server(gauges))


def interval(gauges: Iterable[Gauge]) -> float | None:
    """Seconds between samples of one series: the median."""
    apart = [np.diff(gauge.at) for gauge in gauges if gauge.at.size > 1]
    return float(np.median(np.concatenate(apart))) if apart else None


def _by_server(gauges: Iterable[Gauge]) -> dict[str, list[Floats]]:
    found: dict[str, list[Floats]] = {}
    for gauge in gauges:
        found.setdefault(gauge.labels.get("instance", ""), []).append(gauge.at)
    return found


def _within(window: Window, times: Floats) -> list[float]:
    """Sorted, each once."""
    return [float(at) for at in np.unique(times[(times > window.start) & (times <= window.end)])]


def _between(times: Sequence[float], usual: float) -> Iterator[Span]:
    return (pair for pair in pairwise(times) if pair[1] - pair[0] > LONGER * usual)


def _gap(window: Window, span: Span, server: str | None) -> Gap:
    begin, end = span
    return Gap(start=iso(window, begin), end=iso(window, end), seconds=end - begin, server=server)
