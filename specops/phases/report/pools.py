"""Pools, traffic classes and GPUs over the window: traffic, latencies, load, memory, acceptance. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specops.phases.report.events import gaps, servers
from specops.phases.report.prometheus_data import Floats, Gauge, Increases, PoolData, PrometheusData
from specops.phases.report.report import (
    HOUR_S,
    ClassTraffic,
    EngineLatency,
    Extreme,
    GpuUse,
    Hours,
    KvUsage,
    LatencyFigures,
    PoolAcceptance,
    PoolReport,
    Quantile,
    ReportWindow,
)
from specops.prometheus.promql import LATENCIES, Latency
from specops.prometheus.series import ROUTE_DURATION, ROUTE_FIRST_BYTE, ROUTE_REQUESTS
from specops.render.prometheus.alerts import MIN_DRAFTED


@dataclass(frozen=True)
class SumRatio:
    value: float
    error: float | None
    """Standard error with hours as what was sampled: those next to each other are alike, so it is rather too
    small."""

    n: int
    """Hours."""


def ratio(parts: Floats, wholes: Floats) -> SumRatio | None:
    """Sum over sum, of the hours that have both and a whole above 0; never a mean of hourly ratios."""
    counted = ~np.isnan(parts) & ~np.isnan(wholes) & (wholes > 0)
    part, whole = parts[counted], wholes[counted]
    n = int(counted.sum())
    if n == 0:
        return None
    value = math.fsum(part) / math.fsum(whole)
    if n == 1:
        return SumRatio(value, None, n)
    missed = math.fsum((part - value * whole) ** 2)
    return SumRatio(value, math.sqrt(missed * n / (n - 1)) / math.fsum(whole), n)


def divided(parts: Floats, wholes: Floats) -> Floats:
    """Return `parts` / `wholes` for each hour; NaN where `wholes` is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(wholes > 0, parts / wholes, np.nan)


def extremes(
    window: ReportWindow, values: Floats, counted: NDArray[np.bool_]
) -> tuple[Extreme | None, Extreme | None]:
    """The lowest and the highest of the hours that are `counted`, the first of equals."""
    which = np.flatnonzero(counted & ~np.isnan(values))
    if which.size == 0:
        return None, None
    low, high = (int(which[position]) for position in (values[which].argmin(), values[which].argmax()))
    return extreme(window, values, low), extreme(window, values, high)


def extreme(window: ReportWindow, values: Floats, hour: int) -> Extreme:
    return Extreme(value=float(values[hour]), at=window.iso(window.start + hour * 3600))


def hours(values: Floats) -> Hours:
    return [None if np.isnan(value) else float(value) for value in values]


def pool(observed: PoolData, window: ReportWindow) -> PoolReport | None:
    """The pool's figures over the window; None if Prometheus has no data of it."""
    now = slice(window.hours, None)
    running = tuple(part for part in (during(gauge, window) for gauge in observed.running) if part.times.size)
    finished = increases(observed, observed.names.finished, now)
    if not running and finished.total is None:
        return None
    kv, usage = kv_usage(observed.kv_usage, window)
    preempted = observed.names.preemptions
    return PoolReport(
        servers=servers(running),
        gaps=gaps(window, running),
        requests=finished.total,
        generated_tokens=increases(observed, observed.names.generated, now).total,
        preemptions=increases(observed, preempted, now).total if preempted else None,
        latencies={latency: _latency(observed, latency, now) for latency in LATENCIES},
        requests_by_hour=hours(finished.hourly),
        load_by_hour=hours(load(observed, window, now)),
        kv_usage=usage,
        kv_by_hour=hours(kv),
        acceptance=acceptance(observed, window, now),
    )


def during(gauge: Gauge, window: ReportWindow) -> Gauge:
    inside = (gauge.times > window.start) & (gauge.times <= window.end)
    return Gauge(gauge.labels, gauge.times[inside], gauge.values[inside])


def increases(observed: PoolData, name: str, which: slice) -> Increases:
    return observed.counters[name].during(which)


