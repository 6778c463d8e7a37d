"""All queries to Prometheus: the data of a rollout over a window and the window before it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from specops.config import Rollout
from specops.phases.effect import LiveEffect, has_effect, live_effect
from specops.phases.report.report import HOUR_S, ReportWindow
from specops.progress import Progress
from specops.prometheus import api as prometheus
from specops.prometheus.api import Api
from specops.prometheus.promql import LATENCIES, Signals, selector
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
from specops.serving import Series

# --- exact hourly increases of counters -------------------------------------------------------
# PromQL's increase() extrapolates, so it is not used. The increase between two samples that follow each
# other is their difference; where the second is smaller, the counter was reset, and it is the second; the
# first sample of a series counts nothing. It belongs to the hour in which the second lies, so what happened
# in a gap belongs to the hour that ends it.
#
# In an hour that follows one with samples, and with no reset in the two, that is the difference of the last
# values of both. Only elsewhere are the samples themselves queried.

WITHIN_THE_HOUR = f"{HOUR_S * 1000 - 1}ms"
"""Before Prometheus 3 a range has both its ends, and a sample on the hour would be of two hours."""

POINTS_AT_ONCE = 2000
"""Number of points of one series: Prometheus answers 11,000 at most."""

HOURS_AT_ONCE = 6
"""Number of hours of samples: an answer stays of a size that a proxy lets through."""

Floats = NDArray[np.float64]
Key = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Increases:
    """Hourly increases of one counter: one row for each of its series."""

    labels: tuple[Mapping[str, str], ...]
    rows: Floats
    """[series, hours]; NaN where there is no sample: nothing is known, which is not 0."""

    def only(self, **labels: str) -> Increases:
        """The series that have `labels`."""
        which = [n for n, own in enumerate(self.labels) if labels.items() <= own.items()]
        return Increases(tuple(self.labels[n] for n in which), self.rows[which])

    def by(self, label: str) -> dict[str, Increases]:
        values = sorted({own.get(label, "") for own in self.labels})
        return {value: self.only(**{label: value}) for value in values if value}

    def during(self, hours: slice) -> Increases:
        return Increases(self.labels, self.rows[:, hours])

    @property
    def hourly(self) -> Floats:
        """The increases of all series together, by hour; NaN in an hour of which none has a sample."""
        sampled = ~np.isnan(self.rows)
        return np.where(sampled.any(axis=0), np.where(sampled, self.rows, 0.0).sum(axis=0), np.nan)

    @property
    def total(self) -> float | None:
        """The increase over the window; None where there is no sample at all."""
        return None if np.isnan(self.rows).all() else float(np.nansum(self.rows))


def no_increases(hours: int) -> Increases:
    return Increases((), np.empty((0, hours)))


def read_increases(
    api: Api, names: Sequence[str], labels: Mapping[str, str], start: int, hours: int
) -> dict[str, Increases]:
    """Return the increases of the counters `names` with `labels`, over `hours` from `start`; without samples,
    no rows."""
    which = _any_of(names, labels)
    # The hour before the first says from which value that one starts.
    last = _hourly(api, f"last_over_time({which}[{WITHIN_THE_HOUR}])", start, hours + 1)
    reset = {key: np.zeros(hours, dtype=bool) for key in last}
    # By name, since resets() drops it.
    for name in sorted({value for key in last for label, value in key if label == "__name__"}):
        query = f"resets({name}{selector(labels)}[2h]) > 0"
        for unnamed, row in _hourly(api, query, start + HOUR_S, hours).items():
            key = unnamed | {("__name__", name)}
            if key in reset:
                reset[key] = ~np.isnan(row)
    rows = {key: differences(last[key], reset[key]) for key in last}
    for span in list(_unclear(rows.values())):
        for series in api.raw(which, start + span.start * HOUR_S, start + span.stop * HOUR_S):
            key = _key(series.labels)
            if key in rows:
                _fill(rows[key], series, last[key], span, start)
    for row in rows.values():
        row[np.isinf(row)] = np.nan  # a series whose samples went between two questions
    return {name: _named(name, rows, hours) for name in names}


def differences(last: Floats, reset: NDArray[np.bool_]) -> Floats:
    """The increase in each hour: NaN without a sample, infinite where only the samples can decide.

    `last` has one more: the last value in each hour, from the one before the first; NaN without one.
    `reset` says whether there was a reset in an hour, or from the hour before to it.
    """
    before, after = last[:-1], last[1:]
    difference = after - before
    unclear = ~np.isnan(after) & (np.isnan(before) | reset | (difference < 0))
    return np.where(unclear, np.inf, difference + np.where(np.isnan(after), np.nan, 0.0))


def rises(values: Sequence[float], before: float | None) -> float:
    """The increase over samples that follow each other, and follow `before`, where there was one."""
    total, previous = 0.0, before
    for value in values:
        if previous is not None:
            total += value - previous if value >= previous else value
        previous = value
    return total


def _fill(row: Floats, samples: prometheus.Series, last: Floats, span: range, start: int) -> None:
    """Fill in what was unclear in the hours of `span`, from the samples in them."""
    for hour in span:
        if np.isinf(row[hour]):
            begin = start + hour * HOUR_S
            values = [v for ts, v in samples.points if begin < ts <= begin + HOUR_S and not math.isnan(v)]
            earlier = last[: hour + 1]
            values_before = earlier[~np.isnan(earlier)]
            before = float(values_before[-1]) if values_before.size else None
            row[hour] = rises(values, before) if values else np.nan


def _unclear(rows: Iterable[Floats]) -> Iterator[range]:
    """Hours next to each other in which some series' samples are needed, a few at a time."""
    needed = sorted({int(hour) for row in rows for hour in np.flatnonzero(np.isinf(row))})
    for _, group in groupby(enumerate(needed), lambda pair: pair[1] - pair[0]):
        hours = [hour for _, hour in group]
        for begin in range(0, len(hours), HOURS_AT_ONCE):
            part = hours[begin : begin + HOURS_AT_ONCE]
            yield range(part[0], part[-1] + 1)


