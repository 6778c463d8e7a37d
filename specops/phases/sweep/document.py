"""A sweep as a document: every setting at every load, what a step costs and where a draft had better be cut,
where it stops paying, what was left out, and the next command. Every figure in it is in sweep.json."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specops.defaults import ACCEPTANCE_GATE, MEMORY_FULL, SPEEDUP_GATE
from specops.hints import with_options
from specops.load.workload import conversations_sentence, repeated_sentence
from specops.phases.claims_table import claims_table
from specops.phases.sweep.advice import FamilySteps
from specops.phases.sweep.plan import STANDARD, Measurements, measurements_of
from specops.phases.sweep.report import (
    Cell,
    Recommendation,
    Report,
    SettingFigures,
    read,
    recommendation,
)
from specops.render.figures import (
    NONE,
    bar,
    change_ms,
    count,
    decimals,
    milliseconds,
    percent,
    sentence,
    times,
)
from specops.render.report.document import STATES, Document, Ratio, Ratios, Section, Step, Table, shown_state
from specops.render.report.document import Cell as TableCell
from specops.results import Result
from specops.serving import ENGINES
from specops.stats import Interval

FILE = "sweep.json"
GATES = {"acceptance": ACCEPTANCE_GATE, "E2E": SPEEDUP_GATE, "GPU memory": MEMORY_FULL}
"""The playbook's: more, more and less. Shown beside what is measured; no verdict depends on them."""
WORDS = {"yes": "pays", "no": "does not pay", "undecided": "undecided", "partial": "stopped"}


def document(result: Result, path: Path) -> Document:
    """The document of a finished sweep, which `path` holds. Raises FileError for a damaged one."""
    advice = recommendation(result, str(path))
    report, stored = read(result, str(path)), measurements_of(result, str(path))
    prompts = result.data.get("prompts", {})
    loads = {(cell.concurrency, cell.temperature, cell.length) for cell in report.cells}
    rungs = {cell.rung for cell in stored.cells}
    settings = {cell.setting for cell in report.cells}
    details = (
        f"{count(len(settings), 'setting')} at {count(len(loads), 'load')}, {count(len(rungs), 'rung')}",
        count(prompts.get("count", 0), "prompt"),
        repeated_sentence(prompts.get("repeated", 0), prompts.get("count", 0)),
        conversations_sentence(prompts),
        f"{stored.spent_s / 60:.1f} min",
        path,
    )
    return Document.of_result(result, details, sections(result), _steps(result, advice))


def sections(result: Result) -> Iterator[Section]:
    if result.verdict == "partial":
        yield Section("Sweep", (sentence(result.reason),), sources=(FILE,))
        return
    report, stored = read(result, FILE), measurements_of(result, FILE)
    ratios = tuple(
        Ratio.of_interval(
            figures.setting,
            count(figures.concurrency, "stream"),
            shown_state(figures.decision.verdict, figures.speedups.e2e if figures.speedups else None),
            figures.speedups.e2e if figures.speedups else None,
        )
        for figures in report.overall
        if figures.decision is not None
    )
    text = "Prompts were sent as they are (--same-prompts), so a cache may have answered."
    chart = Ratios("Speed-up end to end by setting", "; ".join(map(str, ratios)), "log scale", ratios)
    tables = (
        _settings(report, {failure.setting for failure in stored.failed}),
        _groups(report),
        _lines("Limits", _limits(report)),
        _claims(report),
        _lines("Measured again", _confirmed(report)),
        _lines("Costs and acceptance", _costs(report)),
        _lines("Loads", _loads(report)),
        _lines("The machine", _machine(report)),
        _lines("Left out", _left_out(stored)),
    )
    yield Section(
        "Sweep",
        (text,) if result.settings.get("same_prompts") else (),
        (chart,) if ratios else (),
        tuple(table for table in tables if table.rows),
        sources=(FILE,),
        guide="docs/tune.md",
    )


