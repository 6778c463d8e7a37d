"""The sections of a run's page: one function each, from the run folder to what the section shows.

Every figure is in the JSON file that the section names. A section that has nothing to show is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from specops.defaults import CONFIDENCE
from specops.experiment.findings import Decision
from specops.experiment.records import ordered
from specops.experiment.sentences import table as items
from specops.load.arrivals import Level
from specops.load.record import Row, Spread
from specops.phases import PHASES, phase_named
from specops.phases.ab.report import ArmFigures, Challenger, ParityCounts, Speedups
from specops.phases.ab.trust import WIDE, caution
from specops.phases.canary.checks import CHECKS
from specops.phases.canary.pool_pair import Finding
from specops.phases.checklist.evidence import Item, Status
from specops.phases.checklist.evidence import todo as checklist_todo
from specops.phases.route import UNMATCHED_NOTE, unmatched_sentence
from specops.phases.run_page.conclusion import challenger_of, doubts_of, shown_state, unrouted
from specops.phases.run_page.conditions import DIGITS, conditions
from specops.phases.run_page.folder import RunFolder
from specops.phases.sweep.report import Report as Sweep
from specops.phases.sweep.report import SettingFigures
from specops.render.figures import NONE, count, milliseconds, sentence, times
from specops.render.report.document import (
    Cell,
    Chart,
    Curve,
    Distribution,
    Line,
    Ratio,
    Ratios,
    Samples,
    Section,
    State,
    Step,
    Table,
)
from specops.stats import Interval

ALL = "all classes"
MOST_LOADS = 4
"""Number of loads that have charts of their distributions; the table has all."""
ITEM_STATES: Mapping[Status, State] = {"passed": "good", "attested": "good", "failed": "bad", "open": "open"}
CHECK_STATES: Mapping[str, State] = {
    "pass": "good",
    "fail": "bad",
    "differs": "bad",
    "undecided": "open",
    "unsupported": "none",
}
ITEM_VERDICTS: Mapping[str, State] = {"shown": "good", "against": "bad", "open": "open", "unknown": "none"}
PAYS = {"yes": "pays", "no": "does not pay", "undecided": "undecided", "partial": "stopped"}
LATENCIES = (("end to end", "e2e_ms"), ("first token", "ttft_ms"), ("per output token", "tpot_ms"))


def sections(run: RunFolder) -> Iterator[Section]:
    for make in (
        _speedups,
        _trust,
        _latencies,
        _acceptance,
        _sweep,
        _answers,
        _routing,
        _checklist,
        _files,
        conditions,
    ):
        made = make(run)
        if made is not None:
            yield made


def _speedups(run: RunFolder) -> Section | None:
    report = run.comparison
    if report is None:
        return None
    name = challenger_of(report)
    found = report.challengers[name]
    rows: list[Ratio] = []
    table: list[tuple[str | Cell, ...]] = []
    for traffic, speedups, decision in _cells(found):
        where = str(speedups.level)
        state = shown_state(decision.verdict, speedups.e2e)
        rows.append(_ratio(traffic, where, state, speedups.e2e))
        table.append(
            (
                f"{traffic}, {where}",
                Cell(PAYS[decision.verdict], state),
                times(speedups.e2e),
                times(speedups.tpot),
                f"{speedups.ttft_change_ms:+.0f} ms" if speedups.ttft_change_ms is not None else NONE,
                str(speedups.prompts),
                "" if decision.reason == times(speedups.e2e) else decision.reason,
            )
        )
    said = "; ".join(f"{row.group}, {row.label}: {_ratio_text(row)}" for row in rows)
    unit = f"{name} against {report.standard}, with intervals, log scale"
    chart = Ratios("Speed-up end to end", said, unit, tuple(rows))
    note = (
        f"Brackets: {_confidence(run)} intervals. The {_confidence(run)} is for the whole table, also if"
        " the run ended early. A load can pay only if all lighter loads pay."
    )
    columns = ("class, load", "verdict", "end to end", "per output token", "TTFT", "prompts", "why")
    return Section(
        "Where it pays",
        tuple(_stops(run, found)),
        (chart,),
        (Table("", columns, tuple(table), note, prose=(6,)), _claims(run, found)),
        sources=("ab.json",),
        guide="docs/compare.md",
    )


def _trust(run: RunFolder) -> Section | None:
    found = doubts_of(run.walk()) if run.comparison is not None else []
    rows = tuple(
        (doubt.name, Cell(line, "open" if line in doubt.observed else "none" if doubt.unknown else "good"))
        for doubt in found
        for line in doubt.lines
    )
    if not rows:
        return None
    note = (
        f"An interval is wide where its ends are {WIDE:g} times apart or more. Drift: the last quarter of an"
        " arm's requests at a load against the first half, and the last half against the first quarter."
    )
    columns = ("limit", "observed")
    sources = ("ab.json", *(["baseline.json"] if "baseline" in run.results else []))
    return Section(
        "Can this measurement be trusted?",
        (caution(found),) if caution(found) else (),
        (),
        (Table("", columns, rows, note, prose=(1,)),),
        sources=sources,
        guide="docs/compare.md",
    )


def _claims(run: RunFolder, challenger: Challenger) -> Table:
    """The table on which the decision rests."""
    rows = (
        (*row[:5], Cell(row[5], ITEM_VERDICTS[finding.verdict]))
        for finding, row in zip(challenger.findings, items(challenger.findings), strict=True)
        if finding.load is None
        or finding.claim not in ("failures", "answers")
        or finding.verdict == "against"
    )
    seconds = float(run.results["ab"].data.get("duration_s", 0.0))
    note = (
        f"Both arms were observed for {seconds:.0f} s together; what changes more slowly was not observed. "
        "A deployment needs each item to be shown."
    )
    columns = ("item", "observed", "bound", "margin", "n", "verdict")
    return Table("What was shown", columns, tuple(dict.fromkeys(rows)), note)


def _cells(found: Challenger) -> Iterator[tuple[str, Speedups, Decision]]:
    """Yield the cells by load from the lightest: all classes together, then each."""
    for number, level in enumerate(found.levels):
        if len(found.classes) != 1:
            yield ALL, level.speedups, level.decision
        for name, of in found.classes.items():
            yield name, of.levels[number], of.levels[number].decision


def _ratio(label: str, group: str, state: State, interval: Interval | None) -> Ratio:
    if interval is None:
        return Ratio(label, group, state, None)
    return Ratio(label, group, state, interval.estimate, interval.low, interval.high)


def _ratio_text(row: Ratio) -> str:
    if row.estimate is None:
        return "no figure"
    return f"{row.estimate:.2f}× [{row.low:.2f}, {row.high:.2f}]"


def _confidence(run: RunFolder) -> str:
    return f"{run.results['ab'].settings.get('confidence', CONFIDENCE):.0%}"


def _stops(run: RunFolder, found: Challenger) -> Iterator[str]:
    """Yield up to which load it pays: by the comparison, by the sweep, and where the router switches it
    off."""
    if found.load:
        yield found.load
    elif len(found.levels) == 1:
        yield f"One load was measured, {found.levels[0].speedups.level}. Where it stops paying is unknown."
    sweep = run.sweep
    if sweep is not None and sweep.crossover is not None:
        yield f"Sweep: {sweep.crossover.message}."
    rule = run.results["route"].data.get("rules", {}).get("max_in_flight") if "route" in run.results else None
    if isinstance(rule, dict) and rule.get("value") is not None:
        yield (
            f"The router uses speculation up to {count(int(rule['value']), 'request')} in flight"
            f" ({rule.get('source')})."
        )


def _latencies(run: RunFolder) -> Section | None:
    report = run.comparison
    if report is None:
        rows = _baseline_rows(run)
        return _latency_section(rows, ["standard"], [], "baseline.json") if rows else None
    throughput = tuple(
        (
            f"{arm}, {found.level}",
            f"{found.tokens_per_sec:.0f} tok/s" if found.tokens_per_sec else NONE,
            str(found.requests),
            Cell(str(found.failed), "bad" if found.failed else None),
            str(found.late),
        )
        for arm, measured in report.arms.items()
        for found in measured
    )
    columns = ("arm, load", "tokens", "requests", "failed", "late")
    further = Table("Throughput and failures", columns, throughput)
    return _latency_section(_rows(run), list(report.arms), [further], "ab.json")


def _latency_section(
    rows: Mapping[tuple[str, Level], Sequence[Row]],
    arms: Sequence[str],
    further: Sequence[Table],
    source: str,
) -> Section:
    levels = ordered(level for arm, level in rows if arm == arms[0])
    charts = [
        _distribution(f"{latency.capitalize()} at {level}", rows, [(arm, level) for arm in arms], key)
        for level in _loads_shown(levels)
        for latency, key in LATENCIES[:2]
    ]
    table = tuple(
        (f"{latency}, {level}", arm, *_spread(spread), str(spread.n))
        for level in levels
        for latency, key in LATENCIES
        for arm in arms
        if (arm, level) in rows
        for spread in (Spread.of(_values(rows[arm, level], key)),)
    )
    columns = ("latency, load", "arm", "p50", "p95", "p99", "slowest", "n")
    note = " ".join(
        (
            "Latencies are those of whole answers. A percentile needs enough requests: – means too few.",
            *_unknown_tpot(rows, arms),
        )
    )
    tables = (Table("", columns, table, note), *further, *_workload(rows, arms))
    charts += _lengths(rows, arms)
    return Section("Latency", (), tuple(charts), tables, sources=(source,), guide="docs/measure.md")


def _unknown_tpot(rows: Mapping[tuple[str, Level], Sequence[Row]], arms: Iterable[str]) -> Iterator[str]:
    """Yield why an arm has no latency per output token."""
    for arm in arms:
        found = _of_arm(rows, arm)
        reasons = Counter(row.missing["tpot_ms"] for row in found if "tpot_ms" in row.missing)
        if reasons and not _values(found, "tpot_ms"):
            yield f"Per output token, {arm} is not known: {reasons.most_common(1)[0][0]}."


def _lengths(rows: Mapping[tuple[str, Level], Sequence[Row]], arms: Iterable[str]) -> list[Distribution]:
    """Return the lengths of prompts and of each arm's answers: a latency means little without them."""
    prompts = Samples("prompts", tuple(_values(_distinct(rows), "prompt_tokens")))
    answers = tuple(Samples(arm, tuple(_values(_of_arm(rows, arm), "tokens"))) for arm in arms)
    return [
        Distribution(
            title,
            "cumulative share. " + "; ".join(f"{one.label}: {_of_lengths(one.values)}" for one in samples),
            samples,
            "share up to p99; dots: p50, p95",
            of="tokens",
        )
        for title, samples in (("Prompt length", (prompts,)), ("Answer length", answers))
        if any(len(one.values) > 1 for one in samples)
    ]


