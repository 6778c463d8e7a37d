"""A pool over the window: what it did, how fast, and what of its drafts was accepted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from specops.phases.report import buckets
from specops.phases.report.gaps import gaps, servers
from specops.phases.report.grown import Floats, Grown
from specops.phases.report.ratios import divided, extreme, extremes, hours, ratio
from specops.phases.report.report import Acceptance, EngineLatency, KvUsage, Pool
from specops.phases.report.seen import Gauge, SeenPool
from specops.phases.report.window import HOUR_S, Window
from specops.prometheus.promql import LATENCIES, Latency
from specops.render.prometheus.conditions import MIN_DRAFTED
from specops.serving import Drafts


def pool(seen: SeenPool, window: Window) -> Pool | None:
    """None where Prometheus has nothing of it in the window."""
    now = slice(window.hours, None)
    running = tuple(part for part in (during(gauge, window) for gauge in seen.running) if part.at.size)
    finished = grown(seen, seen.names.finished, now)
    if not running and finished.total is None:
        return None
    kv, usage = kv_usage(seen.kv_usage, window)
    return Pool(
        servers=servers(running),
        gaps=gaps(window, running),
        requests=finished.total,
        generated_tokens=grown(seen, seen.names.generated, now).total,
        preemptions=grown(seen, seen.names.preemptions, now).total,
        latencies={latency: _latency(seen, latency, now) for latency in LATENCIES},
        requests_by_hour=hours(finished.hourly),
        load_by_hour=hours(load(seen, window, now)),
        kv_usage=usage,
        kv_by_hour=hours(kv),
        acceptance=acceptance(seen, window, now),
    )


def during(gauge: Gauge, window: Window) -> Gauge:
    inside = (gauge.at > window.start) & (gauge.at <= window.end)
    return Gauge(gauge.labels, gauge.at[inside], gauge.values[inside])


def grown(seen: SeenPool, name: str, which: slice) -> Grown:
    return seen.counters[name].during(which)


def acceptance(seen: SeenPool, window: Window, which: slice) -> Acceptance | None:
    counted = seen.names.acceptance
    if not isinstance(counted, Drafts):
        return None
    drafts, drafted, accepted = (
        grown(seen, name, which) for name in (counted.drafts, counted.draft_tokens, counted.accepted_tokens)
    )
    if drafted.total is None:
        return None
    rate = ratio(accepted.hourly, drafted.hourly)
    by_hour = divided(accepted.hourly, drafted.hourly)
    enough = drafted.hourly >= MIN_DRAFTED
    lowest, highest = extremes(window, by_hour, enough)
    length = ratio(accepted.hourly, drafts.hourly)
    reached = _by_position(grown(seen, counted.per_position, which))
    shares = [ratio(counts, drafts.hourly) for counts in reached]
    by_position = [extremes(window, divided(counts, drafts.hourly), enough) for counts in reached]
    return Acceptance(
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
    )


def _by_position(counted: Grown) -> list[Floats]:
    """Drafts accepted that far, hour for hour, from the first position."""
    positions = {int(at): of.hourly for at, of in counted.by("position").items() if at.isdigit()}
    unknown = np.full(counted.rows.shape[1], np.nan)
    return [positions.get(at, unknown) for at in range(max(positions, default=-1) + 1)]


def sums(seen: SeenPool, latency: Latency, which: slice) -> tuple[Floats, Floats]:
    """Seconds in all, and of how many, hour for hour: requests, or output tokens where the engine has no
    time per token of a request."""
    name: str = getattr(seen.names, latency)
    seconds = grown(seen, f"{name}_sum", which).hourly
    if latency == "tpot" and seen.names.tpot_of_events:
        first = grown(seen, f"{seen.names.ttft}_count", which).hourly
        return seconds, grown(seen, seen.names.generated, which).hourly - first
    return seconds, grown(seen, f"{name}_count", which).hourly


def _latency(seen: SeenPool, latency: Latency, which: slice) -> EngineLatency:
    seconds, n = sums(seen, latency, which)
    mean = ratio(seconds, n)
    name: str = getattr(seen.names, latency)
    of_requests = not (latency == "tpot" and seen.names.tpot_of_events)
    counted = buckets.counts(seen.buckets[f"{name}_bucket"]) if of_requests else {}
    return EngineLatency(
        n=float(np.nansum(n)),
        mean=mean.value if mean else None,
        p50=buckets.quantile(counted, 0.5),
        p95=buckets.quantile(counted, 0.95),
        by_hour=hours(divided(seconds, n)),
    )


def load(seen: SeenPool, window: Window, which: slice) -> Floats:
    """Σn²/Σn over the scrapes of an hour, n requests running or waiting at a server: each instant counts by
    the requests that meet it. Where no scrape caught any though some ended, by Little's law; at least 1."""
    squares, firsts, seen_in = (np.zeros(window.hours) for _ in range(3))
    waiting = {_own(gauge.labels): gauge for gauge in seen.waiting}
    for whole in seen.running:
        gauge = during(whole, window)
        n = gauge.values + _at(waiting.get(_own(gauge.labels)), gauge.at)
        hour = gauge.hour_of(window)
        squares += np.bincount(hour, n**2, window.hours)
        firsts += np.bincount(hour, n, window.hours)
        seen_in[np.unique(hour)] += 1
    taken, answered = sums(seen, "e2e", which)
    littles = np.where(answered > 0, taken / HOUR_S / np.maximum(seen_in, 1), np.nan)
    found = np.where(firsts > 0, divided(squares, firsts), littles)
    return np.where(np.isnan(found), np.nan, np.maximum(found, 1.0))


def _own(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in labels.items() if name != "__name__")


def _at(gauge: Gauge | None, times: Floats) -> Floats:
    """Its values at `times`, 0 where it was not scraped then."""
    if gauge is None or gauge.at.size == 0:
        return np.zeros(times.size)
    place = np.minimum(np.searchsorted(gauge.at, times), gauge.at.size - 1)
    return np.where(gauge.at[place] == times, gauge.values[place], 0.0)


def kv_usage(gauges: Sequence[Gauge], window: Window) -> tuple[Floats, KvUsage | None]:
    """By hour the most that any server had; the mean is over all samples."""
    most = np.full(window.hours, -np.inf)
    for gauge in gauges:
        np.maximum.at(most, gauge.hour_of(window), gauge.values)
    most[np.isinf(most)] = np.nan
    samples = [gauge.values for gauge in gauges if gauge.values.size]
    if not samples:
        return most, None
    mean = float(np.concatenate(samples).mean())
    return most, KvUsage(mean=mean, highest=extreme(window, most, int(np.nanargmax(most))))
