"""The shape of a report, as its JSON file has it. Every figure that its pages show is here.

Shares are from 0 to 1, latencies in seconds, instants in ISO 8601 with the zone's offset. What is not known
is null, and `missing` says why. Lists by hour go through the window's hours in their order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from typing import Literal
from zoneinfo import ZoneInfo

from specops.errors import UsageError
from specops.phases.effect import LiveEffect
from specops.prometheus.promql import Latency
from specops.prometheus.series import PoolName
from specops.quantities import days_and_hours
from specops.section import Frozen

HOUR_S = 3600


@dataclass(frozen=True)
class ReportWindow:
    start: int
    """Seconds since the epoch, as `end`: not itself in the window."""

    end: int
    zone: ZoneInfo

    @property
    def hours(self) -> int:
        return (self.end - self.start) // HOUR_S

    @property
    def previous(self) -> ReportWindow:
        """Return the window of the same length just before this one."""
        return ReportWindow(2 * self.start - self.end, self.start, self.zone)

    @property
    def weeks(self) -> float:
        return (self.end - self.start) / (7 * 24 * HOUR_S)

    @property
    def last_day(self) -> date:
        return self.local(self.end - 1).date()

    @property
    def name(self) -> str:
        """The name of its files: the last day, and the length where it is not a week."""
        length = self.local(self.end).replace(tzinfo=None) - self.local(self.start).replace(tzinfo=None)
        days, rest = divmod(length, timedelta(days=1))
        suffix = f"-{self.hours}h" if rest else "" if days == 7 else f"-{days}d"
        return f"{self.last_day}{suffix}"

    def local(self, ts: float) -> datetime:
        return datetime.fromtimestamp(ts, self.zone)

    def iso(self, ts: float) -> str:
        """`ts` by the zone's clock, in ISO 8601 with its offset."""
        return self.local(ts).isoformat(timespec="seconds")

    def full_hour(self, ts: float) -> datetime:
        """The end of the hour that `ts` is in, by this window's hours."""
        return self.local(self.end + math.ceil((ts - self.end) / HOUR_S) * HOUR_S)

    def begins(self) -> list[datetime]:
        """Return the beginning of every hour, by the zone's clock."""
        return [self.local(self.start + number * HOUR_S) for number in range(self.hours)]

    def days(self) -> list[tuple[date, slice]]:
        """Every day, and which of the hours begin on it."""
        spans, index = [], 0
        for day, hours in groupby(begin.date() for begin in self.begins()):
            length = len(list(hours))
            spans.append((day, slice(index, index + length)))
            index += length
        return spans

    def __str__(self) -> str:
        first, last = self.local(self.start), self.local(self.end)
        return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} {self.zone.key}"


def window(span: str, end: str, zone: ZoneInfo, now: datetime) -> ReportWindow:
    """`span` as in 24h, 7d, 2w, up to `end`: a day, which is counted whole, a time of it, or `now`, which is
    the end of the last full hour. A day of the span is one of `zone`. Raises UsageError."""
    return _window(span, _end(end, zone, now), zone)


def _end(text: str, zone: ZoneInfo, now: datetime) -> int:
    if text == "now":
        local = now.astimezone(zone)
        into = local.minute * 60 + local.second
        return int(now.timestamp()) - into
    try:
        day = _day(text)
        if day is not None:
            end = datetime.combine(day + timedelta(days=1), time(), zone)
        else:
            stated = datetime.fromisoformat(text)
            end = stated if stated.tzinfo else stated.replace(tzinfo=zone)
        ts = int(end.timestamp())
        if ts < 0:
            raise ValueError(text)  # before any clock that Prometheus goes by
    except (ValueError, OverflowError):
        raise UsageError(
            f"invalid end of a report {text!r}", hint="specops report ROLLOUT --end 2026-11-20"
        ) from None
    if ts > now.timestamp():
        raise UsageError(
            f"the report's end {text} is not over yet",
            hint="specops report ROLLOUT --end now  # the last full hour",
        )
    return ts


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _window(span: str, end: int, zone: ZoneInfo) -> ReportWindow:
    try:
        days, hours = days_and_hours(span)
    except ValueError:
        raise UsageError(
            f"invalid length of a report {span!r}: expected 24h, 7d or 2w",
            hint="specops report ROLLOUT --window 7d",
        ) from None
    # Counted back by the wall clock, so that seven days begin at the same time of day.
    wall = datetime.fromtimestamp(end, UTC).astimezone(zone) - timedelta(days=days)
    length = end - wall.timestamp()
    return ReportWindow(end - (math.ceil(length / HOUR_S) + hours) * HOUR_S, end, zone)


Hours = list[float | None]


class Times(Frozen):
    zone: str
    start: str
    end: str
    hours: int
    begins: list[str]
    """Beginning of every hour."""


