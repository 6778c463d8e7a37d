"""rules.yml: recorded series with the same names whichever engine serves; and how a rule file is written.

A baseline is a few loads, each with its latencies. Between two loads a mean is interpolated linearly, by the
requests that a server has at a time. Below the lightest and above the heaviest load nothing is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

from specops.config import Rollout
from specops.prometheus import series
from specops.prometheus.promql import LATENCIES, Latency, Signals, selector
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
from specops.render.server import header, to_yaml
from specops.serving import Series


@dataclass(frozen=True)
class Record:
    """A recording rule."""

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def as_rule(self) -> dict[str, Any]:
        rule: dict[str, Any] = {"record": self.name, "expr": self.expr}
        return rule | ({"labels": dict(self.labels)} if self.labels else {})

    def labelled(self, labels: Mapping[str, str]) -> Record:
        """The same rule with more labels."""
        return replace(self, labels={**self.labels, **labels})


@dataclass(frozen=True)
class Alert:
    """An alerting rule."""

    name: str
    expr: str
    for_s: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def as_rule(self) -> dict[str, Any]:
        rule: dict[str, Any] = {"alert": self.name, "expr": self.expr}
        if self.for_s:
            rule["for"] = duration(self.for_s)
        return rule | {"labels": dict(self.labels), "annotations": dict(self.annotations)}


def rule_file(rollout: str, group: str, rules: Sequence[Record | Alert], *notes: str) -> str:
    """A rule file of one group. Prometheus evaluates its rules in order, so a rule may read earlier ones."""
    return header(rollout, *notes) + to_yaml(
        {"groups": [{"name": group, "rules": [rule.as_rule() for rule in rules]}]}
    )


def duration(seconds: int) -> str:
    """A duration in Prometheus' notation: 90s, 5m, 1h."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


ABOUT = (
    "Ratios divide increases of counters; without traffic they have no sample, which is neither 0 nor NaN.",
    "Latencies are means: an engine's buckets are too coarse to see a change of 20%.",
)


Stat = Literal["mean", "p50", "p95"]


@dataclass(frozen=True)
class Load:
    """A level of the baseline: latencies in seconds with `concurrency` requests at a time. Figures of too
    few samples are left out."""

    concurrency: int
    seconds: Mapping[tuple[Latency, Stat], float]
    token_s: float | None = None
    """Mean time of a token after the first, over all tokens. TPOT is over requests."""


@dataclass(frozen=True)
class MeasuredSeries:
    """Measurements that become constant series."""

    loads: Sequence[Load] = ()
    """Levels of the baseline, by concurrency."""

    acceptance: float | None = None


def identity(rollout: Rollout) -> dict[str, str]:
    """Labels of every series of this rollout: those of `monitor.labels` and its name.

    Queries select them, and aggregations keep them. `or`, `and` and arithmetic match samples by all their
    labels: a side that lost one would match nothing, and `failed or total * 0` would be 0 for ever.
    """
    return {ROLLOUT: rollout.rollout} | rollout.monitor.labels


def rules(rollout: Rollout, measured: MeasuredSeries, constants: Sequence[Record] = ()) -> str:
    """The text of rules.yml. `constants` are recorded as well."""
    recorded = records(rollout, measured, constants)
    return rule_file(rollout.rollout, f"specops-{rollout.rollout}", recorded, *ABOUT)


def records(rollout: Rollout, measured: MeasuredSeries, constants: Sequence[Record] = ()) -> list[Record]:
    """All recording rules; each reads only those before it. Each has `monitor.labels`, since one
    Prometheus may record the same rollout in several clusters."""
    labels = identity(rollout)
    recorded = [record for group in _by_series(rollout) for record in _of_engine(rollout, group)]
    recorded += _of_routers(rollout, labels)
    if rollout.addresses.gpus:
        recorded.append(_gpu_memory(labels))
    recorded += baseline_constants(rollout.rollout, measured.loads)
    if measured.acceptance is not None:
        where = {ROLLOUT: rollout.rollout, POOL: "speculative"}
        recorded.append(Record(series.RECORDED_ACCEPTANCE, f"vector({measured.acceptance:.4g})", where))
    recorded += expected_latencies(labels, measured.loads)
    recorded += constants
    return [record.labelled(rollout.monitor.labels) for record in recorded]


