"""A report in words: what stands on its pages, and in which order. Every figure is in its JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from specops.phases.report import pictures, tables, words
from specops.phases.report.report import Acceptance, Fallback, Incident, Recommendation, Report
from specops.phases.report.words import NONE, lasted, share, times
from specops.render.report.document import Document, Section, Step, Tile
from specops.results import Result

HEADLINES = {"good": "Healthy.", "look": "There is something to look at.", "no data": "Nothing is known."}
PARTLY = "Healthy, as far as is known."


def document(report: Report, result: Result) -> Document:
    return Document(
        title=f"Speculative decoding: {report.rollout}",
        subtitle=_subtitle(report),
        status=report.status,
        headline=_headline(report),
        summary=_summary(report, result),
        tiles=tuple(_tiles(report)) if report.pools else (),
        steps=tuple(_step(one) for one in report.recommendations),
        axis=pictures.axis(report),
        sections=tuple(_sections(report)),
        foot=_foot(result),
    )


def _headline(report: Report) -> str:
    accepted = _accepted(report)
    rate = accepted.rate if accepted else None
    seen = (report.speedup.by["e2e"].ratio, rate, report.incidents, report.fallbacks)
    return PARTLY if report.status == "good" and None in seen else HEADLINES[report.status]


def _subtitle(report: Report) -> str:
    first, last = (datetime.fromisoformat(each) for each in (report.window.start, report.window.end))
    hours = report.window.hours
    long = f"{hours / 24:g} days" if hours >= 48 else _count(hours, "hour")
    return f"{first:%a %d %b %Y %H:%M} to {last:%a %d %b %Y %H:%M}, {report.window.zone}: {long}"


def _accepted(report: Report) -> Acceptance | None:
    pool = report.pools.get("speculative")
    return pool.acceptance if pool else None


def _summary(report: Report, result: Result) -> str:
    if not report.pools:
        return f"{result.reason}."
    said = []
    e2e, accepted = report.speedup.by["e2e"], _accepted(report)
    if e2e.ratio is not None:
        word = "as fast as without speculation"
        said.append(
            f"Answers came {e2e.ratio:.2f} times {word}, as far as that can be compared"
            f" ({share(e2e.comparable_share)} of the requests)."
        )
    else:
        said.append(f"How much faster answers came is not known: {e2e.why_not}.")
    if accepted is not None and accepted.rate is not None:
        said.append(f"{share(accepted.rate)} of the drafted tokens were accepted.")
    said.append(_saving(report))
    said.append(_trouble(report))
    number = len(report.recommendations)
    said.append(
        f"To do: {report.recommendations[0].told}{_more(number - 1)}."
        if number
        else "Nothing needs to be done."
    )
    return " ".join(one for one in said if one)


def _more(number: int) -> str:
    return f", and {number} more" if number else ""


def _saving(report: Report) -> str:
    saved = report.saved
    if saved is None:
        return ""
    saving = saved.without_server_hours - saved.server_hours
    word = "saved" if saving >= 0 else "cost"
    said = f"It {word} {words.hours(abs(saving))} server-hours"
    if saved.money is not None:
        worth = "worth" if saved.money >= 0 else "a loss of"
        said += f", {worth} {words.money(abs(saved.money))} {saved.currency}"
    return said + "."


def _trouble(report: Report) -> str:
    incidents, fallbacks = report.incidents, report.fallbacks
    if incidents == [] and fallbacks == []:
        return "No alert fired, and speculation was never taken off."
    fired = "how many alerts fired is not known"
    if incidents is not None:
        still = sum(one.end is None for one in incidents)
        fired = _count(len(incidents), "incident") + (f" ({still} still open)" if still else "")
    off = "whether it was ever taken off is not known"
    if fallbacks is not None:
        off = _count(len(fallbacks), "fall-back")
    return _capital(f"{fired}; {off}.")


def _count(number: int, one: str) -> str:
    return f"{number or 'no'} {one}{'' if number == 1 else 's'}"


def _tiles(report: Report) -> Iterator[Tile]:
    e2e, accepted, saved = report.speedup.by["e2e"], _accepted(report), report.saved
    yield Tile("Speed-up", times(e2e.ratio), f"whole answers, {share(e2e.comparable_share)} comparable")
    yield Tile(
        "Acceptance",
        share(accepted.rate if accepted else None),
        f"{words.rate(accepted.length)} tokens a step"
        if accepted and accepted.length
        else "of drafted tokens",
    )
    saving = saved.without_server_hours - saved.server_hours if saved else None
    yield Tile("Server-hours saved", words.hours(saving), "at comparable load")
    if saved is not None and saved.money is not None:
        yield Tile("Saved", words.money(saved.money), saved.currency or "")
    yield _incidents_tile(report.incidents)
    yield _fallbacks_tile(report.fallbacks)


def _incidents_tile(incidents: list[Incident] | None) -> Tile:
    if incidents is None:
        return Tile("Incidents", NONE, "not known")
    still = sum(one.end is None for one in incidents)
    return Tile("Incidents", str(len(incidents)), f"{still} still open" if still else "none open")


def _fallbacks_tile(fallbacks: list[Fallback] | None) -> Tile:
    if fallbacks is None:
        return Tile("Fall-backs", NONE, "not known")
    off = sum(one.seconds for one in fallbacks)
    return Tile("Fall-backs", str(len(fallbacks)), f"{lasted(off)} in all" if off else "never off")


def _step(one: Recommendation) -> Step:
    if one.value is None or one.threshold is None:
        return Step(_capital(one.told), f"By {one.source}.", one.command)
    return Step(
        _capital(one.told),
        f"{_capital(one.rule)} {one.value:.3g}, threshold {one.threshold:.3g} ({one.source}).",
        one.command,
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sections(report: Report) -> Iterator[Section]:
    if report.pools:
        yield Section(
            "Speed-up against the baseline",
            (_compared(report),),
            pictures.speedup(report),
            (tables.speedups(report), tables.days(report)),
        )
    accepted = _accepted(report)
    if accepted is not None:
        by_position = tuple(tables.acceptance(report))
        yield Section("Acceptance", (), pictures.acceptance(report), by_position)
    if report.pools:
        by_class = (tables.classes(report),) if report.classes else ()
        latencies = (tables.traffic(report), tables.latencies(report), *by_class)
        yield Section("Traffic and latencies", (), pictures.traffic(report), latencies)
        events = tuple(tables.troubles(report))
        yield Section("Incidents and fall-backs", (), pictures.timeline(report), events)
        yield Section("Memory", (), pictures.memory(report), tuple(tables.memory(report)))
    if report.saved is not None:
        yield Section("What it saved", (report.saved.assumption,), (), (tables.saved(report.saved),))
    if report.drift:
        yield Section("Drift", (), (), (tables.drift(report),))
    if report.missing:
        yield Section("What is not known", (), (), (tables.missing(report),))


def _compared(report: Report) -> str:
    if report.speedup.source is None:
        return "There is no baseline to compare with."
    loads = report.speedup.loads
    return (
        f"Against {report.speedup.source}, measured with {loads[0]} to {loads[-1]} requests at a time: of"
        " every hour, the time its requests would have taken at the load they met, over the time they took."
        " Hours at a load outside of these are left out."
    )


def _foot(result: Result) -> tuple[str, ...]:
    read = ", ".join(f"{name}.json ({sha[:12]})" for name, sha in result.inputs.items())
    made = f"Made {result.created:%Y-%m-%d %H:%M} UTC by specops {result.specops}"
    return (
        f"{made} from Prometheus{f' and {read}' if read else ''}.",
        "Counters' increases are exact: differences of samples, across resets, in the hour of the later one.",
    )
