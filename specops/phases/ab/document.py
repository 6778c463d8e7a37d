"""A comparison as a document: the terminal, the page of a run and a notebook show it.

Every figure in it is in ab.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specops.defaults import CONFIDENCE
from specops.experiment.findings import Decision
from specops.experiment.samples import longest_run
from specops.hints import with_options
from specops.load.arrivals import Level
from specops.load.record import Row
from specops.load.replay import ReplayFacts
from specops.load.request_drafts import by_prompt_length, by_turn
from specops.load.validity import LatencyChange
from specops.load.workload import conversations_sentence, repeated_sentence
from specops.phases.ab.cache_section import cache_section
from specops.phases.ab.earlier import BaselineDrift, measurements_of
from specops.phases.ab.report import (
    ArmFigures,
    Challenger,
    DeployTarget,
    ParityCounts,
    Report,
    Speedups,
    read,
)
from specops.phases.ab.sentences import Conclusion, conclude
from specops.phases.ab.trust import WIDE, caution, doubts
from specops.phases.claims_table import claims_table
from specops.phases.latency_section import ALL, latency_section, replay_section
from specops.render.figures import NONE, between, change_ms, count, decimals, milliseconds, sentence, times
from specops.render.report.document import (
    Cell,
    Curve,
    Document,
    Line,
    Ratio,
    Ratios,
    Section,
    State,
    Step,
    Table,
    Tile,
    shown_state,
)
from specops.results import Result
from specops.serving import ENGINES

FILE = "ab.json"


def document(result: Result, path: Path) -> Document:
    """The document of a finished comparison, which `path` holds. Raises FileError for a damaged one."""
    report = read(result, str(path))
    conclusion = _conclusion(result, report)
    cautions = dict.fromkeys(caution(doubts(report, name)) for name in report.challengers)
    return Document(
        title="ab",
        subtitle=_subtitle(result, report, path),
        status=conclusion.state,
        verdict=conclusion.verdict,
        headline=sentence(conclusion.headline),
        summary=(*conclusion.support, *(Cell(text, "open") for text in cautions if text)),
        tiles=tuple(tiles(report, report.best or next(iter(report.challengers)))),
        steps=tuple(_steps(result, report)),
        sections=tuple(sections(result, report)),
    )


def _conclusion(result: Result, report: Report) -> Conclusion:
    """The conclusion on one challenger; of several, what each showed and the verdict over all."""
    conclusions = {name: conclude(report, name) for name in report.challengers}
    reason = sentence(result.reason)
    if len(conclusions) == 1:
        (single,) = conclusions.values()
        return Conclusion(single.state, single.verdict, single.headline, (*single.support, reason))
    chosen = conclusions[report.best or next(iter(conclusions))]
    support = tuple(
        f"{name}: {text}"
        for name, conclusion in conclusions.items()
        for text in (*conclusion.support, conclusion.headline)
    )
    return Conclusion(chosen.state, chosen.verdict, reason, support)


def _subtitle(result: Result, report: Report, path: Path) -> str:
    prompts, looks = result.data.get("prompts", {}), result.data.get("looks", {})
    classes = {name for challenger in report.challengers.values() for name in challenger.classes}
    parts = [
        ", ".join(filter(None, (count(len(report.arms), "arm"), result.settings.get("design")))),
        f"{count(prompts.get('count', 0), 'prompt')} in {count(len(classes), 'class', 'classes')}",
        repeated_sentence(prompts.get("repeated", 0), prompts.get("count", 0)),
        conversations_sentence(prompts),
        "later turns on own answers" if result.settings.get("live_answers") else "",
        f"look {looks.get('done')} of {looks.get('planned')}",
        str(path),
    ]
    return " · ".join(filter(None, parts))


def tiles(report: Report, name: str) -> Iterator[Tile]:
    """Yield the figures of the challenger `name` that are shown first."""
    challenger = report.challengers[name]
    ends = challenger.levels[:1] + challenger.levels[1:][-1:]
    for level in ends:
        speedups, interval = level.speedups, level.speedups.e2e
        yield Tile(
            f"Speed-up at {speedups.level}",
            f"{interval.estimate:.2f}×" if interval else NONE,
            f"[{interval.low:.2f}, {interval.high:.2f}], {count(speedups.prompts, 'prompt')}"
            if interval
            else f"too few of {count(speedups.prompts, 'prompt')}",
            shown_state(level.decision.verdict, interval),
        )
    counts = [figures.acceptance for figures in report.arms.get(name, []) if figures.acceptance is not None]
    if counts and counts[0].rate is not None and counts[0].length is not None:
        note = f"of drafted tokens; {counts[0].length:.1f} tokens a step"
        yield Tile("Acceptance", f"{counts[0].rate:.0%}", note)
    parity = [counted for counted in challenger.parity if not counted.mixed]
    if parity:
        worst = min(parity, key=lambda counted: counted.equal / max(counted.compared, 1))
        state: State = "good" if worst.equal == worst.compared else "open"
        yield Tile("Equal answers", f"{worst.equal} of {worst.compared}", "greedy, at each load", state)


def sections(result: Result, report: Report, steadiness: Sequence[LatencyChange] = ()) -> Iterator[Section]:
    """Yield what was measured and on what the decision rests; `steadiness` is the baseline's."""
    several = len(report.challengers) > 1
    for name in report.challengers:
        suffix = f": {name} against {report.standard}" if several else ""
        yield _speedups(result, report, name, suffix)
        yield _trust(report, name, steadiness, suffix)
    yield _latencies(result, report)
    for name, challenger in report.challengers.items():
        suffix = f": {name}" if several else ""
        yield _acceptance(result, report, name, suffix)
        yield _answers(challenger, suffix)
    yield from cache_section(report, FILE)
    if report.differences:
        rows = tuple((row.of, row.what, row.other, row.one) for row in report.differences)
        table = Table("", ("arm", "what", "there", f"in {report.standard}"), rows)
        yield Section("What differs besides speculation", tables=(table,), sources=(FILE,))
    if result.data.get("replay"):
        windows = measurements_of(result, FILE).windows
        late = [f"{w.arm}: {w.cell.client_bound}" for w in windows if w.cell.client_bound]
        yield replay_section(ReplayFacts.model_validate(result.data["replay"]), late, FILE)
    if "against" in result.data:
        yield _earlier(BaselineDrift.model_validate(result.data["against"]))