def _hourly(api: Api, expr: str, first: int, count: int) -> dict[Key, Floats]:
    """Return its values at `count` hours from `first`, by series; NaN where it has none."""
    rows: dict[Key, Floats] = {}
    for begin in range(0, count, POINTS_AT_ONCE):
        until = min(begin + POINTS_AT_ONCE, count) - 1
        for series in api.range(expr, first + begin * HOUR_S, first + until * HOUR_S, HOUR_S):
            row = rows.setdefault(_key(series.labels), np.full(count, np.nan))
            points = np.array(series.points)
            row[np.rint((points[:, 0] - first) / HOUR_S).astype(int)] = points[:, 1]
    return rows


def _any_of(names: Sequence[str], labels: Mapping[str, str]) -> str:
    """The engines' names have no character that a regular expression would read otherwise."""
    which = f'__name__=~"{"|".join(names)}"'
    return f"{{{which},{selector(labels)[1:]}" if labels else f"{{{which}}}"


def _key(labels: Mapping[str, str]) -> Key:
    return frozenset(labels.items())


def _named(name: str, rows: Mapping[Key, Floats], hours: int) -> Increases:
    own_rows = [(dict(key), row) for key, row in rows.items() if ("__name__", name) in key]
    if not own_rows:
        return no_increases(hours)
    return Increases(tuple(labels for labels, _ in own_rows), np.array([row for _, row in own_rows]))


DAY_S = 24 * HOUR_S


@dataclass(frozen=True)
class Gauge:
    """One series, as it was scraped."""

    labels: Mapping[str, str]
    times: Floats
    """Seconds since the epoch."""

    values: Floats

    def hour_of(self, window: ReportWindow) -> NDArray[np.intp]:
        """Return for every sample the hour of `window` in which it lies: (begin, end]."""
        return (np.ceil((self.times - window.start) / HOUR_S) - 1).astype(np.intp)


@dataclass(frozen=True)
class DraftIncreases:
    """What a pool drafted over the window before and this one."""

    drafts: Increases
    drafted: Increases
    accepted: Increases
    by_position: Mapping[str, Increases]
    """Accepted tokens by position, from "0"."""

    estimated: bool = False
    """Whether they follow from the engine's gauges."""

    def during(self, hours: slice) -> DraftIncreases:
        drafts, drafted, accepted = (
            amount.during(hours) for amount in (self.drafts, self.drafted, self.accepted)
        )
        by_position = {position: amount.during(hours) for position, amount in self.by_position.items()}
        return DraftIncreases(drafts, drafted, accepted, by_position, self.estimated)


@dataclass(frozen=True)
class PoolData:
    names: Series
    counters: Mapping[str, Increases]
    """Counters over the window before and this one."""

    buckets: Mapping[str, Increases]
    """Buckets of this window alone."""

    running: tuple[Gauge, ...]
    """Running requests of both windows, as `waiting`."""

    waiting: tuple[Gauge, ...]
    kv_usage: tuple[Gauge, ...]
    """KV cache usage of this window alone."""

    estimates: DraftIncreases | None = None
    """What it drafted, by the engine's gauges."""

    @property
    def drafting(self) -> DraftIncreases:
        """What it drafted: by counters where it has them."""
        nothing = no_increases(self.counters[self.names.finished].rows.shape[1])
        for names in self.names.acceptance:
            drafts, drafted, accepted, reached = (
                self.counters.get(name or "", nothing)
                for name in (names.drafts, names.draft_tokens, names.accepted_tokens, names.per_position)
            )
            if names.counted and drafted.labels:
                return DraftIncreases(
                    drafts.only(**names.which), drafted, accepted, reached.by(names.position)
                )
        return self.estimates or DraftIncreases(nothing, nothing, nothing, {})


