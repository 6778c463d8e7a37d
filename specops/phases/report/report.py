"""What a report holds, as its JSON file has it. Every figure that its pages show is here.

Shares are from 0 to 1, latencies in seconds, instants in ISO 8601 with the zone's offset. What is not known
is null, and `missing` says why. Lists by hour go through the window's hours in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops.prometheus.promql import Latency
from specops.prometheus.series import PoolName

Hours = list[float | None]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Times(_Part):
    zone: str
    start: str
    end: str
    hours: int
    begins: list[str]
    """Of every hour."""


class Gap(_Part):
    """Nothing was scraped."""

    start: str
    end: str
    seconds: float
    server: str | None
    """None: of the whole pool."""


class Extreme(_Part):
    value: float
    at: str
    """When its hour began."""


class Acceptance(_Part):
    """By increases of counters over the window; `rate` and `length` are null where nothing was drafted."""

    drafts: float | None
    drafted_tokens: float | None
    accepted_tokens: float | None
    rate: float | None
    """Accepted over drafted tokens."""

    error: float | None
    """Standard error of `rate`, with the hours as they differ."""

    length: float | None
    """Tokens that a verification yields, the bonus token included."""

    per_position: list[float | None]
    """Share of drafts accepted that far, from the first position; as the two that follow."""

    lowest_per_position: list[Extreme | None]
    highest_per_position: list[Extreme | None]
    lowest: Extreme | None
    highest: Extreme | None
    counted_hours: int
    """With at least `min_drafted` drafted tokens: those that lowest and highest are of."""

    min_drafted: int
    by_hour: Hours
    """Of hours that drafted anything."""


class Quantile(_Part):
    """Between the bounds of a bucket."""

    above: float
    to: float | None
    """None: in the last bucket, which has no upper bound."""


class LatencyOf(_Part):
    n: float
    """What it is a mean of: requests, or output tokens."""

    mean: float | None
    p50: Quantile | None
    p95: Quantile | None


class EngineLatency(LatencyOf):
    by_hour: Hours


class KvUsage(_Part):
    mean: float
    highest: Extreme


class Pool(_Part):
    servers: int
    gaps: list[Gap]
    requests: float | None
    generated_tokens: float | None
    preemptions: float | None
    latencies: dict[Latency, EngineLatency]
    requests_by_hour: Hours
    load_by_hour: Hours
    """Requests that a server has at a time, as a request meets them."""

    kv_usage: KvUsage | None
    kv_by_hour: Hours
    """The most of any server."""

    acceptance: Acceptance | None
    """None where no drafted tokens are counted: nothing is drafted, or the engine has no counter for it."""


class SpeedupOf(_Part):
    """How many times as fast as the baseline at the load that there was: expected over measured time."""

    ratio: float | None
    error: float | None
    lowest: Extreme | None
    highest: Extreme | None
    by_hour: Hours
    comparable_hours: int
    comparable_share: float | None
    """Of the requests: those of hours at a load that the baseline was measured at."""

    why_not: str | None


class Speedup(_Part):
    source: str | None
    loads: list[int]
    """That the baseline was measured at: between the first and the last is comparable."""

    by: dict[Latency, SpeedupOf]


class Day(_Part):
    """Of the speculative pool, on one day of the zone."""

    date: str
    hours: int
    """That the window has of it."""

    requests: float | None
    acceptance: float | None
    speedup: float | None
    """End to end, of its comparable hours."""


class OfClass(_Part):
    """By the routers: requests of a class that a pool answered."""

    name: str
    pool: str
    requests: float
    failed: float
    duration: LatencyOf
    first_byte: LatencyOf


class Incident(_Part):
    alert: str
    severity: str | None
    labels: dict[str, str]
    start: str
    """The first that was observed of it; it may have begun before, where `began_before`."""

    end: str | None
    """None: it still fires at the window's end."""

    seconds: float
    """From `start` to `end`, or to the window's end."""

    began_before: bool
    """The window."""


class Fallback(_Part):
    at: str
    by: str
    """The guard, or who pinned the standard pool."""

    why: str
    percent: int
    """Left of what may be speculative."""

    ended: str | None
    """When anything more was speculative again; None: it holds at the window's end."""

    seconds: float
    full: str | None
    """When all was."""


class Gpu(_Part):
    name: str
    mean_used_gib: float
    most_used_gib: float
    most_share: float


class Saved(_Part):
    """Of the requests at comparable load; null where there are none."""

    requests: float
    tokens: float
    server_hours: float
    """That it took, counting only time in which there were requests."""

    without_server_hours: float
    """That the same requests would have taken, as many at a time."""

    currency: str | None
    money: float | None
    """Null without `costs` in the rollout file."""

    assumption: str


class Drift(_Part):
    what: str
    then: float
    now: float
    noise: float | None
    """Twice the standard error of the difference; None where it is not known."""

    beyond: bool
    source: str


class Recommendation(_Part):
    rule: str
    value: float | None
    threshold: float | None
    source: str
    message: str
    command: str


class Missing(_Part):
    what: str
    why: str
    fix: str


class Report(_Part):
    rollout: str
    folder: str
    window: Times
    pools: dict[PoolName, Pool]
    speedup: Speedup
    days: list[Day]
    classes: list[OfClass]
    incidents: list[Incident] | None
    """None where Prometheus has no `up` of the rollout: that nothing fired would mean nothing."""

    fallbacks: list[Fallback] | None
    """None where the guard left no journal."""

    gpus: list[Gpu]
    saved: Saved | None
    drift: list[Drift]
    recommendations: list[Recommendation]
    missing: list[Missing]
    first_report: str | None = None
    """When the first report can be made: where Prometheus has begun to scrape, and no full hour is over."""

    status: Literal["good", "look", "no data"]
    """look: something is recommended."""


Pools = Mapping[PoolName, Pool]