def acceptance(observed: PoolData, window: ReportWindow, which: slice) -> PoolAcceptance | None:
    drafting = observed.drafting.during(which)
    drafts, drafted, accepted = drafting.drafts, drafting.drafted, drafting.accepted
    if drafted.total is None:
        return None
    rate = ratio(accepted.hourly, drafted.hourly)
    by_hour = divided(accepted.hourly, drafted.hourly)
    enough = drafted.hourly >= MIN_DRAFTED
    lowest, highest = extremes(window, by_hour, enough)
    length = ratio(accepted.hourly, drafts.hourly)
    reached = _by_position(drafting.by_position)
    shares = [ratio(counts, drafts.hourly) for counts in reached]
    by_position = [extremes(window, divided(counts, drafts.hourly), enough) for counts in reached]
    return PoolAcceptance(
        drafts=drafts.total,
        drafted_tokens=drafted.total,
        accepted_tokens=accepted.total,
        rate=rate.value if rate else None,
        error=rate.error if rate else None,
        length=1 + length.value if length else None,
        per_position=[share.value if share else None for share in shares],
        lowest_per_position=[ends[0] for ends in by_position],
        highest_per_position=[ends[1] for ends in by_position],
        lowest=lowest,
        highest=highest,
        counted_hours=int(enough.sum()),
        min_drafted=MIN_DRAFTED,
        by_hour=hours(by_hour),
        estimated=drafting.estimated,
    )


def _by_position(counted: Mapping[str, Increases]) -> list[Floats]:
    """Drafts accepted that far, hour for hour, from the first position."""
    positions = {
        int(position): increases.hourly for position, increases in counted.items() if position.isdigit()
    }
    unknown = np.full(len(next(iter(positions.values()), ())), np.nan)
    return [positions.get(position, unknown) for position in range(max(positions, default=-1) + 1)]


def sums(observed: PoolData, latency: Latency, which: slice) -> tuple[Floats, Floats]:
    """Seconds in all, and of how many, hour for hour: requests, or output tokens where the engine has no
    time per token of a request."""
    name: str = getattr(observed.names, latency)
    if latency == "tpot" and observed.names.tpot_of_events:
        seconds = increases(observed, observed.names.tpot_seconds, which).hourly
        first = increases(observed, f"{observed.names.ttft}_count", which).hourly
        return seconds, increases(observed, observed.names.generated, which).hourly - first
    seconds = increases(observed, f"{name}_sum", which).hourly
    return seconds, increases(observed, f"{name}_count", which).hourly


def _latency(observed: PoolData, latency: Latency, which: slice) -> EngineLatency:
    seconds, n = sums(observed, latency, which)
    mean = ratio(seconds, n)
    name: str = getattr(observed.names, latency)
    of_requests = not (latency == "tpot" and observed.names.tpot_of_events)
    counted = counts(observed.buckets[f"{name}_bucket"]) if of_requests else {}
    return EngineLatency(
        n=float(np.nansum(n)),
        mean=mean.value if mean else None,
        p50=quantile(counted, 0.5),
        p95=quantile(counted, 0.95),
        by_hour=hours(divided(seconds, n)),
    )


def load(observed: PoolData, window: ReportWindow, which: slice) -> Floats:
    """Σn²/Σn over the scrapes of an hour, n requests running or waiting at a server: each instant counts by
    the requests that meet it. Where no scrape caught any though some ended, by Little's law; at least 1."""
    squares, firsts, observed_in = (np.zeros(window.hours) for _ in range(3))
    waiting = {_own(gauge.labels): gauge for gauge in observed.waiting}
    for whole in observed.running:
        gauge = during(whole, window)
        n = gauge.values + _values_at(waiting.get(_own(gauge.labels)), gauge.times)
        hour = gauge.hour_of(window)
        squares += np.bincount(hour, n**2, window.hours)
        firsts += np.bincount(hour, n, window.hours)
        observed_in[np.unique(hour)] += 1
    seconds, answered = sums(observed, "e2e", which)
    littles = np.where(answered > 0, seconds / HOUR_S / np.maximum(observed_in, 1), np.nan)
    load_by_hour = np.where(firsts > 0, divided(squares, firsts), littles)
    return np.where(np.isnan(load_by_hour), np.nan, np.maximum(load_by_hour, 1.0))


