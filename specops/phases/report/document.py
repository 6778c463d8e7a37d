"""The report's page: sentences, sections and charts. Every figure on it is in the report's JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime

from specops.phases.effect import LiveEffect
from specops.phases.report import tables
from specops.phases.report.comparison import AT_POSITION, BEFORE
from specops.phases.report.report import (
    AlertIncident,
    FallbackPeriod,
    PoolReport,
    ReportAdvice,
    WeeklyReport,
    speculative_acceptance,
)
from specops.phases.report.tables import NONE, elapsed, share, times
from specops.prometheus.series import PoolName
from specops.render.figures import capital
from specops.render.report.document import (
    Axis,
    Chart,
    Curve,
    Document,
    Level,
    Line,
    Section,
    State,
    Step,
    Tile,
    TimeChart,
    Timeline,
)
from specops.results import Result

VERDICTS: Mapping[str, tuple[State, str]] = {
    "good": ("good", "Healthy"),
    "look": ("open", "Action recommended"),
    "no data": ("none", "No data"),
}
PARTLY = "Healthy, with parts unknown"


def document(report: WeeklyReport, result: Result) -> Document:
    status, _ = VERDICTS[report.status]
    headline, *summary = _sentences(report, result)
    return Document(
        title=f"Speculative decoding: {report.rollout}",
        subtitle=_subtitle(report),
        status=status,
        verdict=_verdict(report),
        headline=headline,
        summary=tuple(summary),
        tiles=tuple(_tiles(report)) if report.pools else (),
        steps=tuple(_step(recommendation) for recommendation in report.recommendations),
        axis=axis(report),
        sections=tuple(_sections(report)),
        foot=_foot(result),
    )


def _verdict(report: WeeklyReport) -> str:
    accepted = speculative_acceptance(report.pools)
    rate = accepted.rate if accepted else None
    figures = (report.speedup.by["e2e"].ratio, rate, report.incidents, report.fallbacks)
    word = PARTLY if report.status == "good" and None in figures else VERDICTS[report.status][1]
    if report.pools and report.covered_hours < report.window.hours:
        return f"{word}; only {report.covered_hours} of {report.window.hours} hours are known"
    return word


def _subtitle(report: WeeklyReport) -> str:
    first, last = (datetime.fromisoformat(edge) for edge in (report.window.start, report.window.end))
    hours = report.window.hours
    long = f"{hours / 24:g} days" if hours >= 48 else _count(hours, "hour")
    return f"{first:%a %d %b %Y %H:%M} to {last:%a %d %b %Y %H:%M}, {report.window.zone}: {long}"


def _sentences(report: WeeklyReport, result: Result) -> list[str]:
    """The headline first."""
    if not report.pools:
        return [f"{result.reason}."]
    sentences = []
    e2e, accepted = report.speedup.by["e2e"], speculative_acceptance(report.pools)
    if e2e.ratio is not None:
        basis = f" ({share(e2e.comparable_share)} of the requests are comparable)."
        if e2e.ratio >= 1:
            sentences.append(f"Answers were {e2e.ratio:.2f}× as fast as without speculation{basis}")
        else:
            sentences.append(f"Answers took {1 / e2e.ratio:.2f}× as long as without speculation{basis}")
    else:
        sentences.append(f"The speed-up is unknown: {e2e.why_not}.")
    if accepted is not None and accepted.rate is not None:
        sentences.append(f"{share(accepted.rate)} of the drafted tokens were accepted.")
    sentences.append(_saving(report))
    sentences.append(_trouble(report))
    number = len(report.recommendations)
    more = f", and {number - 1} more" if number > 1 else ""
    sentences.append(f"To do: {report.recommendations[0].message}{more}." if number else "No action needed.")
    return [sentence for sentence in sentences if sentence]


def _saving(report: WeeklyReport) -> str:
    saved = report.saved
    if saved is None:
        return ""
    saving = saved.without_server_hours - saved.server_hours
    if tables.hours(abs(saving)) == tables.hours(0):
        return "It neither saved nor cost server-hours."
    word = "saved" if saving >= 0 else "cost"
    sentence = f"It {word} {tables.hours(abs(saving))} server-hours"
    if saved.money is not None:
        worth = "worth" if saved.money >= 0 else "a loss of"
        sentence += f", {worth} {tables.money(abs(saved.money))} {saved.currency}"
    return sentence + "."


def _trouble(report: WeeklyReport) -> str:
    incidents, fallbacks = report.incidents, report.fallbacks
    if incidents == [] and fallbacks == []:
        return "No alert fired, and speculation was never switched off."
    fired = "the number of alerts is unknown"
    if incidents is not None:
        still = sum(incident.end is None for incident in incidents)
        fired = _count(len(incidents), "incident") + (f" ({still} still open)" if still else "")
    off = "the number of fallbacks is unknown"
    if fallbacks is not None:
        off = _count(len(fallbacks), "fallback")
    return capital(f"{fired}; {off}.")


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _tiles(report: WeeklyReport) -> Iterator[Tile]:
    e2e, accepted, saved = report.speedup.by["e2e"], speculative_acceptance(report.pools), report.saved
    yield Tile("Speed-up", times(e2e.ratio), f"end to end, {share(e2e.comparable_share)} comparable")
    yield Tile(
        "Acceptance",
        share(accepted.rate if accepted else None),
        f"{tables.rate(accepted.length)} tokens a step"
        if accepted and accepted.length
        else "of drafted tokens",
    )
    saving = saved.without_server_hours - saved.server_hours if saved else None
    yield Tile("Server-hours saved", tables.hours(saving), "at comparable load")
    if saved is not None and saved.money is not None:
        yield Tile("Saved", tables.money(saved.money), saved.currency or "")
    yield _incidents_tile(report.incidents)
    yield _fallbacks_tile(report.fallbacks)


def _incidents_tile(incidents: list[AlertIncident] | None) -> Tile:
    if incidents is None:
        return Tile("Incidents", NONE, "unknown")
    still = sum(incident.end is None for incident in incidents)
    return Tile("Incidents", str(len(incidents)), f"{still} still open" if still else "none open")


def _fallbacks_tile(fallbacks: list[FallbackPeriod] | None) -> Tile:
    if fallbacks is None:
        return Tile("Fallbacks", NONE, "unknown")
    off = sum(fallback.seconds for fallback in fallbacks)
    return Tile("Fallbacks", str(len(fallbacks)), f"{elapsed(off)} in total" if off else "never off")


def _step(recommendation: ReportAdvice) -> Step:
    value, threshold, source = recommendation.value, recommendation.threshold, recommendation.source
    reason = f"Source: {source}."
    if value is not None and threshold is not None:
        reason = f"{capital(recommendation.rule)} {value:.3g}, threshold {threshold:.3g} ({source})."
    return Step(capital(recommendation.message), reason, recommendation.command)


def _sections(report: WeeklyReport) -> Iterator[Section]:
    if report.effect is not None:
        yield Section("Live effect", (_live_effect(report.effect),), (), (tables.live_effect(report.effect),))
    if report.pools:
        yield Section(
            "Speed-up against the baseline",
            (_comparison_basis(report),),
            speedup(report),
            (tables.speedups(report), tables.days(report)),
        )
    accepted = speculative_acceptance(report.pools)
    if accepted is not None:
        by_position = tuple(tables.acceptance(report))
        yield Section("Acceptance", (), acceptance(report), by_position)
    if report.pools:
        by_class = (tables.classes(report),) if report.classes else ()
        latencies = (tables.traffic(report), tables.latencies(report), *by_class)
        yield Section("Traffic and latencies", (), traffic(report), latencies)
        events = tuple(tables.troubles(report))
        yield Section("Incidents and fallbacks", (), timeline(report), events)
        yield Section("Memory", (), memory(report), tuple(tables.memory(report)))
    if report.saved is not None:
        yield Section("Savings", (report.saved.assumption,), (), (tables.saved(report.saved),))
    if report.drift:
        yield Section("Drift", (), (), (tables.drift(report),))
    if report.missing:
        yield Section("Missing data", (), (), (tables.missing(report),))


def _drawn(effect: LiveEffect) -> str:
    return "the eligible requests" if effect.mode == "requests" else "the time, in random windows,"


def _live_effect(effect: LiveEffect) -> str:
    return (
        f"By chance {effect.holdout:.0%} of {_drawn(effect)} stayed on the standard pool; the ratios"
        f" compare speculation with these. {capital(effect.reason)}."
    )


def _comparison_basis(report: WeeklyReport) -> str:
    if report.speedup.source is None:
        return "No baseline to compare with."
    loads = report.speedup.loads
    return (
        f"Compared with {report.speedup.source}, measured at {loads[0]} to {loads[-1]} concurrent requests."
        " The speed-up of an hour is the baseline's time at the hour's load over the measured time."
        " Hours at a load outside this range are left out."
    )


def _foot(result: Result) -> tuple[str, ...]:
    read = ", ".join(f"{name}.json ({sha[:12]})" for name, sha in result.inputs.items())
    origin = f"Made {result.created:%Y-%m-%d %H:%M} UTC by specops {result.specops}"
    return (
        f"{origin} from Prometheus{f' and {read}' if read else ''}.",
        "Increases of counters are exact differences of samples, across resets, in the later sample's hour.",
    )


ORDER: tuple[PoolName, ...] = ("speculative", "standard")


def axis(report: WeeklyReport) -> Axis:
    pool = report.pools.get("speculative")
    unknown = [gap for gap in pool.gaps if gap.server is None] if pool else []
    return Axis(
        report.window.hours, _ticks(report), tuple(_hours(report, gap.start, gap.end) for gap in unknown)
    )


def _ticks(report: WeeklyReport) -> tuple[tuple[float, str], ...]:
    """Return at most about ten ticks: hours for windows up to two days, else days."""
    begins = [datetime.fromisoformat(begin) for begin in report.window.begins]
    if len(begins) <= 48:
        step = math.ceil(len(begins) / 8)
        return tuple((index, f"{begins[index]:%a %H:%M}") for index in range(0, len(begins), step))
    days = [
        index for index, begin in enumerate(begins) if index == 0 or begin.date() != begins[index - 1].date()
    ]
    if days[1] < 8:
        del days[0]  # a sliver of a day has no room for its name
    form = "%a %d" if len(days) <= 10 else "%d %b"
    return tuple((index, f"{begins[index]:{form}}") for index in days[:: math.ceil(len(days) / 10)])


def speedup(report: WeeklyReport) -> tuple[Chart, ...]:
    e2e = report.speedup.by["e2e"]
    if e2e.ratio is None:
        return ()
    description = f"by hour, {times(e2e.ratio)} over the window"
    lines = (
        Line("end to end", tuple(e2e.by_hour)),
        Line("per output token", tuple(report.speedup.by["tpot"].by_hour)),
    )
    return (
        TimeChart("Speed-up against the baseline", description, "speed-up", lines, (Level("equal", 1.0),)),
    )


def acceptance(report: WeeklyReport) -> tuple[Chart, ...]:
    pool = report.pools.get("speculative")
    accepted = pool.acceptance if pool else None
    if accepted is None or accepted.rate is None:
        return ()
    description = f"by hour, {share(accepted.rate)} over the window"
    limits = tuple(
        Level(f"{recommendation.threshold:.2f}", recommendation.threshold)
        for recommendation in report.recommendations
        if recommendation.rule == "acceptance" and recommendation.threshold is not None
    )
    charts: list[Chart] = [
        TimeChart(
            "Acceptance of drafted tokens", description, "accepted / drafted",
            (Line("acceptance", tuple(accepted.by_hour)),), limits, most=1,
        )
    ]  # fmt: skip
    if accepted.per_position:
        shares = ", ".join(share(reached) for reached in accepted.per_position)
        lines = [Line("this window", tuple(accepted.per_position))]
        then = tuple(drift.then for drift in report.drift if drift.what.startswith(AT_POSITION))
        if then:
            lines.append(Line(BEFORE, then))
        charts.append(Curve("Acceptance by position", shares, tuple(lines)))
    return tuple(charts)


def traffic(report: WeeklyReport) -> tuple[Chart, ...]:
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
        TimeChart("Requests", "finished requests by hour and pool", "requests an hour", requests),
        TimeChart("Time per output token", "mean by hour and pool", "ms", token),
    )


def _between_gaps(report: WeeklyReport, pool: PoolReport) -> tuple[float | None, ...]:
    """Return the requests by hour; None for an hour that a gap reaches into, which counts more or less
    time."""
    spans = [_hours(report, gap.start, gap.end) for gap in pool.gaps if gap.server is None]
    return tuple(
        None if any(begin < hour + 1 and end > hour for begin, end in spans) else n
        for hour, n in enumerate(pool.requests_by_hour)
    )


def memory(report: WeeklyReport) -> tuple[Chart, ...]:
    lines = tuple(
        Line(f"{name} pool", tuple(None if used is None else used * 100 for used in pool.kv_by_hour))
        for name, pool in ((name, report.pools[name]) for name in ORDER if name in report.pools)
        if pool.kv_usage is not None
    )
    chart = TimeChart("KV cache in use", "the fullest server, by hour", "%", lines, most=100)
    return (chart,) if lines else ()


def timeline(report: WeeklyReport) -> tuple[Chart, ...]:
    rows: dict[str, list[tuple[float, float]]] = {}
    for incident in report.incidents or []:
        end = incident.end or report.window.end
        rows.setdefault(incident.alert, []).append(_hours(report, incident.start, end))
    for fallback in report.fallbacks or []:
        end = fallback.ended or report.window.end
        rows.setdefault("speculation off", []).append(_hours(report, fallback.at, end))
    if not rows:
        return ()
    description = "times of alerts, and of speculation being off; the tables below give them as text"
    return (Timeline("Times", description, tuple((name, tuple(spans)) for name, spans in rows.items())),)


def _hours(report: WeeklyReport, start: str, end: str) -> tuple[float, float]:
    origin = datetime.fromisoformat(report.window.start).timestamp()
    first, last = ((datetime.fromisoformat(edge).timestamp() - origin) / 3600 for edge in (start, end))
    return max(first, 0.0), min(last, float(report.window.hours))