def _of_lengths(values: Sequence[float]) -> str:
    spread = Spread.of(values)
    return f"p50 {_tokens(spread.p50)} tokens, p95 {_tokens(spread.p95)}, n={spread.n}"


def _workload(rows: Mapping[tuple[str, Level], Sequence[Row]], arms: Iterable[str]) -> Iterator[Table]:
    """Yield what was sent and answered, by class."""
    prompts = _distinct(rows)
    of = [("prompts", "prompt_tokens", prompts)]
    of += [(f"answers of {arm}", "tokens", _of_arm(rows, arm)) for arm in arms]
    classes = sorted({row.traffic_class for row in prompts})
    lines = []
    for name in [*([ALL] if len(classes) > 1 else []), *classes]:
        for what, key, found in of:
            values = _values((row for row in found if name in (ALL, row.traffic_class)), key)
            spread = Spread.of(values)
            if values:
                shown = map(_tokens, (spread.p50, spread.p95, spread.max))
                lines.append((f"{what}, {name}", *shown, str(spread.n)))
    note = "Lengths in tokens, as the servers count them. A percentile needs enough of them: – means too few."
    if lines:
        yield Table("Workload", ("length of", "p50", "p95", "longest", "n"), tuple(lines), note)


def _tokens(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f}"


def _of_arm(rows: Mapping[tuple[str, Level], Sequence[Row]], arm: str) -> list[Row]:
    return [row for (of, _), found in rows.items() if of == arm for row in found]