class Gap(Frozen):
    """A time in which nothing was scraped."""

    start: str
    end: str
    seconds: float
    server: str | None
    """None: of the whole pool."""


class Extreme(Frozen):
    value: float
    at: str
    """When its hour began."""


class PoolAcceptance(Frozen):
    """Acceptance over the window, by what the engine shows of its drafts; `rate` and `length` are null where
    nothing was drafted."""

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
    """Number of hours with at least `min_drafted` drafted tokens: those that lowest and highest are of."""

    min_drafted: int
    by_hour: Hours
    """Rate by hour, of hours that drafted anything."""

    estimated: bool = False
    """Whether the tokens follow from gauges of the engine, which counts no drafted tokens or no drafts."""


class Quantile(Frozen):
    """A quantile between the bounds of a bucket."""

    above: float
    to: float | None
    """None: in the last bucket, which has no upper bound."""


class LatencyFigures(Frozen):
    n: float
    """What it is a mean of: requests, or output tokens."""

    mean: float | None
    p50: Quantile | None
    p95: Quantile | None


class EngineLatency(LatencyFigures):
    by_hour: Hours


class KvUsage(Frozen):
    mean: float
    highest: Extreme


class PoolReport(Frozen):
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

    acceptance: PoolAcceptance | None
    """None where no drafted tokens are counted: nothing is drafted, or the engine has no counter for it."""


class LatencySpeedup(Frozen):
    """The baseline's expected time at the present load, over the measured time."""

    ratio: float | None
    error: float | None
    lowest: Extreme | None
    highest: Extreme | None
    by_hour: Hours
    comparable_hours: int
    comparable_share: float | None
    """Share of the requests in hours at a load that the baseline was measured at."""

    why_not: str | None


class LiveSpeedup(Frozen):
    source: str | None
    loads: list[int]
    """Loads that the baseline was measured at: between the first and the last is comparable."""

    by: dict[Latency, LatencySpeedup]


class Day(Frozen):
    """Figures of the speculative pool on one day of the zone."""

    date: str
    hours: int
    """Number of hours that the window has of it."""

    requests: float | None
    acceptance: float | None
    speedup: float | None
    """End to end, of its comparable hours."""


class ClassTraffic(Frozen):
    """Requests of a class that a pool answered, by the routers."""

    name: str
    pool: str
    requests: float
    failed: float
    duration: LatencyFigures
    first_byte: LatencyFigures


class AlertIncident(Frozen):
    alert: str
    severity: str | None
    labels: dict[str, str]
    start: str
    """The first that was observed of it; it may have begun before, where `began_before`."""

    end: str | None
    """None: it still fires at the window's end."""

    seconds: float
    """Seconds from `start` to `end`, or to the window's end."""

    began_before: bool
    """The window."""


class FallbackPeriod(Frozen):
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


class GpuUse(Frozen):
    name: str
    mean_used_gib: float
    most_used_gib: float
    most_share: float


class SavedTime(Frozen):
    """The time saved on requests at comparable load; null without such requests."""

    requests: float
    tokens: float
    server_hours: float
    """Server-hours that it took, counting only time in which there were requests."""

    without_server_hours: float
    """Server-hours that the same requests would have taken, as many at a time."""

    currency: str | None
    money: float | None
    """Null without `costs` in the rollout file."""

    assumption: str


class Drift(Frozen):
    what: str
    then: float
    now: float
    noise: float | None
    """Twice the standard error of the difference; None where it is not known."""

    beyond: bool
    source: str


class ReportAdvice(Frozen):
    rule: str
    value: float | None
    threshold: float | None
    source: str
    message: str
    command: str


class MissingData(Frozen):
    what: str
    why: str
    fix: str


def speculative_acceptance(pools: Mapping[PoolName, PoolReport]) -> PoolAcceptance | None:
    pool = pools.get("speculative")
    return pool.acceptance if pool else None


class WeeklyReport(Frozen):
    rollout: str
    folder: str
    window: Times
    covered_hours: int
    """Hours of the window of which Prometheus has a scrape of a pool's server."""

    pools: dict[PoolName, PoolReport]
    speedup: LiveSpeedup
    days: list[Day]
    classes: list[ClassTraffic]
    incidents: list[AlertIncident] | None
    """None where Prometheus has no `up` of the rollout: that nothing fired would mean nothing."""

    fallbacks: list[FallbackPeriod] | None
    """None where the guard left no journal."""

    gpus: list[GpuUse]
    saved: SavedTime | None
    drift: list[Drift]
    recommendations: list[ReportAdvice]
    missing: list[MissingData]
    first_report: str | None = None
    """When the first report can be made: where Prometheus has begun to scrape, and no full hour is over."""

    effect: LiveEffect | None = None
    """The window's live effect; None without routers or a holdout."""

    status: Literal["good", "look", "no data"]
    """look: something is recommended."""


Pools = Mapping[PoolName, PoolReport]
