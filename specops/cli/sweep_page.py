"""The page of a sweep: every setting at every load, what a step costs and where a draft had better be cut,
where it stops paying, what was left out, the verdict in words, and the next command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from specops.cli.output import decimals
from specops.defaults import ACCEPTANCE_GATE, MEMORY_FULL, SPEEDUP_GATE
from specops.experiment.sentences import table
from specops.hints import with_options
from specops.load.workload import repeated_sentence
from specops.phases.sweep.advice import FamilySteps
from specops.phases.sweep.plan import STANDARD, Measurements, measurements_of
from specops.phases.sweep.report import (
    Cell,
    GroupFigures,
    Recommendation,
    Report,
    SettingFigures,
    read,
    recommendation,
)
from specops.render.figures import (
    NONE,
    aligned,
    bar,
    change_ms,
    count,
    milliseconds,
    percent,
    sentence,
    times,
)
from specops.results import Result
from specops.serving import ENGINES
from specops.stats import Interval

GATES = {"acceptance": ACCEPTANCE_GATE, "E2E": SPEEDUP_GATE, "GPU memory": MEMORY_FULL}
"""The playbook's: more, more and less. Shown beside what is measured; no verdict depends on them."""


def page(result: Result, out: Path) -> list[str]:
    """The page's lines; every figure on it is in `out`, which holds the finished sweep `result`."""
    report, advice = read(result, str(out)), recommendation(result, str(out))
    stored = measurements_of(result, str(out))
    sections = [
        _table(report, {one.setting for one in stored.failed}),
        _groups(report),
        [f"  {line}" for line in [*_limits(report), *_sent(result)]],
        _claims(report),
        [f"  {line}" for line in _confirmed(report)],
        [f"  {line}" for line in _costs(report)],
        [f"  {line}" for line in _loads(report)],
        [f"  {line}" for line in _machine(report)],
        [f"  {line}" for line in _left_out(stored)],
    ]
    lines = [_headline(result, report, stored, out)]
    for section in sections:
        lines += ["", *section] if section else []
    return [*lines, "", sentence(result.reason), *_next(result, advice)]


def _headline(result: Result, report: Report, stored: Measurements, out: Path) -> str:
    prompts = result.data.get("prompts", {})
    loads = {(cell.concurrency, cell.temperature, cell.length) for cell in report.cells}
    rungs = {cell.rung for cell in stored.cells}
    settings = {cell.setting for cell in report.cells}
    return " · ".join(
        [
            "sweep",
            f"{count(len(settings), 'setting')} at {count(len(loads), 'load')}, {count(len(rungs), 'rung')}",
            count(prompts.get("count", 0), "prompt"),
            *filter(None, [repeated_sentence(prompts.get("repeated", 0), prompts.get("count", 0))]),
            f"{stored.spent_s / 60:.1f} min",
            str(out),
        ]
    )


def _table(report: Report, failed: Collection[str]) -> list[str]:
    """A row for each setting at each concurrency, all temperatures and lengths together."""
    rows = [
        [
            "  setting",
            "load",
            "n",
            "stage",
            "E2E",
            "TPOT",
            "TTFT",
            "tok/s",
            "a user",
            "accepted",
            "memory",
            "verdict",
        ],
    ]
    for found in report.overall:
        cells = [
            cell
            for cell in report.cells
            if (cell.setting, cell.concurrency) == (found.setting, found.concurrency)
        ]
        speedups = found.speedups
        rows.append(
            [
                f"{'>' if _chosen(report, found) else ' '} {found.setting}",
                count(found.concurrency, "stream"),
                f"n={found.requests}",
                found.stage or "both",
                times(speedups.e2e) if speedups else milliseconds(found.e2e_p50_ms),
                times(speedups.tpot) if speedups else milliseconds(found.tpot_p50_ms),
                change_ms(speedups.ttft_change_ms) if speedups else milliseconds(found.ttft_p50_ms),
                decimals(found.tokens_per_sec, 0),
                decimals(found.user_tokens_per_sec, 0),
                _between([cell.accept_ratio for cell in cells]),
                _memory(cells),
                _WORDS[found.decision.verdict] if found.decision else "failed" * (found.setting in failed),
            ]
        )
    return aligned(rows)


_WORDS = {"yes": "pays", "no": "does not pay", "undecided": "undecided", "partial": "stopped"}


def _chosen(report: Report, found: SettingFigures) -> bool:
    return (found.setting, found.concurrency) == (report.recommended, report.decided_at)


def _groups(report: Report) -> list[str]:
    rows = [
        [f"  {kind}", name, group.setting or NONE, _WORDS[group.verdict], group.reason, _alone(group)]
        for kind, groups in (
            ("class", report.by_class),
            ("length", report.by_length),
            ("temperature", report.by_temperature),
        )
        for name, group in groups.items()
    ]
    return aligned(rows)