def _distinct(rows: Mapping[tuple[str, Level], Sequence[Row]]) -> list[Row]:
    """A row for each prompt."""
    return list({row.prompt: row for found in rows.values() for row in found}.values())


def _baseline_rows(run: RunFolder) -> dict[tuple[str, Level], list[Row]]:
    """The answered requests of the baseline at each load."""
    found: dict[tuple[str, Level], list[Row]] = {}
    for cell in run.baseline_cells():
        found.setdefault(("standard", cell.level), []).extend(row for row in cell.rows if row.error is None)
    return found


def _rows(run: RunFolder) -> dict[tuple[str, Level], list[Row]]:
    """The answered requests of each arm at each load."""
    found: dict[tuple[str, Level], list[Row]] = {}
    for window in run.windows():
        if window.kind == "measured":
            rows = [row for row in window.cell.rows if row.error is None]
            found.setdefault((window.arm, window.level), []).extend(rows)
    return found


def _loads_shown(levels: Sequence[Level]) -> list[Level]:
    """Return at most `MOST_LOADS` loads, from the lightest to the heaviest."""
    if len(levels) <= MOST_LOADS:
        return list(levels)
    return [levels[round(place * (len(levels) - 1) / (MOST_LOADS - 1))] for place in range(MOST_LOADS)]