def _speedups(result: Result, report: Report, name: str, suffix: str) -> Section:
    challenger = report.challengers[name]
    ratios: list[Ratio] = []
    throughputs: list[tuple[str, str]] = []
    rows: list[tuple[str | Cell, ...]] = []
    for traffic_class, speedups, decision, throughput in _cells(challenger):
        load, interval = str(speedups.level), speedups.e2e
        state = shown_state(decision.verdict, interval)
        throughputs.append((f"{traffic_class}, {load}", throughput))
        ratios.append(Ratio.of_interval(traffic_class, load, state, interval))
        rows.append(
            (
                f"{traffic_class}, {load}",
                Cell(_word(challenger, traffic_class, speedups.level, decision), state),
                times(interval),
                times(speedups.tpot),
                change_ms(speedups.ttft_change_ms),
                str(speedups.prompts),
                "" if decision.reason == times(interval) else decision.reason,
            )
        )
    confidence = f"{result.settings.get('confidence', CONFIDENCE):.0%}"
    expected = {figure: f"{between(ends)}×" for figure, ends in report.expected.items()}
    note = (
        f"Brackets: {confidence} intervals. The {confidence} is for the whole table, also if the run ended"
        " early. A load can pay only if all lighter loads pay. Default targets are"
        f" {expected['e2e']} end to end and {expected['tpot']} per output token."
    )
    columns = ("class, load", "verdict", "end to end", "per output token", "TTFT", "prompts", "why")
    throughput_table = Table(
        "Throughput",
        ("class, load", "times the standard's"),
        tuple(throughputs),
        f"Tokens a second. The default target is {expected['throughput']}.",
        folded=f"Throughput over the standard's: {count(len(throughputs), 'row')}",
    )
    unit = f"{name} against {report.standard}, with intervals, log scale"
    text = [challenger.load] if challenger.load else []
    if not text and len(challenger.levels) == 1:
        load = str(challenger.levels[0].speedups.level)
        text = [f"One load was measured, {load}. Where it stops paying is unknown."]
    return Section(
        f"Where it pays{suffix}",
        tuple(text),
        (Ratios("Speed-up end to end", "; ".join(map(str, ratios)), unit, tuple(ratios)),),
        (Table("", columns, tuple(rows), note, prose=(6,)), _claims(result, challenger), throughput_table),
        sources=(FILE,),
        guide="docs/compare.md",
    )


def _cells(challenger: Challenger) -> Iterator[tuple[str, Speedups, Decision, str]]:
    """Yield each class and load with its throughput, by load from the lightest: all classes together, then
    one after the other."""
    for number, level in enumerate(challenger.levels):
        if len(challenger.classes) != 1:
            window_throughput = level.throughput
            throughput = (
                times(window_throughput.ratio, window_throughput.estimate) if window_throughput else NONE
            )
            yield ALL, level.speedups, level.decision, throughput
        for name, figures in challenger.classes.items():
            row = figures.levels[number]
            yield name, row, row.decision, times(row.stream_throughput)