def _alone(group: GroupFigures) -> str:
    """Return what would be best for this group, where that is something else."""
    if group.best is None or group.best == group.setting:
        return ""
    return f"alone it would be served best by {group.best}"


def _limits(report: Report) -> Iterator[str]:
    """Yield what was decided on besides the end-to-end speed, which is in the table."""
    for found in report.overall:
        decision = found.decision
        if decision is None or (decision.verdict == "yes" and decision.basis == "e2e"):
            continue
        if decision.basis != "e2e" or any(one.claim != "wait" or one.cause for one in decision.findings):
            yield f"limit     {found.setting} at {count(found.concurrency, 'stream')}: {decision.reason}"


def _sent(result: Result) -> Iterator[str]:
    if result.settings.get("same_prompts"):
        yield "prompts   sent as they are (--same-prompts), so a cache may have answered"


def _claims(report: Report) -> list[str]:
    """The table on which the decision on the recommended setting rests."""
    chosen = next((found for found in report.overall if _chosen(report, found)), None)
    if chosen is None:
        return []
    return aligned(
        [
            ["  claim", "observed", "bound", "margin", "n", ""],
            *([f"  {row[0]}", *row[1:]] for row in table(chosen.findings)),
        ]
    )


def _confirmed(report: Report) -> Iterator[str]:
    """Yield what was measured again, and by how much the figure that it was chosen by was higher."""
    found = report.confirmation
    if found is None:
        return
    only = f" for {', '.join(found.only)}" if found.only else ""
    for one in found.settings:
        again = _figure(one.speedup) if one.speedup else f"not measured again, n={one.prompts}"
        chosen = f"; {_figure(one.at_choice)} when it was chosen" if one.at_choice else ""
        yield f"again     {one.setting}{only} at {count(found.concurrency, 'stream')}: {again}{chosen}"
    if not found.fresh:
        yield "          with the same prompts as the choice: there are too few to split"


def _figure(interval: Interval) -> str:
    return f"{times(interval)}, n={interval.n}"


def _costs(report: Report) -> Iterator[str]:
    for line in report.lines:
        of = " ".join(word for word in (line.draft, line.kind) if word)
        name = f"{of}: " if of else ""
        if line.target_ms is not None and line.draft_ms is not None:
            yield f"step      {name}{_step(line)}; n={line.requests}"
        if line.positions:
            curve = "".join(bar(at.accepted) for at in line.positions)
            cut = "" if report.recommended is None else _cut(line)  # undecided: no advice either
            yield f"accepted  {name}{curve} by position, of {line.curve_of}{cut}; n={line.requests}"
        if line.missing:
            yield f"accepted  {name}not known: {line.missing}"
    for step in report.steps:
        if step.setting == report.nearest:
            found = f"{step.acceptance:.2f}" if step.acceptance is not None else NONE
            if step.break_even_acceptance is not None:
                alpha = (
                    f" ({step.break_even_alpha:.2f} per position)"
                    if step.break_even_alpha is not None
                    else ""
                )
                yield (
                    f"break-even  acceptance {step.break_even_acceptance:.2f}{alpha}, from decoding time "
                    f"only; {step.setting} measured {found}, n={step.requests}"
                )
            else:
                yield f"break-even  –: {step.missing} ({step.setting}, n={step.requests})"
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


def _gates(report: Report) -> Iterator[str]:
    """Yield what the playbook asks of the recommended setting before it goes further."""
    ours = [c for c in report.cells if (c.setting, c.concurrency) == (report.recommended, report.decided_at)]
    if not ours:
        return
    row = next((found for found in report.overall if _chosen(report, found)), None)
    e2e = row.speedups.e2e.estimate if row and row.speedups and row.speedups.e2e else None
    requested = [
        ("acceptance", "above", _mean([cell.accept_ratio for cell in ours]), "{:.2f}"),
        ("E2E", "above", e2e, "{:.2f}×"),
        ("GPU memory", "below", max((c.gpu_memory_share or 0 for c in ours), default=0) or None, "{:.0%}"),
    ]
    said = []
    for name, side, value, shape in requested:
        bound = shape.format(GATES[name])
        if value is None:
            said.append(f"{name} {side} {bound}: not known")
        else:
            met = value > GATES[name] if side == "above" else value < GATES[name]
            said.append(f"{name} {side} {bound}: {'yes' if met else 'no'}, {shape.format(value)}")
    yield f"playbook  {'; '.join(said)}" + (f"; n={row.requests}" if row else "")


