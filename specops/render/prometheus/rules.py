"""rules.yml: the playbook's names and what panels and alerts read, whichever engine serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from specops.config import Rollout
from specops.prometheus import series
from specops.prometheus.promql import LATENCIES, Signals, selector
from specops.prometheus.series import (
    GPU_FREE,
    GPU_USED,
    POOL,
    POOLS,
    ROLLOUT,
    ROUTE_FAILOVERS,
    ROUTE_REQUESTS,
    PoolName,
    exposed,
)
from specops.render.prometheus import baseline
from specops.render.prometheus.rule_file import Record, duration, rule_file
from specops.serving import Series

BY = (ROLLOUT, POOL, "model_name")
ABOUT = (
    "Ratios divide increases of counters; without traffic they have no sample, which is neither 0 nor NaN.",
    "Latencies are means: an engine's buckets are too coarse to see a change of 20%.",
)


@dataclass(frozen=True)
class Measured:
    """What is known from before, and becomes a constant series."""

    loads: Sequence[baseline.Load] = ()
    """Of the baseline, by concurrency."""

    acceptance: float | None = None


def rules(rollout: Rollout, measured: Measured) -> str:
    """The text of the file."""
    return rule_file(rollout.rollout, f"specops-{rollout.rollout}", records(rollout, measured), *ABOUT)


def records(rollout: Rollout, measured: Measured) -> list[Record]:
    """Each reads only what stands before it. Each has `monitor.labels`: one Prometheus may record the same
    rollout in several clusters."""
    ours = {ROLLOUT: rollout.rollout} | rollout.monitor.labels
    found = [record for each in _by_series(rollout) for record in _of_engine(rollout, each)]
    found += _of_routers(rollout, ours)
    if rollout.addresses.gpus:
        found.append(_gpu_memory(ours))
    found += baseline.constants(rollout.rollout, measured.loads)
    if measured.acceptance is not None:
        where = {ROLLOUT: rollout.rollout, POOL: "speculative"}
        found.append(Record(series.RECORDED_ACCEPTANCE, f"vector({measured.acceptance:.4g})", where))
    found += baseline.expected(ours, measured.loads)
    return [record.labelled(rollout.monitor.labels) for record in found]


@dataclass(frozen=True)
class _OfPools:
    """Pools whose servers expose the same names."""

    series: Series
    pools: tuple[PoolName, ...]
    labels: Mapping[str, str]
    """Of their series."""

    static: Mapping[str, str]
    """Of what is recorded of them: the pool, where there are two rules with one name. Without it promtool's
    lint takes the second for a duplicate of the first."""


def _by_series(rollout: Rollout) -> list[_OfPools]:
    """Pools that expose the same names are asked for together."""
    ours = {ROLLOUT: rollout.rollout} | rollout.monitor.labels
    one, other = (exposed(rollout, pool) for pool in POOLS)
    if one == other:
        return [_OfPools(one, POOLS, ours, {})]
    return [_OfPools(exposed(rollout, pool), (pool,), ours | {POOL: pool}, {POOL: pool}) for pool in POOLS]


def _of_engine(rollout: Rollout, of: _OfPools) -> Iterator[Record]:
    signals = Signals(of.series, of.labels, duration(rollout.monitor.window_s), BY)
    for record in _of_signals(rollout, of, signals):
        yield record.labelled(of.static)


def _of_signals(rollout: Rollout, of: _OfPools, signals: Signals) -> Iterator[Record]:
    speculates = signals.held_to({POOL: "speculative"})
    if "speculative" in of.pools:
        yield Record(series.ACCEPTANCE, speculates.acceptance())
        per_position = speculates.per_position()
        if per_position is not None:
            yield Record(series.PER_POSITION, per_position)
        yield Record(series.ACCEPTED_LENGTH, speculates.accepted_length())
        yield Record(series.DRAFTED, speculates.drafted())
        per_step = speculates.tokens_per_step()
        if per_step is not None:
            yield Record(series.TOKENS_PER_STEP, per_step)
    for latency in LATENCIES:
        yield Record(series.MEAN[latency], signals.mean(latency))
        quantile = signals.quantile(latency, 0.95)
        if quantile is not None:
            yield Record(series.P95[latency], quantile)
    yield Record(series.CONCURRENCY, signals.load())
    yield Record(series.WAITING, signals.waiting())
    yield Record(series.FINISHED, signals.finished())
    yield Record(series.ANSWER_TOKENS, signals.answer_tokens())
    yield Record(series.TOKENS_PER_S, signals.tokens_per_second())
    for name, expression in (
        (series.KV_USAGE, signals.kv_usage()),
        (series.PREEMPTIONS, signals.preemptions()),
    ):
        if expression is not None:
            yield Record(name, expression)
    if not rollout.addresses.routers:
        by_pool = replace(signals, by=(ROLLOUT, POOL))
        yield Record(series.REQUESTS, by_pool.finished())
        yield Record(series.ERROR_SHARE, by_pool.aborted_share())
        yield from _of_http(rollout, replace(by_pool, window=duration(outage_window_s(rollout))))


def _of_routers(rollout: Rollout, ours: Mapping[str, str]) -> Iterator[Record]:
    """By the pool that a request was sent to."""
    if not rollout.addresses.routers:
        return
    window = duration(rollout.monitor.window_s)
    yield Record(series.REQUESTS, _routed(ours, window))
    total = f"{series.REQUESTS}{selector(ours)}"
    # The series of a status exists from its first answer on: where there is none, none failed.
    failed = _routed(ours, window, 'status="5xx"')
    yield Record(series.ERROR_SHARE, f"({failed} or {total} * 0) / ({total} > 0)")
    saved = f"sum by ({ROLLOUT}) (increase({ROUTE_FAILOVERS}{selector(ours)}[{window}]))"
    speculative = f"{series.REQUESTS}{selector({**ours, POOL: 'speculative'})}"
    share = f"{saved} / on ({ROLLOUT}) group_right () ({speculative} > 0)"
    yield Record(series.FAILOVER_SHARE, share)
    # An outage is noticed within scrapes, and not when it fills the window.
    short = duration(outage_window_s(rollout))
    yield Record(series.REQUESTS_LATELY, _routed(ours, short))
    lately = f"{series.REQUESTS_LATELY}{selector(ours)}"
    failed = _routed(ours, short, 'status="5xx"')
    elsewhere = _routed(ours, short, 'status!="5xx"', 'pool="speculative"', 'served="standard"')
    lost = f"({failed} or {lately} * 0) + ({elsewhere} or {lately} * 0)"
    yield Record(series.UNANSWERED_SHARE, f"({lost}) / ({lately} > 0)")


def _of_http(rollout: Rollout, lately: Signals) -> Iterator[Record]:
    """Where no router is scraped: by the servers' own APIs. An engine's series have no request that its API
    refused."""
    answered, failed = lately.http(), lately.http(failed=True)
    if answered is None or failed is None:
        return
    yield Record(series.REQUESTS_LATELY, answered)
    total = f"{series.REQUESTS_LATELY}{selector(lately.labels)}"
    yield Record(series.UNANSWERED_SHARE, f"({failed} or {total} * 0) / ({total} > 0)")


def outage_window_s(rollout: Rollout) -> int:
    """Seconds over which a pool that answers nothing is noticed: four scrapes, at least a minute."""
    return min(rollout.monitor.window_s, max(60, 4 * rollout.monitor.scrape_interval_s))


def _routed(labels: Mapping[str, str], window: str, *matchers: str) -> str:
    """By pool, as the other series name it; without those that nobody serves, which go to none."""
    which = ",".join((selector(labels)[:-1], *matchers, 'pool!="none"'))
    grown = f"increase({ROUTE_REQUESTS}{which}}}[{window}])"
    return f'sum by ({ROLLOUT}, {POOL}) (label_replace({grown}, "{POOL}", "$1", "pool", "(.+)"))'


def _gpu_memory(labels: Mapping[str, str]) -> Record:
    ours = selector(labels)
    used, free = f"{GPU_USED}{ours}", f"{GPU_FREE}{ours}"
    return Record(series.GPU_MEMORY, f"{used} / ({used} + {free})")