def _lines(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    return Table(title, ("about", "result"), tuple(rows), prose=(1,))


def _settings(report: Report, failed: Collection[str]) -> Table:
    """A row for each setting at each concurrency, all temperatures and lengths together."""
    rows = []
    for figures in report.overall:
        cells = [
            cell
            for cell in report.cells
            if (cell.setting, cell.concurrency) == (figures.setting, figures.concurrency)
        ]
        speedups = figures.speedups
        rows.append(
            (
                f"{figures.setting}, {count(figures.concurrency, 'stream')}",
                _verdict(report, figures, failed),
                times(speedups.e2e) if speedups else milliseconds(figures.e2e_p50_ms),
                times(speedups.tpot) if speedups else milliseconds(figures.tpot_p50_ms),
                change_ms(speedups.ttft_change_ms) if speedups else milliseconds(figures.ttft_p50_ms),
                decimals(figures.tokens_per_sec, 0),
                decimals(figures.user_tokens_per_sec, 0),
                _between([cell.accept_ratio for cell in cells]),
                _memory(cells),
                str(figures.requests),
                figures.stage or "both",
            )
        )
    columns = (
        "setting, load", "verdict", "end to end", "TPOT", "TTFT", "tok/s", "a user", "accepted", "memory",
        "requests", "stage",
    )  # fmt: skip
    return Table("", columns, tuple(rows))


def _verdict(report: Report, figures: SettingFigures, failed: Collection[str]) -> str | TableCell:
    decision = figures.decision
    if decision is None:
        return TableCell("failed", "bad") if figures.setting in failed else "the standard"
    state = shown_state(decision.verdict, figures.speedups.e2e if figures.speedups else None)
    return TableCell(f"{WORDS[decision.verdict]}{', recommended' * _chosen(report, figures)}", state)


def _chosen(report: Report, figures: SettingFigures) -> bool:
    return (figures.setting, figures.concurrency) == (report.recommended, report.decided_at)


def _groups(report: Report) -> Table:
    rows = []
    for kind, groups in (
        ("class", report.by_class),
        ("length", report.by_length),
        ("temperature", report.by_temperature),
    ):
        for name, group in groups.items():
            better_alone = group.best is not None and group.best != group.setting
            alone = f"; alone it would be served best by {group.best}" if better_alone else ""
            rows.append(
                (
                    f"{kind} {name}",
                    group.setting or NONE,
                    TableCell(WORDS[group.verdict], STATES[group.verdict][0]),
                    f"{group.reason}{alone}",
                )
            )
    return Table("By group", ("group", "setting", "verdict", "why"), tuple(rows), prose=(3,))


def _limits(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what was decided on besides the end-to-end speed, which is in the table."""
    for figures in report.overall:
        decision = figures.decision
        if decision is None or (decision.verdict == "yes" and decision.basis == "e2e"):
            continue
        if decision.basis != "e2e" or any(
            finding.claim != "wait" or finding.cause for finding in decision.findings
        ):
            yield f"{figures.setting} at {count(figures.concurrency, 'stream')}", decision.reason


def _claims(report: Report) -> Table:
    """The table on which the decision on the recommended setting rests."""
    findings = [finding for row in report.overall if _chosen(report, row) for finding in row.findings]
    return claims_table("What the recommended setting rests on", findings)


def _confirmed(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what was measured again, and by how much the figure that it was chosen by was higher."""
    confirmation = report.confirmation
    if confirmation is None:
        return
    only = f" for {', '.join(confirmation.only)}" if confirmation.only else ""
    for setting in confirmation.settings:
        again = f"not measured again, n={setting.prompts}"
        if setting.speedup is not None:
            again = _figure(setting.speedup)
        chosen = f"; {_figure(setting.at_choice)} when it was chosen" if setting.at_choice else ""
        yield f"{setting.setting}{only} at {count(confirmation.concurrency, 'stream')}", f"{again}{chosen}"
    if not confirmation.fresh:
        yield "prompts", "the same prompts as the choice: there are too few to split"


def _figure(interval: Interval) -> str:
    return f"{times(interval)}, n={interval.n}"


def _costs(report: Report) -> Iterator[tuple[str, str]]:
    for line in report.lines:
        words = " ".join(word for word in (line.draft, line.kind) if word)
        name = f"{words}: " if words else ""
        if line.target_ms is not None and line.draft_ms is not None:
            yield "step", f"{name}{_step(line)}; n={line.requests}"
        if line.positions:
            curve = "".join(bar(position.accepted) for position in line.positions)
            cut = "" if report.recommended is None else _cut(line)  # undecided: no advice either
            yield "accepted", f"{name}{curve} by position, of {line.curve_of}{cut}; n={line.requests}"
        if line.missing:
            yield "accepted", f"{name}not known: {line.missing}"
    for step in report.steps:
        if step.setting != report.nearest:
            continue
        if step.break_even_acceptance is None:
            yield "break-even", f"{NONE}: {step.missing} ({step.setting}, n={step.requests})"
            continue
        alpha = f" ({step.break_even_alpha:.2f} per position)" if step.break_even_alpha is not None else ""
        measured = f"{step.acceptance:.2f}" if step.acceptance is not None else NONE
        yield (
            "break-even",
            f"acceptance {step.break_even_acceptance:.2f}{alpha}, from decoding time only; {step.setting} "
            f"measured {measured}, n={step.requests}",
        )
    yield from _gates(report)


def _step(line: FamilySteps) -> str:
    missed = f"; fit error {line.residual:.0%}" if line.residual is not None else ""
    return (
        f"{milliseconds(line.target_ms)} + {milliseconds(line.draft_ms)} per drafted token, "
        f"fitted over K = {', '.join(str(k) for k in line.measured)}{missed}"
    )


def _cut(line: FamilySteps) -> str:
    if line.cut is None:
        return ""
    if line.cut == len(line.positions):
        return "; every position gains more than it costs"
    if line.cut:
        return f"; positions after {line.cut} cost more than they gain"
    return "; no position gains more than it costs"


def _gates(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what the playbook asks of the recommended setting before it goes further."""
    row = next((figures for figures in report.overall if _chosen(report, figures)), None)
    place = (report.recommended, report.decided_at)
    cells = [cell for cell in report.cells if (cell.setting, cell.concurrency) == place]
    if not cells:
        return
    e2e = row.speedups.e2e.estimate if row and row.speedups and row.speedups.e2e else None
    accepted = [cell.accept_ratio for cell in cells if cell.accept_ratio is not None]
    memory = max((cell.gpu_memory_share or 0 for cell in cells), default=0)
    requirements = (
        ("acceptance", "above", sum(accepted) / len(accepted) if accepted else None, "{:.2f}"),
        ("E2E", "above", e2e, "{:.2f}×"),
        ("GPU memory", "below", memory or None, "{:.0%}"),
    )
    parts = []
    for name, side, value, shape in requirements:
        bound = shape.format(GATES[name])
        if value is None:
            parts.append(f"{name} {side} {bound}: not known")
        else:
            met = value > GATES[name] if side == "above" else value < GATES[name]
            parts.append(f"{name} {side} {bound}: {'yes' if met else 'no'}, {shape.format(value)}")
    yield "playbook", f"{'; '.join(parts)}{f'; n={row.requests}' if row else ''}"


def _loads(report: Report) -> Iterator[tuple[str, str]]:
    if report.crossover:
        yield "load", report.crossover.message
    alike = [rival.setting for rival in report.runners_up if not rival.differs]
    if alike:
        yield "as fast", f"within the intervals: {', '.join(alike)}"
    if report.schedule:
        ranges, largest = json.dumps(report.schedule.ranges), report.schedule.largest
        yield "schedule", f"K by requests in the batch: {ranges}; {report.schedule.message}"
        yield (
            "in vLLM",
            f"num_speculative_tokens_per_batch_size, and num_speculative_tokens: {largest}",
        )
    elif report.schedule_missing:
        yield "schedule", f"none: {report.schedule_missing}"


def _machine(report: Report) -> Iterator[tuple[str, str]]:
    """Yield how much it drifted between the standards of a rung, and one start of a server from another."""
    changes = [
        f"{percent(change.estimate)} [{percent(change.low)}, {percent(change.high)}], n={change.n}"
        for change in (standard.change for standard in report.standards)
        if change is not None
    ]
    if changes:
        yield "drift", f"E2E of K = 0 within a rung: {'; '.join(changes)}; included in the intervals"
    if report.start_sd is not None:
        varies = f"latency varies by {report.start_sd:.1%} between two turns of one server"
        yield "turns", f"{varies}; n={count(report.starts, 'turn')}"
    if report.looks > 1:
        wider = "the intervals hold at every look, so they are wider than for a single look"
        yield "looks", f"{report.looks}: {wider}"


def _left_out(stored: Measurements) -> Iterator[tuple[str, str]]:
    for failure in stored.failed:
        last = failure.log.strip().splitlines()[-1:]
        ended = f"; its log ends: {last[0]}" if last else ""
        yield "failed", f"{failure.setting} in rung {failure.rung + 1}: {failure.why}{ended}"
    for cell in stored.skipped:
        after = f"after rung {cell.after + 1}" if cell.after >= 0 else "from the start"
        yield "skipped", f"{cell.setting} at {count(cell.concurrency, 'stream')} {after}: {cell.why}"


def _steps(result: Result, advice: Recommendation) -> Iterator[Step]:
    """Yield what to change, and the command that follows it."""
    if advice.setting is not None:
        pools: Mapping[str, Any] = result.settings.get("settings", {})
        prompts = str(result.data.get("prompts", {}).get("path", "PROMPTS"))
        yield _adoption(pools.get(advice.setting) or {}, pools.get(STANDARD) or {}, prompts)
    elif result.verdict == "undecided":
        yield _decisive(result)
    else:
        action = "serve without speculation, or set other sweep.drafts or sweep.trees in ROLLOUT"
        yield Step(action, "", with_options({"--fresh": True}))


def _decisive(result: Result) -> Step:
    """Return what would decide an undecided sweep."""
    budget = result.settings.get("budget_min")
    longer = {"--budget": f"{2 * budget:g}"} if budget else {}
    if more := result.summary.get("more_prompts"):
        action = f"add about {more} prompts to the file that `prompts` names in ROLLOUT"
        return Step(action, "", with_options({"--fresh": True, **longer}))
    more_of = "budget" if budget else "repeats"
    action = f"fix the fault that the sentence above names, if any; then double the {more_of}"
    if budget:
        return Step(action, "stored measurements are reused", with_options({"--fresh": False, **longer}))
    repeats = 2 * int(result.settings.get("repeats") or 1)
    return Step(action, "", with_options({"--fresh": True, "--repeats": str(repeats)}))


def _adoption(pool: Mapping[str, Any], standard: Mapping[str, Any], prompts: str) -> Step:
    """Return how the rollout takes the setting, and the comparison of it with the standard."""
    speculation = pool.get("speculation") or {}
    engine = ENGINES.get(str(pool.get("engine")))
    key = engine.k_key if engine is not None else None
    run = "specops run ROLLOUT --only ab"
    if key:
        return Step(f"set pools.speculative.speculation.{key}: {speculation.get(key)} in ROLLOUT", "", run)
    if engine is not None and engine.serve is not None:
        return Step(f"start the speculative pool with: {engine.serve(pool)}", "", run)
    first = shlex.quote(f"standard={standard.get('base_url')}")
    second = shlex.quote(f"best={pool.get('base_url')}")
    return Step("", "", f"specops ab --arm {first} --arm {second} --prompts {shlex.quote(prompts)}")


def _memory(cells: Sequence[Cell]) -> str:
    gpu = [cell.gpu_memory_gb for cell in cells if cell.gpu_memory_gb is not None]
    resident = [cell.resident_gb for cell in cells if cell.resident_gb is not None]
    if gpu:
        return f"{max(gpu):.1f} GiB"
    return f"{max(resident):.1f} GiB host" if resident else NONE


def _between(shares: Sequence[float | None]) -> str:
    ends = [f"{share:.2f}" for share in sorted(share for share in shares if share is not None)]
    return "–".join(dict.fromkeys((ends[0], ends[-1]))) if ends else NONE