@dataclass(frozen=True)
class PrometheusData:
    prometheus: str
    """URL of the Prometheus."""

    window: ReportWindow
    pools: Mapping[PoolName, PoolData]
    router: Mapping[str, Increases]
    """Counters of the router in this window alone."""

    up: tuple[Gauge, ...]
    """Samples of `up` of every target of the rollout, over both windows, as `firing`."""

    firing: tuple[Gauge, ...]
    gpu_used: tuple[Gauge, ...]
    gpu_free: tuple[Gauge, ...]
    scraped_from: float | None = None
    """Set if the window has no data: the time of the first scrape of a pool's server after the window."""

    effect: LiveEffect | None = None
    """None without routers or a holdout."""


def query(rollout: Rollout, window: ReportWindow, api: Api, progress: Progress) -> PrometheusData:
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
    router = read_increases(api, routed, labels, window.start, window.hours)
    progress.advance()
    long = ReportWindow(window.previous.start, window.end, window.zone)
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
        effect=live_effect(rollout, api, (window.start, window.end)) if has_effect(rollout) else None,
    )
    if not any(pool.running for pool in observed.pools.values()):
        observed = replace(observed, scraped_from=_scraped_from(api, labels, window))
    progress.advance()
    return observed


def _scraped_from(api: Api, labels: Mapping[str, str], window: ReportWindow) -> float | None:
    """The first scrape of a pool's server after the window, and within a day of now."""
    clock = api.instant("time()")
    now = clock[0].value if clock else float(window.end)
    begin = max(float(window.end), now - DAY_S)
    if now <= begin:
        return None
    of_pools = f'up{selector(labels)[:-1]},{POOL}!=""}}'
    return min(
        (point[0] for series in api.raw(of_pools, begin, now) for point in series.points), default=None
    )


def _pool(names: Series, labels: Mapping[str, str], window: ReportWindow, api: Api) -> PoolData:
    before = window.previous
    hours = before.hours + window.hours
    counters = read_increases(api, counters_of(names), labels, before.start, hours)
    histograms = [f"{getattr(names, latency)}_bucket" for latency in LATENCIES]
    buckets = read_increases(api, histograms, labels, window.start, window.hours)
    which = selector(labels)
    long = ReportWindow(before.start, window.end, window.zone)
    return PoolData(
        names,
        counters,
        buckets,
        running=_gauges(api, names.running + which, long),
        waiting=_gauges(api, names.waiting + which, long),
        kv_usage=_gauges(api, names.kv_usage + which, window) if names.kv_usage else (),
        estimates=_estimates(Signals(names, labels, "1h"), api, before.start, hours),
    )


def counters_of(names: Series) -> list[str]:
    counters = [names.generated, names.finished, names.tpot_seconds]
    counters += [names.preemptions] if names.preemptions else []
    counters += [f"{getattr(names, latency)}_{part}" for latency in LATENCIES for part in ("sum", "count")]
    return counters + [
        counter for drafts in names.acceptance if drafts.counted for counter in drafts.counters
    ]


def _estimates(signals: Signals, api: Api, start: int, hours: int) -> DraftIncreases | None:
    if all(names.counted for names in signals.series.acceptance):
        return None
    drafts, drafted, accepted = (
        _estimate(api, expression, start, hours)
        for expression in (signals.drafts(), signals.drafted(), signals.accepted())
    )
    return DraftIncreases(drafts, drafted, accepted, {}, estimated=True)


def _estimate(api: Api, expression: str, start: int, hours: int) -> Increases:
    rows = _hourly(api, expression, start + HOUR_S, hours)
    labels = tuple(dict(key) for key in rows)
    return Increases(labels, np.array([*rows.values()]).reshape(len(rows), hours))


def _gauges(api: Api, which: str, window: ReportWindow) -> tuple[Gauge, ...]:
    """A day at a time: an answer stays of a size that a proxy lets through."""
    parts: dict[Key, list[prometheus.Series]] = {}
    for begin in range(window.start, window.end, DAY_S):
        for series in api.raw(which, begin, min(begin + DAY_S, window.end)):
            if series.points:
                parts.setdefault(frozenset(series.labels.items()), []).append(series)
    return tuple(_joined(pieces) for pieces in parts.values())


def _joined(parts: list[prometheus.Series]) -> Gauge:
    points = np.concatenate([np.array(series.points) for series in parts])
    points = points[~np.isnan(points[:, 1])]
    return Gauge(parts[0].labels, points[:, 0], points[:, 1])
