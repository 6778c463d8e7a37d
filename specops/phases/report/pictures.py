"""Which charts a report has, and what each says to those who do not see it."""

from __future__ import annotations

import math
from datetime import datetime

from specops.phases.report.drift import AT_POSITION, BEFORE
from specops.phases.report.report import Gap, Pool, Report
from specops.phases.report.words import share, times
from specops.prometheus.exposed import PoolName
from specops.render.report.document import Axis, Chart, Curve, Level, Line, OverTime, Timeline

ORDER: tuple[PoolName, ...] = ("speculative", "standard")


def axis(report: Report) -> Axis:
    pool = report.pools.get("speculative")
    unknown = [gap for gap in pool.gaps if gap.server is None] if pool else []
    return Axis(report.window.hours, _ticks(report), tuple(_span(report, gap) for gap in unknown))


def _ticks(report: Report) -> tuple[tuple[float, str], ...]:
    """Some ten at most: of two days or less hours, else days."""
    begins = [datetime.fromisoformat(begin) for begin in report.window.begins]
    if len(begins) <= 48:
        apart = math.ceil(len(begins) / 8)
        return tuple((at, f"{begins[at]:%a %H:%M}") for at in range(0, len(begins), apart))
    days = [at for at, begin in enumerate(begins) if at == 0 or begin.date() != begins[at - 1].date()]
    if days[1] < 8:
        del days[0]  # a sliver of a day has no room for its name
    form = "%a %d" if len(days) <= 10 else "%d %b"
    return tuple((at, f"{begins[at]:{form}}") for at in days[:: math.ceil(len(days) / 10)])


def speedup(report: Report) -> tuple[Chart, ...]:
    e2e = report.speedup.by["e2e"]
    if e2e.ratio is None:
        return ()
    told = f"by hour, {times(e2e.ratio)} over the window"
    lines = (
        Line("whole answer", tuple(e2e.by_hour)),
        Line("token", tuple(report.speedup.by["tpot"].by_hour)),
    )
    return (
        OverTime("Times as fast as the baseline", told, "times as fast", lines, (Level("as fast", 1.0),)),
    )


def acceptance(report: Report) -> tuple[Chart, ...]:
    pool = report.pools.get("speculative")
    accepted = pool.acceptance if pool else None
    if accepted is None or accepted.rate is None:
        return ()
    told = f"by hour, {share(accepted.rate)} over the window"
    limits = tuple(
        Level(f"{one.threshold:.2f}", one.threshold)
        for one in report.recommendations
        if one.rule == "acceptance" and one.threshold is not None
    )
    charts: list[Chart] = [
        OverTime(
            "Acceptance of drafted tokens", told, "accepted / drafted",
            (Line("acceptance", tuple(accepted.by_hour)),), limits, most=1,
        )
    ]  # fmt: skip
    if accepted.per_position:
        said = ", ".join(share(each) for each in accepted.per_position)
        lines = [Line("this window", tuple(accepted.per_position))]
        then = tuple(one.then for one in report.drift if one.what.startswith(AT_POSITION))
        if then:
            lines.append(Line(BEFORE, then))
        charts.append(Curve("Acceptance by position", said, tuple(lines)))
    return tuple(charts)


def traffic(report: Report) -> tuple[Chart, ...]:
    pools = [(name, report.pools[name]) for name in ORDER if name in report.pools]
    requests = tuple(Line(f"{name} pool", _between_gaps(report, pool)) for name, pool in pools)
    token = tuple(
        Line(
            f"{name} pool",
            tuple(None if s is None else s * 1000 for s in pool.latencies["tpot"].by_hour),
        )
        for name, pool in pools
    )
    return (
        OverTime("Requests", "that ended, by hour and pool", "requests an hour", requests),
        OverTime("Time of a token after the first", "mean by hour and pool", "ms", token),
    )


def _between_gaps(report: Report, pool: Pool) -> tuple[float | None, ...]:
    """Without the counts of hours that a gap reaches into: they are of more time, or of less."""
    spans = [_hours(report, gap.start, gap.end) for gap in pool.gaps if gap.server is None]
    return tuple(
        None if any(begin < hour + 1 and end > hour for begin, end in spans) else n
        for hour, n in enumerate(pool.requests_by_hour)
    )


def memory(report: Report) -> tuple[Chart, ...]:
    lines = tuple(
        Line(f"{name} pool", tuple(None if used is None else used * 100 for used in pool.kv_by_hour))
        for name, pool in ((name, report.pools[name]) for name in ORDER if name in report.pools)
        if pool.kv_usage is not None
    )
    chart = OverTime("KV cache in use", "the fullest server, by hour", "%", lines, most=100)
    return (chart,) if lines else ()


def timeline(report: Report) -> tuple[Chart, ...]:
    rows: dict[str, list[tuple[float, float]]] = {}
    for incident in report.incidents or []:
        end = incident.end or report.window.end
        rows.setdefault(incident.alert, []).append(_hours(report, incident.start, end))
    for fallback in report.fallbacks or []:
        end = fallback.ended or report.window.end
        rows.setdefault("speculation off", []).append(_hours(report, fallback.at, end))
    if not rows:
        return ()
    told = "when alerts fired, and speculation was off: as in the tables below"
    return (Timeline("When", told, tuple((name, tuple(spans)) for name, spans in rows.items())),)


def _span(report: Report, gap: Gap) -> tuple[float, float]:
    return _hours(report, gap.start, gap.end)


def _hours(report: Report, start: str, end: str) -> tuple[float, float]:
    origin = datetime.fromisoformat(report.window.start).timestamp()
    first, last = ((datetime.fromisoformat(each).timestamp() - origin) / 3600 for each in (start, end))
    return max(first, 0.0), min(last, float(report.window.hours))