def _distribution(
    title: str, rows: Mapping[tuple[str, Level], Sequence[Row]], of: Iterable[tuple[str, Level]], key: str
) -> Distribution:
    samples = tuple(Samples(arm, tuple(_values(rows.get((arm, level), ()), key))) for arm, level in of)
    spreads = [(one, Spread.of(one.values)) for one in samples]
    said = "; ".join(
        f"{one.label}: p50 {milliseconds(spread.p50)}, p95 {milliseconds(spread.p95)}, n={spread.n}"
        for one, spread in spreads
    )
    return Distribution(
        title,
        f"cumulative share of requests. {said}",
        samples,
        "share of requests up to p99; dots: p50, p95",
    )


def _values(rows: Iterable[Row], key: str) -> list[float]:
    return [value for row in rows if (value := getattr(row, key)) is not None]


def _spread(spread: Spread) -> tuple[str, ...]:
    return tuple(milliseconds(value) for value in (spread.p50, spread.p95, spread.p99, spread.max))


def _acceptance(run: RunFolder) -> Section | None:
    report = run.comparison
    if report is None:
        return None
    name = challenger_of(report)
    measured = [found for found in report.arms.get(name, []) if found.acceptance is not None]
    if not measured:
        missing = {found.acceptance_missing for found in report.arms.get(name, [])} - {None}
        return Section("Acceptance", tuple(f"Unknown: {why}." for why in sorted(map(str, missing))))
    lines = tuple(
        Line(str(found.level), tuple(found.acceptance.per_position)) for found in measured if found.acceptance
    )
    positions = max((len(line.values) for line in lines), default=0)
    rows = tuple(_accepted(found, positions) for found in measured)
    charts: tuple[Chart, ...] = ()
    if positions:
        said = "; ".join(
            f"{line.label}: {', '.join(_share(value) for value in line.values)}" for line in lines
        )
        charts = (Curve("Acceptance by position", said, lines[:3], "share of drafts accepted so far"),)
    places = tuple(f"position {place + 1}" for place in range(positions))
    columns = ("load", "accepted / drafted", "rate", "tokens a step", *places)
    text = []
    recommended = run.results["sweep"].recommendation if run.sweep is not None else None
    if recommended is not None and (even := recommended.get("break_even_acceptance")):
        text.append(f"Break-even acceptance is {even:.2f} of drafted tokens (sweep.json).")
    return Section(
        "Acceptance",
        tuple(text),
        charts,
        (Table("", columns, rows),),
        sources=("ab.json",),
        guide="docs/tune.md",
    )


