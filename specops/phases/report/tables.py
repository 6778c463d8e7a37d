"""The report's tables and number formats. A value that is unknown is a dash; "Missing data" says why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime

from specops.phases import effect as effects
from specops.phases.effect import LiveEffect
from specops.phases.report.report import AlertIncident, Extreme, PoolReport, Quantile, SavedTime, WeeklyReport
from specops.prometheus.promql import LATENCIES
from specops.render.prometheus.alerts import MIN_DRAFTED
from specops.render.report.document import Table

NAMES = {"ttft": "time to first token", "tpot": "time per output token", "e2e": "end to end"}


def speedups(report: WeeklyReport) -> Table:
    rows = tuple(
        (NAMES[latency], times(speedup.ratio), describe_extreme(speedup.lowest, ".2f", "×"),
         describe_extreme(speedup.highest, ".2f", "×"), str(speedup.comparable_hours),
         share(speedup.comparable_share), speedup.why_not or "")
        for latency, speedup in report.speedup.by.items()
    )  # fmt: skip
    return Table(
        "",
        ("latency", "speed-up", "slowest hour", "fastest hour", "hours", "of the requests", "note"),
        rows,
        prose=(6,),
    )


def live_effect(effect: LiveEffect) -> Table:
    """By class: the ratio of each figure with the interval of figure look, and the requests behind it."""
    rows = tuple(
        (part.traffic_class or "all classes", effects.NAMES[figure.figure], times(figure.ratio),
         effects.interval(figure.once_low, figure.once_high) if figure.ratio is not None else NONE,
         f"{figure.requests} / {figure.holdout_requests}")
        for part in effect.classes
        for figure in part.figures
        if figure.requests or figure.holdout_requests
    )  # fmt: skip
    columns = ("class", "figure", "ratio", "95% interval", "requests: speculative / holdout")
    hours = ", ".join(f"{pool} {count:.0f}" for pool, count in effect.server_hours.items())
    return Table("", columns, rows, f"Server-hours of the pools: {hours}.")


def acceptance(report: WeeklyReport) -> Iterator[Table]:
    drafting = {name: pool.acceptance for name, pool in report.pools.items() if pool.acceptance is not None}
    rows = tuple(
        (f"{name} pool", f"{whole(counts.accepted_tokens)} / {whole(counts.drafted_tokens)}",
         rate(counts.rate), rate(counts.length), describe_extreme(counts.lowest),
         describe_extreme(counts.highest), str(counts.counted_hours))
        for name, counts in drafting.items()
    )  # fmt: skip
    columns = ("pool", "accepted / drafted", "rate", "tokens a step", "lowest hour", "highest hour", "hours")
    note = (
        f"Lowest and highest count hours with at least {MIN_DRAFTED} drafted tokens. The rate is a"
        " ratio of the window's sums, not a mean of hours."
    )
    if any(counts.estimated for counts in drafting.values()):
        note += " The tokens are estimated from gauges of the engine, which does not count them."
    yield Table("", columns, rows, note)
    positions = tuple(
        (
            f"{name} pool, position {number}",
            share(reached),
            describe_extreme(low, ".1%"),
            describe_extreme(high, ".1%"),
        )
        for name, counts in drafting.items()
        for number, (reached, low, high) in enumerate(
            zip(counts.per_position, counts.lowest_per_position, counts.highest_per_position, strict=True),
            start=1,
        )
    )
    if positions:
        yield Table(
            "Drafts accepted this far", ("position", "share", "lowest hour", "highest hour"), positions
        )


def traffic(report: WeeklyReport) -> Table:
    rows = tuple(
        (f"{name} pool", str(pool.servers), whole(pool.requests), whole(pool.generated_tokens),
         whole(pool.preemptions), _gap_times(pool))
        for name, pool in report.pools.items()
    )  # fmt: skip
    return Table("", ("pool", "servers", "requests", "tokens", "preemptions", "not scraped"), rows)


def _gap_times(pool: PoolReport) -> str:
    whole_pool = sum(gap.seconds for gap in pool.gaps if gap.server is None)
    servers = sum(gap.seconds for gap in pool.gaps if gap.server is not None)
    parts = [
        elapsed(whole_pool) if whole_pool else "",
        f"single servers {elapsed(servers)}" if servers else "",
    ]
    return ", ".join(part for part in parts if part) or "never"


def latencies(report: WeeklyReport) -> Table:
    rows = tuple(
        (
            f"{name} pool, {NAMES[latency]}",
            whole(summary.n),
            seconds(summary.mean),
            bounds(summary.p50),
            bounds(summary.p95),
        )
        for name, pool in report.pools.items()
        for latency, summary in ((latency, pool.latencies[latency]) for latency in LATENCIES)
    )
    note = "A quantile lies between the bounds of its bucket; the histogram has no finer resolution."
    return Table("Reported by the engines", ("pool, latency", "n", "mean", "p50", "p95"), rows, note)


def classes(report: WeeklyReport) -> Table:
    rows = tuple(
        (f"{traffic.name}, {traffic.pool}", whole(traffic.requests), whole(traffic.failed),
         seconds(traffic.first_byte.mean), seconds(traffic.duration.mean), bounds(traffic.duration.p50),
         bounds(traffic.duration.p95))
        for traffic in report.classes
    )  # fmt: skip
    columns = ("class, pool", "requests", "failed", "first byte", "mean", "p50", "p95")
    return Table("By class, from the routers", columns, rows)


def troubles(report: WeeklyReport) -> Iterator[Table]:
    if report.incidents:
        rows = tuple(
            (incident.alert, incident.severity or "", when(incident.start),
             "still open" if incident.end is None else when(incident.end), elapsed(incident.seconds),
             _labels(incident))
            for incident in report.incidents
        )  # fmt: skip
        note = (
            "Each incident counts once; a gap in the scrapes does not split it. If it began before the first"
            " sample, its length counts from that sample."
        )
        yield Table(
            "Incidents", ("alert", "severity", "from", "to", "length", "labels"), rows, note, prose=(5,)
        )
    if report.fallbacks:
        rows = tuple(
            (when(fallback.at), fallback.by, f"{fallback.percent}%",
             "still" if fallback.ended is None else elapsed(fallback.seconds),
             NONE if fallback.full is None else when(fallback.full), fallback.why)
            for fallback in report.fallbacks
        )  # fmt: skip
        yield Table(
            "Fallbacks", ("at", "by", "traffic left", "length", "fully back", "reason"), rows, prose=(5,)
        )
    if not report.incidents and not report.fallbacks:
        kinds = (("alerts that fired", report.incidents), ("fallbacks", report.fallbacks))
        yield Table(
            "",
            ("events", "number"),
            tuple((name, "unknown" if events is None else "none") for name, events in kinds),
        )


def _labels(incident: AlertIncident) -> str:
    names = ("specops_pool", "model_name", "instance", "job", "latency", "state", "series")
    return ", ".join(incident.labels[name] for name in names if name in incident.labels)


def memory(report: WeeklyReport) -> Iterator[Table]:
    rows = tuple(
        (f"{name} pool", share(pool.kv_usage.mean), describe_extreme(pool.kv_usage.highest, ".1%"))
        for name, pool in report.pools.items()
        if pool.kv_usage is not None
    )
    if rows:
        yield Table("KV cache in use", ("pool", "mean", "highest server"), rows)
    if report.gpus:
        gpus = tuple(
            (gpu.name, f"{gpu.mean_used_gib:.1f} GiB", f"{gpu.most_used_gib:.1f} GiB", share(gpu.most_share))
            for gpu in report.gpus
        )
        note = "An engine allocates its share at start: this is what it holds, not what requests need."
        yield Table("GPU memory", ("GPU", "mean", "highest", "share"), gpus, note)


def saved(saved: SavedTime) -> Table:
    saving = saved.without_server_hours - saved.server_hours
    worth = NONE if saved.money is None else f"{money(saved.money)} {saved.currency}"
    rows = (
        ("requests at comparable load", whole(saved.requests)),
        ("tokens of these requests", whole(saved.tokens)),
        ("server-hours used", hours(saved.server_hours)),
        ("server-hours without speculation", hours(saved.without_server_hours)),
        ("saved", f"{hours(saving)} server-hours"),
        ("value", worth),
    )
    return Table("", ("figure", "value"), rows)


def days(report: WeeklyReport) -> Table:
    rows = tuple(
        (f"{date.fromisoformat(day.date):%a %d %b}", whole(day.requests), times(day.speedup),
         share(day.acceptance), "" if day.hours == 24 else f"{day.hours} h")
        for day in report.days
    )  # fmt: skip
    return Table("By day", ("day", "requests", "speed-up", "acceptance", "note"), rows)


def drift(report: WeeklyReport) -> Table:
    rows = tuple(
        (figure.what, rate(figure.then), rate(figure.now), f"{figure.now - figure.then:+.3f}",
         "unknown" if figure.noise is None else f"±{figure.noise:.3f}", "yes" if figure.beyond else "no",
         figure.source)
        for figure in report.drift
    )  # fmt: skip
    columns = ("figure", "then", "now", "change", "noise", "beyond noise", "source of then")
    note = "Noise is twice the standard error of the difference, with hours as samples."
    return Table("", columns, rows, note, prose=(6,))


def missing(report: WeeklyReport) -> Table:
    rows = tuple((gap.what, gap.why, gap.fix) for gap in report.missing)
    return Table("", ("data", "why", "how to fix"), rows, prose=(1, 2))


NONE = "–"


def share(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}"


def rate(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def times(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}×"


def whole(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Return a latency in words, with its unit."""
    if value is None:
        return NONE
    if value < 0.01:
        return f"{value * 1000:.2f} ms"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def hours(value: float | None) -> str:
    """Return server-hours in words; saved ones may be less than none."""
    if value is None:
        return NONE
    text = f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def money(value: float | None) -> str:
    """An amount without its currency: whole from 100 on, else to the hundredth, below 0.1 to two digits."""
    if value is None:
        return NONE
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if value and abs(value) < 0.1:
        return f"{value:.{1 - math.floor(math.log10(abs(value)))}f}"
    return f"{value:.2f}"


def elapsed(value: float) -> str:
    minutes = round(value / 60)
    if value < 60:
        return f"{value:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def when(iso: str) -> str:
    return f"{datetime.fromisoformat(iso):%a %d %b %H:%M}"


def bounds(quantile: Quantile | None) -> str:
    if quantile is None:
        return NONE
    if quantile.to is None:
        return f"> {seconds(quantile.above)}"
    return (
        f"{seconds(quantile.above)} to {seconds(quantile.to)}"
        if quantile.above
        else f"≤ {seconds(quantile.to)}"
    )


def describe_extreme(extreme: Extreme | None, form: str = ".3f", unit: str = "") -> str:
    return NONE if extreme is None else f"{extreme.value:{form}}{unit} ({when(extreme.at)})"