def _word(challenger: Challenger, traffic_class: str, level: Level, decision: Decision) -> str:
    """Return the verdict of a row: a class that gains is deployed only where the challenger may be."""
    if traffic_class == ALL:
        return {"yes": "pays", "no": "does not pay"}.get(decision.verdict, "undecided")
    if DeployTarget(traffic_class=traffic_class, level=level) in challenger.deploy:
        return "deploy"
    return {"yes": "faster", "no": "do not deploy"}.get(decision.verdict, "undecided")


def _claims(result: Result, challenger: Challenger) -> Table:
    """The table on which the decision rests."""
    seconds = result.data.get("duration_s", 0.0)
    time = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
    windows = measurements_of(result, FILE).windows
    runs = [longest_run(windows, arm) for arm in {window.arm for window in windows}]
    run = f", and each for {min(runs)} requests without a pause" if runs else ""
    note = (
        f"Both arms were observed for {time} together{run}; what changes more slowly was not observed. "
        "A deployment needs each item to be shown."
    )
    findings = [finding for finding in challenger.findings if finding.decides]
    return claims_table("What was shown", findings, note)


def _trust(report: Report, name: str, steadiness: Sequence[LatencyChange], suffix: str) -> Section:
    doubted = doubts(report, name, steadiness)
    rows = tuple(
        (doubt.name, Cell(line, "open" if line in doubt.observed else "none" if doubt.unknown else "good"))
        for doubt in doubted
        for line in doubt.lines
    )
    note = (
        f"An interval is wide where its ends are {WIDE:g} times apart or more. Drift: the last quarter of an"
        " arm's requests at a load against the first half, and the last half against the first quarter."
    )
    sources = (FILE, *(["baseline.json"] if steadiness else []))
    return Section(
        f"Can this measurement be trusted?{suffix}",
        tuple(filter(None, [caution(doubted)])),
        (),
        (Table("", ("limit", "observed"), rows, note, prose=(1,)),),
        sources=sources,
        guide="docs/compare.md",
    )


def _latencies(result: Result, report: Report) -> Section:
    rows: dict[tuple[str, Level], list[Row]] = {}
    for window in measurements_of(result, FILE).windows:
        if window.kind == "measured":
            answered = [row for row in window.cell.rows if row.error is None]
            rows.setdefault((window.arm, window.level), []).extend(answered)
    table = tuple(_requests(arm, figures) for arm, levels in report.arms.items() for figures in levels)
    columns = ("arm, load", "tokens", "requests", "failed", "late", "sent again", "the slowest")
    further = Table("Throughput, failures and tails", columns, table)
    return latency_section(rows, list(report.arms), [further], FILE)


def _requests(arm: str, figures: ArmFigures) -> tuple[str | Cell, ...]:
    kinds = ", ".join(f"{kind} {number}" for kind, number in figures.failures.items())
    return (
        f"{arm}, {figures.level}",
        f"{figures.tokens_per_sec:.0f} tok/s" if figures.tokens_per_sec else NONE,
        str(figures.requests),
        Cell(f"{figures.failed} ({kinds})", "bad") if figures.failed else "0",
        str(figures.late),
        str(figures.retried),
        ", ".join(map(milliseconds, figures.slowest_ms)) or NONE,
    )


def _acceptance(result: Result, report: Report, name: str, suffix: str) -> Section:
    figures = report.arms.get(name, [])
    counted = [(str(row.level), row.acceptance) for row in figures if row.acceptance is not None]
    lines = tuple(Line(level, tuple(counts.per_position)) for level, counts in counted)
    positions = max((len(line.values) for line in lines), default=0)
    rows = tuple(
        (
            level,
            f"{counts.accepted_tokens:,.0f} / {counts.draft_tokens:,.0f}",
            decimals(counts.rate, 3),
            decimals(counts.length, 2),
            *map(_share, [*counts.per_position, *[None] * (positions - len(counts.per_position))]),
        )
        for level, counts in counted
    )
    values = "; ".join(f"{line.label}: {', '.join(map(_share, line.values))}" for line in lines)
    chart = Curve("Acceptance by position", values, lines[:3], "share of drafts accepted so far")
    places = tuple(f"position {place + 1}" for place in range(positions))
    columns = ("load", "accepted / drafted", "rate", "tokens a step", *places)
    missing = dict.fromkeys(
        row.acceptance_missing or "nothing was drafted" for row in figures if not row.acceptance
    )
    note = f"The default target is a rate of {between(report.expected['acceptance'])}."
    return Section(
        f"Acceptance{suffix}",
        tuple(f"Unknown: {why}." for why in missing),
        (chart,) if positions else (),
        ((Table("", columns, rows, note),) if rows else ()) + tuple(_acceptance_of_requests(result, name)),
        sources=(FILE,),
        guide="docs/tune.md",
    )