def _accepted(found: ArmFigures, positions: int) -> tuple[str, ...]:
    counts = found.acceptance
    assert counts is not None
    reached = [*counts.per_position, *[None] * (positions - len(counts.per_position))]
    return (
        str(found.level),
        f"{counts.accepted_tokens:,.0f} / {counts.draft_tokens:,.0f}",
        NONE if counts.rate is None else f"{counts.rate:.3f}",
        NONE if counts.length is None else f"{counts.length:.2f}",
        *map(_share, reached),
    )


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def _sweep(run: RunFolder) -> Section | None:
    report, result = run.sweep, run.results.get("sweep")
    if result is None:
        return None
    if report is None:
        return Section("Sweep", (sentence(result.reason),), sources=("sweep.json",))
    compared = [found for found in report.overall if found.decision is not None]
    rows = tuple(_swept(found) for found in compared)
    said = "; ".join(f"{row.group}, {row.label}: {_ratio_text(row)}" for row in rows)
    chart = Ratios("Speed-up end to end by setting", said, "log scale", rows)
    table = tuple(_setting(report, found) for found in report.overall)
    columns = (
        "setting, load",
        "verdict",
        "end to end",
        "TTFT p50",
        "TPOT p50",
        "tokens",
        "accepted",
        "requests",
    )
    return Section(
        "Sweep",
        (sentence(result.reason),),
        (chart,) if rows else (),
        (Table("", columns, table),),
        sources=("sweep.json",),
        guide="docs/tune.md",
    )


def _swept(found: SettingFigures) -> Ratio:
    assert found.decision is not None
    interval = found.speedups.e2e if found.speedups is not None else None
    state = shown_state(found.decision.verdict, interval)
    return _ratio(found.setting, count(found.concurrency, "stream"), state, interval)


def _setting(report: Sweep, found: SettingFigures) -> tuple[str | Cell, ...]:
    accepted = [
        cell.accept_ratio
        for cell in report.cells
        if (cell.setting, cell.concurrency) == (found.setting, found.concurrency)
        and cell.accept_ratio is not None
    ]
    chosen = (found.setting, found.concurrency) == (report.recommended, report.decided_at)
    verdict: str | Cell = "the standard"
    if found.decision is not None:
        state = shown_state(found.decision.verdict, found.speedups.e2e if found.speedups else None)
        verdict = Cell(PAYS[found.decision.verdict] + (", recommended" if chosen else ""), state)
    return (
        f"{found.setting}, {count(found.concurrency, 'stream')}",
        verdict,
        times(found.speedups.e2e) if found.speedups else NONE,
        milliseconds(found.ttft_p50_ms),
        milliseconds(found.tpot_p50_ms),
        f"{found.tokens_per_sec:.0f} tok/s" if found.tokens_per_sec else NONE,
        f"{sum(accepted) / len(accepted):.2f}" if accepted else NONE,
        str(found.requests),
    )


def _answers(run: RunFolder) -> Section | None:
    """Return whether both pools answer alike: equal greedy answers, and the checks of the canary."""
    tables: list[Table] = []
    text: list[str] = []
    sources: list[str] = []
    report = run.comparison
    if report is not None:
        sources.append("ab.json")
        found = report.challengers[challenger_of(report)].parity
        if not found:
            text.append("Answers were not compared: no answer was greedy.")
        else:
            columns = ("answers compared", "equal", "standard repeats itself", "near ties")
            tables.append(Table("Equal greedy answers", columns, tuple(_parity(one) for one in found)))
    canary = run.conformance
    if canary is not None:
        sources.append("canary.json")
        tables += _checks(canary.checks)
    if not tables and not text:
        return None
    return Section("Answers", tuple(text), (), tuple(tables), sources=tuple(sources), guide="docs/canary.md")


def _checks(checks: Sequence[Finding]) -> Iterator[Table]:
    """Yield what needs attention is shown; what passed, or no pool has, is folded."""
    about = {one.name: one.about for one in CHECKS}
    groups = {
        "": [one for status in ("fail", "differs", "undecided") for one in checks if one.status == status],
        "unsupported by both pools": [one for one in checks if one.status == "unsupported"],
        "passed": [one for one in checks if one.status == "pass"],
    }
    title = "Conformance checks"
    for name, found in groups.items():
        rows = tuple(
            (
                Cell(one.name, about=about.get(one.name, "")),
                Cell(one.status, CHECK_STATES[one.status]),
                "" if one.message == about.get(one.name) else one.message,
            )
            for one in found
        )
        if rows:
            folded = f"{count(len(rows), 'check')} {name}" if name else ""
            yield Table(title, ("check", "result", "details"), rows, prose=(2,), folded=folded)
            title = ""