def _loads(report: Report) -> Iterator[str]:
    if report.crossover:
        yield f"load      {report.crossover.message}"
    alike = [rival.setting for rival in report.runners_up if not rival.differs]
    if alike:
        yield f"as fast   within the intervals: {', '.join(alike)}"
    if report.schedule:
        ranges, largest = json.dumps(report.schedule.ranges), report.schedule.largest
        yield f"schedule  K by requests in the batch: {ranges}; {report.schedule.message}"
        yield (
            f"          in vLLM: num_speculative_tokens_per_batch_size, and num_speculative_tokens: {largest}"
        )
    elif report.schedule_missing:
        yield f"schedule  none: {report.schedule_missing}"


def _machine(report: Report) -> Iterator[str]:
    """Yield how much it drifted between the standards of a rung, and one start of a server from another."""
    changes = [
        f"{percent(found.change.estimate)} [{percent(found.change.low)}, {percent(found.change.high)}], "
        f"n={found.change.n}"
        for found in report.standards
        if found.change is not None
    ]
    if changes:
        yield f"drift     E2E of K = 0 within a rung: {'; '.join(changes)}; included in the intervals"
    if report.start_sd is not None:
        yield (
            f"turns     latency varies by {report.start_sd:.1%} between two turns of one server; "
            f"n={count(report.starts, 'turn')}"
        )
    if report.looks > 1:
        yield (
            f"looks     {report.looks}: the intervals hold at every look, so they are wider than for a "
            "single look"
        )


def _left_out(stored: Measurements) -> Iterator[str]:
    for failure in stored.failed:
        last = failure.log.strip().splitlines()[-1:]
        ended = f"; its log ends: {last[0]}" if last else ""
        yield f"failed    {failure.setting} in rung {failure.rung + 1}: {failure.why}{ended}"
    for one in stored.skipped:
        at = count(one.concurrency, "stream")
        after = f"after rung {one.after + 1}" if one.after >= 0 else "from the start"
        yield f"skipped   {one.setting} at {at} {after}: {one.why}"


def _next(result: Result, advice: Recommendation) -> Iterator[str]:
    """Yield what to change, and the command that follows it."""
    if advice.setting is not None:
        pools: Mapping[str, Any] = result.settings.get("settings", {})
        prompts = str(result.data.get("prompts", {}).get("path", "PROMPTS"))
        yield from _take(pools.get(advice.setting) or {}, pools.get(STANDARD) or {}, prompts)
    elif result.verdict == "undecided":
        yield from _decide(result)
    else:
        yield "change: serve without speculation, or set other sweep.drafts or sweep.trees in ROLLOUT"
        yield f"next: {with_options({'--fresh': True})}"


def _decide(result: Result) -> Iterator[str]:
    """Yield what would decide an undecided sweep, and the command that measures more."""
    budget = result.settings.get("budget_min")
    longer = {"--budget": f"{2 * budget:g}"} if budget else {}
    if more := result.summary.get("more_prompts"):
        yield f"change: add about {more} prompts to the file that `prompts` names in ROLLOUT"
        yield f"next: {with_options({'--fresh': True, **longer})}"
        return
    more_of = "budget" if budget else "repeats"
    yield f"change: fix the fault that the sentence above names, if any; then double the {more_of}"
    if budget:
        yield f"next: {with_options({'--fresh': False, **longer})}  # stored measurements are reused"
    else:
        repeats = 2 * int(result.settings.get("repeats") or 1)
        yield f"next: {with_options({'--fresh': True, '--repeats': str(repeats)})}"


def _take(pool: Mapping[str, Any], standard: Mapping[str, Any], prompts: str) -> Iterator[str]:
    """Yield how the rollout takes the setting, and the comparison of it with the standard."""
    speculation = pool.get("speculation") or {}
    engine = ENGINES.get(str(pool.get("engine")))
    key = engine.k_key if engine is not None else None
    if key:
        yield f"change: set pools.speculative.speculation.{key}: {speculation.get(key)} in ROLLOUT"
    elif engine is not None and engine.serve is not None:
        yield f"change: start the speculative pool with: {engine.serve(pool)}"
    else:
        ours = shlex.quote(f"standard={standard.get('base_url')}")
        theirs = shlex.quote(f"best={pool.get('base_url')}")
        yield f"next: specops ab --arm {ours} --arm {theirs} --prompts {shlex.quote(prompts)}"
        return
    yield "next: specops run ROLLOUT --only ab"


def _memory(cells: list[Cell]) -> str:
    gpu = [cell.gpu_memory_gb for cell in cells if cell.gpu_memory_gb is not None]
    resident = [cell.resident_gb for cell in cells if cell.resident_gb is not None]
    if gpu:
        return f"{max(gpu):.1f} GiB"
    return f"{max(resident):.1f} GiB host" if resident else NONE


def _between(shares: list[float | None]) -> str:
    known = [share for share in shares if share is not None]
    if not known:
        return NONE
    low, high = f"{min(known):.2f}", f"{max(known):.2f}"
    return low if low == high else f"{low}–{high}"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