def _acceptance_of_requests(result: Result, name: str) -> Iterator[Table]:
    """Yield what the answers of an arm report of their drafts, by what differs between requests."""
    windows = [w for w in measurements_of(result, FILE).windows if w.arm == name and w.kind == "measured"]
    answered = [row for window in windows for row in window.cell.rows if row.error is None]
    columns = ("requests", "accepted / drafted", "rate", "tokens a step")
    for title, groups in (("By turn", by_turn(answered)), ("By length", by_prompt_length(answered))):
        rows = tuple(
            (
                f"{group}, n={drafts.requests}",
                f"{drafts.accepted:,} / {drafts.drafted:,}",
                decimals(drafts.rate, 3),
                decimals(drafts.length, 2),
            )
            for group, drafts in groups.items()
        )
        if len(rows) > 1:
            yield Table(f"{title}, as the answers report it", columns, rows)


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def _answers(challenger: Challenger, suffix: str) -> Section:
    columns = ("answers compared", "equal", "standard repeats itself", "near ties")
    table = Table("Equal greedy answers", columns, tuple(map(_parity, challenger.parity)))
    return Section(
        f"Answers{suffix}",
        () if challenger.parity else ("Answers were not compared: no answer was greedy.",),
        (),
        (table,) if challenger.parity else (),
        sources=(FILE,),
        guide="docs/canary.md",
    )


def _parity(counts: ParityCounts) -> tuple[str | Cell, ...]:
    control = counts.control
    alike = counts.equal == counts.compared or (
        control is not None and counts.equal * control.compared >= control.equal * counts.compared
    )
    return (
        f"{counts.level}{', among sampled requests' if counts.mixed else ''}",
        Cell(
            f"{counts.equal} of {counts.compared}",
            "good" if alike else "bad" if control is not None else "open",
        ),
        f"{control.equal} of {control.compared}" if control is not None else "unknown",
        str(counts.near_ties),
    )


def _earlier(drift: BaselineDrift) -> Section:
    changes = tuple((change.arm, str(change.level), times(change.e2e)) for change in drift.changes)
    differences = tuple((row.of, row.what, row.one, row.other) for row in drift.differences)
    return Section(
        "Against an earlier run",
        (f"The run of {drift.recorded:%Y-%m-%d %H:%M} UTC was not interleaved with this one.",),
        tables=(
            Table("", ("arm", "load", "its speed then"), changes),
            *([Table("", ("of", "what", "then", "now"), differences)] if differences else []),
        ),
        sources=(FILE,),
    )


def _steps(result: Result, report: Report) -> Iterator[Step]:
    """Yield what to change, and the command that follows it."""
    arms: Mapping[str, Any] = result.settings.get("arms", {})
    if report.same_server is not None:
        base_url = arms.get(report.standard, {}).get("base_url", "URL")
        command = f"specops ab --arm standard={base_url} --arm speculative=http://HOST:8001/v1"
        yield Step("", "", command)
    elif report.best is not None:
        yield _deployment(arms.get(report.best) or {})
    elif result.verdict == "undecided":
        more = result.summary.get("more_prompts")
        options: dict[str, str | bool] = {"--fresh": True}
        action = "fix what is not shown above; more requests alone would not decide it"
        if more:
            options["--requests"] = str(int(result.settings.get("requests", 0)) + more)
            action = f"about {more} more requests to each arm would decide"
        yield Step(action, "", with_options(options))
    else:
        action = "serve without speculation, or compare another draft or tree as an arm"
        yield Step(action, "lists the forms of --arm", "specops ab --help")


def _deployment(pool: Mapping[str, Any]) -> Step:
    """Return the step that deploys a pool; `pool` as the result stores it."""
    engine = ENGINES.get(str(pool.get("engine")))
    if engine is not None and engine.serve is not None:
        words = engine.serve(pool)
        if words.startswith("specops "):
            return Step("", "", words)
        return Step(f"start the pool with: {words}", "", "")
    where = pool.get("base_url") or "this arm"
    return Step(f"send the classes of the decision above to {where}", "", "")