def _parity(found: ParityCounts) -> tuple[str | Cell, ...]:
    kinds = ["among sampled requests"] if found.mixed else []
    control = found.control
    alike = found.equal == found.compared or (
        control is not None and found.equal * control.compared >= control.equal * found.compared
    )
    return (
        ", ".join([str(found.level), *kinds]),
        Cell(
            f"{found.equal} of {found.compared}",
            "good" if alike else "bad" if control is not None else "open",
        ),
        f"{control.equal} of {control.compared}" if control is not None else "unknown",
        str(found.near_ties),
    )


def _checklist(run: RunFolder) -> Section | None:
    checked, result = run.checklist, run.results.get("checklist")
    if checked is None or result is None:
        return None
    steps = tuple(
        Step(
            " ".join(sentence(change) for change, _ in one.changes),
            f"Decides {', '.join(one.items)}.",
            one.command,
        )
        for one in checklist_todo(checked.items)
    )
    return Section(
        "Go-live checklist",
        (sentence(result.reason),),
        (),
        tuple(_items(run, checked.items)),
        steps,
        sources=("checklist.json",),
        guide="docs/go-live.md",
    )


def _items(run: RunFolder, items: Sequence[Item]) -> Iterator[Table]:
    """Yield what is left to do is shown; the rest is folded. A figure stands beside its threshold."""
    gated = any(item.gate for item in items)
    columns = ("item", "state", *(("measured",) if gated else ()), "found", "evidence")
    prose = tuple(range(2, len(columns)))
    for statuses in (("failed", "open"), ("passed", "attested")):
        found = [item for status in statuses for item in items if item.status == status]
        rows = tuple(_item(run, item, gated=gated) for item in found)
        counts = {status: sum(item.status == status for item in found) for status in statuses}
        folded = ""
        if "passed" in statuses:
            folded = count(counts["passed"], "item") + " passed"
            folded += f", {counts['attested']} attested" if counts["attested"] else ""
        if rows:
            yield Table("", columns, rows, prose=prose, folded=folded)


def _item(run: RunFolder, item: Item, *, gated: bool) -> tuple[str | Cell, ...]:
    gate = Cell(item.gate.measured, about=f"threshold: {item.gate.threshold}") if item.gate else ""
    return (
        Cell(item.name, about=item.asks),
        Cell(item.status, ITEM_STATES[item.status]),
        *((gate,) if gated else ()),
        item.found,
        _evidence(run, item),
    )


def _evidence(run: RunFolder, item: Item) -> str | Cell:
    """A single file of the run folder is linked."""
    shown = ", ".join(
        f"{one.source} {one.sha256[:DIGITS]}" if one.sha256 else f"{one.source} (live)"
        for one in item.evidence
    )
    sources = {one.source for one in item.evidence}
    if len(sources) == 1 and (source := next(iter(sources))) in {f"{phase}.json" for phase in run.results}:
        return Cell(shown, link=source)
    return shown


def _routing(run: RunFolder) -> Section | None:
    """Return what is missing in the router's rules."""
    gap = unrouted(run.walk())
    if gap is None:
        return None
    rows = tuple((name, source) for name, source in gap.unmatched.items())
    table = Table("", ("class that must stay off speculation", "by"), rows)
    step = Step("Write this as route.classes in the rollout file.", f"{sentence(UNMATCHED_NOTE)}", gap.paste)
    return Section(
        "Routing",
        (sentence(unmatched_sentence(gap.unmatched)),),
        (),
        (table,),
        (step,),
        sources=("route.json",),
        guide="docs/route.md",
    )


def _files(run: RunFolder) -> Section | None:
    uses = {phase.name: phase.files_use for phase in map(phase_named, PHASES) if phase.files_use}
    rows = tuple(
        (Cell(name, link=name), uses[phase], "" if (run.path / name).exists() else "missing")
        for phase in uses
        for name in run.files(phase)
    )
    if not rows:
        return None
    missing = any(row[2] for row in rows)
    columns = ("file", "use", "state") if missing else ("file", "use")
    table = Table("", columns, tuple(row if missing else row[:2] for row in rows))
    sources = tuple(f"{phase}.json" for phase in uses if run.files(phase))
    return Section("Rendered files", (), (), (table,), sources=sources)