@dataclass(frozen=True)
class _OfPools:
    """Pools whose servers expose the same names."""

    series: Series
    pools: tuple[PoolName, ...]
    labels: Mapping[str, str]
    """Labels of their series."""

    static: Mapping[str, str]
    """Labels of the rules: the pool, if there are two rules with one name. Otherwise promtool's lint reports
    duplicates."""


def _by_series(rollout: Rollout) -> list[_OfPools]:
    """Pools whose servers expose the same names share their rules."""
    labels = identity(rollout)
    first, second = (exposed(rollout, pool) for pool in POOLS)
    if first == second:
        return [_OfPools(first, POOLS, labels, {})]
    return [_OfPools(exposed(rollout, pool), (pool,), labels | {POOL: pool}, {POOL: pool}) for pool in POOLS]


def _of_engine(rollout: Rollout, group: _OfPools) -> Iterator[Record]:
    by = (*identity(rollout), POOL, "model_name")
    signals = Signals(group.series, group.labels, duration(rollout.monitor.window_s), by)
    for record in _of_signals(rollout, group, signals):
        yield record.labelled(group.static)


def _of_signals(rollout: Rollout, group: _OfPools, signals: Signals) -> Iterator[Record]:
    speculates = signals.held_to({POOL: "speculative"})
    if "speculative" in group.pools:
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
        by_pool = replace(signals, by=(*identity(rollout), POOL))
        yield Record(series.REQUESTS, by_pool.finished())
        yield Record(series.ERROR_SHARE, by_pool.aborted_share())
        yield from _of_http(rollout, replace(by_pool, window=duration(outage_window_s(rollout))))


def _of_routers(rollout: Rollout, labels: Mapping[str, str]) -> Iterator[Record]:
    """Requests, errors and failovers by the pool that a request was sent to."""
    if not rollout.addresses.routers:
        return
    window = duration(rollout.monitor.window_s)
    yield Record(series.REQUESTS, _routed(labels, window))
    total = f"{series.REQUESTS}{selector(labels)}"
    # The series of a status exists from its first answer on. Without a series, no request failed.
    failed = _routed(labels, window, 'status="5xx"')
    yield Record(series.ERROR_SHARE, f"({failed} or {total} * 0) / ({total} > 0)")
    same = ", ".join(labels)
    saved = f"sum by ({same}) (increase({ROUTE_FAILOVERS}{selector(labels)}[{window}]))"
    speculative = f"{series.REQUESTS}{selector({**labels, POOL: 'speculative'})}"
    share = f"{saved} / on ({same}) group_right () ({speculative} > 0)"
    yield Record(series.FAILOVER_SHARE, share)
    # An outage is noticed within scrapes, and not when it fills the window.
    short = duration(outage_window_s(rollout))
    yield Record(series.REQUESTS_LATELY, _routed(labels, short))
    lately = f"{series.REQUESTS_LATELY}{selector(labels)}"
    failed = _routed(labels, short, 'status="5xx"')
    elsewhere = _routed(labels, short, 'status!="5xx"', 'pool="speculative"', 'served="standard"')
    lost = f"({failed} or {lately} * 0) + ({elsewhere} or {lately} * 0)"
    yield Record(series.UNANSWERED_SHARE, f"({lost}) / ({lately} > 0)")