def _own(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in labels.items() if name != "__name__")


def _values_at(gauge: Gauge | None, times: Floats) -> Floats:
    """Return its values at `times`, 0 where it was not scraped then."""
    if gauge is None or gauge.times.size == 0:
        return np.zeros(times.size)
    place = np.minimum(np.searchsorted(gauge.times, times), gauge.times.size - 1)
    return np.where(gauge.times[place] == times, gauge.values[place], 0.0)


def kv_usage(gauges: Sequence[Gauge], window: ReportWindow) -> tuple[Floats, KvUsage | None]:
    """Return the KV cache usage: by hour the most that any server had; the mean is over all samples."""
    most = np.full(window.hours, -np.inf)
    for gauge in gauges:
        np.maximum.at(most, gauge.hour_of(window), gauge.values)
    most[np.isinf(most)] = np.nan
    samples = [gauge.values for gauge in gauges if gauge.values.size]
    if not samples:
        return most, None
    mean = float(np.concatenate(samples).mean())
    return most, KvUsage(mean=mean, highest=extreme(window, most, int(np.nanargmax(most))))


def counts(buckets: Increases) -> dict[float, float]:
    """Return by upper bound how many observations were at most that, over the window, all series together."""
    by_bound = {}
    for bound, series in buckets.by("le").items():
        total = series.total
        if total is not None:
            by_bound[float(bound)] = total
    return by_bound


def quantile(counted: Mapping[float, float], q: float) -> Quantile | None:
    """The bounds of the bucket that the `q`-th of all values lies in; None without values."""
    bounds = sorted(counted)
    total = counted[bounds[-1]] if bounds else 0.0
    if not total > 0:
        return None
    index = next(number for number, bound in enumerate(bounds) if counted[bound] >= q * total)
    upper = bounds[index]
    return Quantile(above=bounds[index - 1] if index else 0.0, to=None if math.isinf(upper) else upper)


def gpus(observed: PrometheusData) -> list[GpuUse]:
    """Return the GPUs by name; only those of which both used and free memory are known."""
    free = {_gpu(gauge): gauge for gauge in observed.gpu_free}
    devices = []
    for used in observed.gpu_used:
        left = free.get(_gpu(used))
        if left is None or not used.times.size or not left.times.size:
            continue
        whole = float(used.values.mean() + left.values.mean())
        devices.append(
            GpuUse(
                name=_gpu(used),
                mean_used_gib=float(used.values.mean()) / 1024,
                most_used_gib=float(used.values.max()) / 1024,
                most_share=float(used.values.max()) / whole if whole else 0.0,
            )
        )
    return sorted(devices, key=lambda gpu: gpu.name)


def _gpu(gauge: Gauge) -> str:
    where = gauge.labels.get("Hostname") or gauge.labels.get("instance", "")
    return f"{where} GPU {gauge.labels.get('gpu', '?')}"


def classes(router: Mapping[str, Increases]) -> list[ClassTraffic]:
    """Latencies are of what the pool answered, requests and failures of what was sent to it."""
    traffic = []
    for name, of_class in router[ROUTE_REQUESTS].by("class").items():
        for pool, sent in of_class.by("pool").items():
            total = sent.total
            if not total or pool == "none":
                continue
            duration, first = (
                _router_latency(router, histogram, name, pool)
                for histogram in (ROUTE_DURATION, ROUTE_FIRST_BYTE)
            )
            failed = sent.only(status="5xx").total or 0.0
            traffic.append(
                ClassTraffic(
                    name=name, pool=pool, requests=total, failed=failed, duration=duration, first_byte=first
                )
            )
    return traffic


def _router_latency(router: Mapping[str, Increases], histogram: str, name: str, pool: str) -> LatencyFigures:
    seconds, n, counted = (
        router[f"{histogram}_{part}"].only(**{"class": name, "pool": pool})
        for part in ("sum", "count", "bucket")
    )
    mean = ratio(seconds.hourly, n.hourly)
    by_bound = counts(counted)
    return LatencyFigures(
        n=n.total or 0.0,
        mean=mean.value if mean else None,
        p50=quantile(by_bound, 0.5),
        p95=quantile(by_bound, 0.95),
    )
