"""All queries to Prometheus: the data of a rollout over a window and the window before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specops.config import Rollout
from specops.phases.report import counter_increase
from specops.phases.report.counter_increase import Floats, Increases
from specops.phases.report.report import HOUR_S, Window
from specops.progress import Progress
from specops.prometheus import api as prometheus
from specops.prometheus.api import Api
from specops.prometheus.promql import LATENCIES, selector
from specops.prometheus.series import (
    GPU_FREE,
    GPU_USED,
    POOL,
    POOLS,
    ROLLOUT,
    ROUTE_DURATION,
    ROUTE_FAILOVERS,
    ROUTE_FIRST_BYTE,
    ROUTE_REQUESTS,
    PoolName,
    exposed,
)
from specops.serving import Drafts, Series

DAY_S = 24 * HOUR_S


@dataclass(frozen=True)
class Gauge:
    """One series, as it was scraped."""

    labels: Mapping[str, str]
    at: Floats
    """Seconds since the epoch."""

    values: Floats

    def hour_of(self, window: Window) -> NDArray[np.intp]:
        """Of every sample, which hour of `window` it lies in: (begin, end]."""
        return (np.ceil((self.at - window.start) / HOUR_S) - 1).astype(np.intp)


@dataclass(frozen=True)
class PoolData:
    names: Series
    counters: Mapping[str, Increases]
    """Over the window before and this one."""

    buckets: Mapping[str, Increases]
    """Of this window alone."""

    running: tuple[Gauge, ...]
    """Of both windows, as `waiting`."""

    waiting: tuple[Gauge, ...]
    kv_usage: tuple[Gauge, ...]
    """Of this window alone."""


@dataclass(frozen=True)
class PrometheusData:
    prometheus: str
    """Its URL."""

    window: Window
    pools: Mapping[PoolName, PoolData]
    router: Mapping[str, Increases]
    """Of this window alone."""

    up: tuple[Gauge, ...]
    """Of every target of the rollout, over both windows, as `firing`."""

    firing: tuple[Gauge, ...]
    gpu_used: tuple[Gauge, ...]
    gpu_free: tuple[Gauge, ...]
    scraped_from: float | None = None
    """Set if the window has no data: the time of the first scrape of a pool's server after the window."""


def query(rollout: Rollout, window: Window, api: Api, progress: Progress) -> PrometheusData:
    """Query all data. Raises EndpointError if Prometheus does not answer."""
    labels = {ROLLOUT: rollout.rollout} | rollout.monitor.labels
    progress.start("querying Prometheus", len(POOLS) + 2)
    pools = {}
    for pool in POOLS:
        pools[pool] = _pool(exposed(rollout, pool), labels | {POOL: pool}, window, api)
        progress.advance()
    routed = [ROUTE_REQUESTS, ROUTE_FAILOVERS]
    for name in (ROUTE_DURATION, ROUTE_FIRST_BYTE):
        routed += [f"{name}_{part}" for part in ("sum", "count", "bucket")]
    router = counter_increase.read(api, routed, labels, window.start, window.hours)
    progress.advance()
    long = Window(window.previous.start, window.end, window.zone)
    firing = {"alertstate": "firing"} | labels
    observed = PrometheusData(
        api.url,
        window,
        pools,
        router,
        up=_gauges(api, f"up{selector(labels)}", long),
        firing=_gauges(api, f"ALERTS{selector(firing)}", long),
        gpu_used=_gauges(api, f"{GPU_USED}{selector(labels)}", window),
        gpu_free=_gauges(api, f"{GPU_FREE}{selector(labels)}", window),
    )
    if not any(pool.running for pool in observed.pools.values()):
        observed = replace(observed, scraped_from=_scraped_from(api, labels, window))
    progress.advance()
    return observed


def _scraped_from(api: Api, labels: Mapping[str, str], window: Window) -> float | None:
    """The first scrape of a pool's server after the window, and within a day of now."""
    clock = api.instant("time()")
    now = clock[0].value if clock else float(window.end)
    begin = max(float(window.end), now - DAY_S)
    if now <= begin:
        return None
    of_pools = f'up{selector(labels)[:-1]},{POOL}!=""}}'
    return min((point[0] for one in api.raw(of_pools, begin, now) for point in one.points), default=None)


def _pool(names: Series, labels: Mapping[str, str], window: Window, api: Api) -> PoolData:
    before = window.previous
    counters = counter_increase.read(
        api, counters_of(names), labels, before.start, before.hours + window.hours
    )
    histograms = [f"{getattr(names, latency)}_bucket" for latency in LATENCIES]
    buckets = counter_increase.read(api, histograms, labels, window.start, window.hours)
    which = selector(labels)
    long = Window(before.start, window.end, window.zone)
    return PoolData(
        names,
        counters,
        buckets,
        running=_gauges(api, names.running + which, long),
        waiting=_gauges(api, names.waiting + which, long),
        kv_usage=_gauges(api, names.kv_usage + which, window) if names.kv_usage else (),
    )


def counters_of(names: Series) -> list[str]:
    found = [names.generated, names.finished, names.tpot_seconds]
    found += [names.preemptions] if names.preemptions else []
    found += [f"{getattr(names, latency)}_{part}" for latency in LATENCIES for part in ("sum", "count")]
    counted = names.acceptance
    if isinstance(counted, Drafts):
        found += [counted.drafts, counted.draft_tokens, counted.accepted_tokens, counted.per_position]
    else:
        found.append(counted.verifications)
    return found


def _gauges(api: Api, which: str, window: Window) -> tuple[Gauge, ...]:
    """A day at a time: an answer stays of a size that a proxy lets through."""
    parts: dict[counter_increase.Key, list[prometheus.Series]] = {}
    for begin in range(window.start, window.end, DAY_S):
        for one in api.raw(which, begin, min(begin + DAY_S, window.end)):
            if one.points:
                parts.setdefault(frozenset(one.labels.items()), []).append(one)
    return tuple(_joined(found) for found in parts.values())


def _joined(parts: list[prometheus.Series]) -> Gauge:
    points = np.concatenate([np.array(one.points) for one in parts])
    points = points[~np.isnan(points[:, 1])]
    return Gauge(parts[0].labels, points[:, 0], points[:, 1])