def _of_http(rollout: Rollout, lately: Signals) -> Iterator[Record]:
    """Requests and errors by the servers' own APIs, if no router is scraped. An engine's own series do not
    count requests that its API refused."""
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
    """The increase by pool, without requests that no pool serves. The label is renamed to that of other
    series."""
    which = ",".join((selector(labels)[:-1], *matchers, 'pool!="none"'))
    grown = f"increase({ROUTE_REQUESTS}{which}}}[{window}])"
    by = ", ".join((*labels, POOL))
    return f'sum by ({by}) (label_replace({grown}, "{POOL}", "$1", "pool", "(.+)"))'


def _gpu_memory(labels: Mapping[str, str]) -> Record:
    matchers = selector(labels)
    used, free = f"{GPU_USED}{matchers}", f"{GPU_FREE}{matchers}"
    return Record(series.GPU_MEMORY, f"{used} / ({used} + {free})")


def baseline_constants(rollout: str, loads: Sequence[Load]) -> Iterator[Record]:
    """Every figure of the baseline as a constant series."""
    where = {ROLLOUT: rollout, POOL: "standard"}
    for load in loads:
        labels = where | {"concurrency": str(load.concurrency)}
        for (latency, stat), seconds in load.seconds.items():
            latency_labels = labels | {"latency": latency, "stat": stat}
            yield Record(series.BASELINE_LATENCY, f"vector({_number(seconds)})", latency_labels)
        if ("e2e", "p95") in load.seconds:
            yield Record(series.BASELINE_E2E_P95, f"vector({_number(load.seconds['e2e', 'p95'])})", labels)


def expected_latencies(labels: Mapping[str, str], loads: Sequence[Load]) -> Iterator[Record]:
    """The baseline's means at each pool's current load, and each pool's speed-up over them. `labels` select
    the recorded series to read.

    The expected E2E is of answers of the current length: TTFT + time of a token × (tokens of an answer − 1).
    """
    matchers = selector(labels)
    now = f"{series.CONCURRENCY}{matchers}"
    ttft = _points(loads, lambda load: load.seconds.get(("ttft", "mean")))
    tpot = _points(loads, lambda load: load.seconds.get(("tpot", "mean")))
    token = _points(loads, lambda load: load.token_s)
    lines: dict[Latency, str] = {}
    if ttft:
        lines["ttft"] = interpolated(now, ttft)
    if tpot:
        lines["tpot"] = interpolated(now, tpot)
    if ttft and token:
        gaps = f"clamp_min({series.ANSWER_TOKENS}{matchers} - 1, 0)"
        lines["e2e"] = f"{series.EXPECTED['ttft']}{matchers} + ({interpolated(now, token)}) * {gaps}"
    for latency, line in lines.items():
        yield Record(series.EXPECTED[latency], line)
        ratio = f"{series.EXPECTED[latency]}{matchers} / ({series.MEAN[latency]}{matchers} > 0)"
        yield Record(series.SPEEDUP, ratio, {"latency": latency})


def _points(loads: Sequence[Load], read: Callable[[Load], float | None]) -> list[tuple[float, float]]:
    points = ((load.concurrency, read(load)) for load in sorted(loads, key=lambda load: load.concurrency))
    return [(concurrency, seconds) for concurrency, seconds in points if seconds is not None]


def interpolated(x: str, points: Sequence[tuple[float, float]]) -> str:
    """PromQL: linear interpolation at `x` through `points`, sorted by x; no sample outside of them.

    >>> interpolated("x", [(1, 10), (3, 20)])
    '((x >= 1) <= 3) * 5 + 5'
    """
    if len(points) == 1:
        (point, value) = points[0]
        return f"({x} == {_number(point)}) * 0 + {_number(value)}"
    pieces = []
    for (left, low), (right, high) in pairwise(points):
        slope = (high - low) / (right - left)
        offset = low - slope * left
        line = f"* {_number(slope)} {'-' if offset < 0 else '+'} {_number(abs(offset))}"
        pieces.append(f"(({x} >= {_number(left)}) <= {_number(right)}) {line}")
    return " or ".join(pieces)


def _number(value: float) -> str:
    return f"{value:.9g}"
