"""A report's tables. Every figure in them is in its JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from specops.phases.report.report import Incident, Pool, Report, Saved
from specops.phases.report.words import (
    NONE,
    at,
    bounds,
    hours,
    lasted,
    money,
    rate,
    seconds,
    share,
    times,
    when,
    whole,
)
from specops.prometheus.promql import LATENCIES
from specops.render.prometheus.conditions import MIN_DRAFTED
from specops.render.report.document import Table

NAMES = {"ttft": "first token", "tpot": "token after it", "e2e": "whole answer"}


def speedups(report: Report) -> Table:
    rows = tuple(
        (NAMES[latency], times(one.ratio), at(one.lowest, ".2f", "×"), at(one.highest, ".2f", "×"),
         str(one.comparable_hours), share(one.comparable_share), one.why_not or "")
        for latency, one in report.speedup.by.items()
    )  # fmt: skip
    return Table(
        "", ("", "times as fast", "slowest hour", "fastest hour", "hours", "of the requests", ""), rows
    )


def acceptance(report: Report) -> Iterator[Table]:
    drafting = {name: pool.acceptance for name, pool in report.pools.items() if pool.acceptance is not None}
    rows = tuple(
        (f"{name} pool", f"{whole(one.accepted_tokens)} / {whole(one.drafted_tokens)}", rate(one.rate),
         rate(one.length), at(one.lowest), at(one.highest), str(one.counted_hours))
        for name, one in drafting.items()
    )  # fmt: skip
    columns = ("", "accepted / drafted", "rate", "tokens a step", "lowest hour", "highest hour", "hours")
    note = (
        f"Lowest and highest are of the hours with at least {MIN_DRAFTED} drafted tokens. The rate is of the"
        " window's sums, not a mean of hours."
    )
    yield Table("", columns, rows, note)
    positions = tuple(
        (f"{name} pool, position {number}", share(reached), at(low, ".1%"), at(high, ".1%"))
        for name, one in drafting.items()
        for number, (reached, low, high) in enumerate(
            zip(one.per_position, one.lowest_per_position, one.highest_per_position, strict=True), start=1
        )
    )
    if positions:
        yield Table("Drafts accepted this far", ("", "share", "lowest hour", "highest hour"), positions)


def traffic(report: Report) -> Table:
    rows = tuple(
        (f"{name} pool", str(pool.servers), whole(pool.requests), whole(pool.generated_tokens),
         whole(pool.preemptions), _unseen(pool))
        for name, pool in report.pools.items()
    )  # fmt: skip
    return Table("", ("", "servers", "requests", "tokens", "preemptions", "not seen"), rows)


def _unseen(pool: Pool) -> str:
    whole_pool = sum(gap.seconds for gap in pool.gaps if gap.server is None)
    servers = sum(gap.seconds for gap in pool.gaps if gap.server is not None)
    parts = [lasted(whole_pool) if whole_pool else "", f"single servers {lasted(servers)}" if servers else ""]
    return ", ".join(part for part in parts if part) or "never"


def latencies(report: Report) -> Table:
    rows = tuple(
        (f"{name} pool, {NAMES[latency]}", whole(one.n), seconds(one.mean), bounds(one.p50), bounds(one.p95))
        for name, pool in report.pools.items()
        for latency, one in ((latency, pool.latencies[latency]) for latency in LATENCIES)
    )
    note = "A quantile lies between its bucket's bounds; nothing finer is known of it."
    return Table("By the engines", ("", "of", "mean", "median", "95%"), rows, note)


def classes(report: Report) -> Table:
    rows = tuple(
        (f"{one.name}, {one.pool}", whole(one.requests), whole(one.failed), seconds(one.first_byte.mean),
         seconds(one.duration.mean), bounds(one.duration.p50), bounds(one.duration.p95))
        for one in report.classes
    )  # fmt: skip
    columns = ("class, pool", "requests", "failed", "first byte", "mean", "median", "95%")
    return Table("By class, at the routers", columns, rows)


def troubles(report: Report) -> Iterator[Table]:
    if report.incidents:
        rows = tuple(
            (one.alert, one.severity or "", when(one.start),
             "still open" if one.end is None else when(one.end), lasted(one.seconds), _labels(one))
            for one in report.incidents
        )  # fmt: skip
        note = (
            "Each counts once. What was not scraped for a while does not split one; where it began before it"
            " could be seen, its length is from then."
        )
        yield Table("Incidents", ("alert", "severity", "from", "to", "length", "of"), rows, note)
    if report.fallbacks:
        rows = tuple(
            (when(one.at), one.by, f"{one.percent}%", "still" if one.ended is None else lasted(one.seconds),
             NONE if one.full is None else when(one.full), one.why)
            for one in report.fallbacks
        )  # fmt: skip
        yield Table("Fall-backs", ("at", "by", "left", "for", "all back", "why"), rows)
    if not report.incidents and not report.fallbacks:
        found = (("alerts that fired", report.incidents), ("fall-backs", report.fallbacks))
        yield Table(
            "", ("", ""), tuple((name, "not known" if one is None else "none") for name, one in found)
        )


def _labels(one: Incident) -> str:
    ours = ("specops_pool", "model_name", "instance", "job", "latency", "state", "series")
    return ", ".join(one.labels[name] for name in ours if name in one.labels)


def memory(report: Report) -> Iterator[Table]:
    rows = tuple(
        (f"{name} pool", share(pool.kv_usage.mean), at(pool.kv_usage.highest, ".1%"))
        for name, pool in report.pools.items()
        if pool.kv_usage is not None
    )
    if rows:
        yield Table("KV cache in use", ("", "mean", "most, of any server"), rows)
    if report.gpus:
        gpus = tuple(
            (gpu.name, f"{gpu.mean_used_gib:.1f} GiB", f"{gpu.most_used_gib:.1f} GiB", share(gpu.most_share))
            for gpu in report.gpus
        )
        note = "An engine takes its share when it starts: this is what it holds, not what requests need."
        yield Table("GPU memory", ("", "mean", "most", "of all"), gpus, note)


def saved(saved: Saved) -> Table:
    saving = saved.without_server_hours - saved.server_hours
    worth = NONE if saved.money is None else f"{money(saved.money)} {saved.currency}"
    rows = (
        ("requests at comparable load", whole(saved.requests)),
        ("their tokens", whole(saved.tokens)),
        ("server-hours that they took", hours(saved.server_hours)),
        ("server-hours without speculation", hours(saved.without_server_hours)),
        ("saved", f"{hours(saving)} server-hours"),
        ("in money", worth),
    )
    return Table("", ("", ""), rows)


def days(report: Report) -> Table:
    rows = tuple(
        (f"{date.fromisoformat(day.date):%a %d %b}", whole(day.requests), times(day.speedup),
         share(day.acceptance), "" if day.hours == 24 else f"{day.hours} h")
        for day in report.days
    )  # fmt: skip
    return Table("By day", ("", "requests", "times as fast", "acceptance", ""), rows)


def drift(report: Report) -> Table:
    rows = tuple(
        (one.what, rate(one.then), rate(one.now), f"{one.now - one.then:+.3f}",
         "not known" if one.noise is None else f"±{one.noise:.3f}", "yes" if one.beyond else "no",
         one.source)
        for one in report.drift
    )  # fmt: skip
    columns = ("", "then", "now", "change", "noise", "beyond it", "then is of")
    note = "Noise is twice the standard error of the difference, with hours as they differed."
    return Table("", columns, rows, note)


def missing(report: Report) -> Table:
    rows = tuple((one.what, one.why, one.mend) for one in report.missing)
    return Table("", ("", "why", "how to get it"), rows)
