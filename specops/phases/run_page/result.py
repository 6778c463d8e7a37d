"""The page of one result, for a notebook: the document that the terminal shows of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from specops.phases.ab.document import document as ab
from specops.phases.baseline_document import document as baseline
from specops.phases.canary.document import document as canary
from specops.phases.checklist.document import document as checklist
from specops.phases.diagnose.document import document as diagnose
from specops.phases.edge_simulate_document import document as edge_simulate
from specops.phases.guard_drill.document import document as guard_drill
from specops.phases.launch import LintData
from specops.phases.measurement import checked
from specops.phases.monitor.document import document as monitor_check
from specops.phases.predict.document import document as predict
from specops.phases.route.document import document as route_check
from specops.phases.run_folder import RunFolder
from specops.phases.run_page.sections import FILES, sections
from specops.phases.sweep.document import document as sweep
from specops.phases.verify_draft.document import document as verify_draft
from specops.render.report.document import Cell, Document, Section, State, Table
from specops.render.report.formats import framed
from specops.results import Result

LEVEL_STATES: Mapping[str, State] = {"error": "bad", "warning": "open", "note": "none", "unknown": "open"}


def notebook(result: Result) -> str:
    """HTML that a notebook shows in place of the result's fields. Raises FileError for a damaged result."""
    return framed(document(result))


def document(result: Result) -> Document:
    """The document of a result. Its steps are left out where no command was typed that they would repeat."""
    make = _DOCUMENTS.get(result.phase) if result.verdict != "partial" else None
    page = make(result, Path(f"{result.phase}.json")) if make is not None else _plain(result)
    written = f"{result.created:%Y-%m-%d %H:%M} UTC, specops {result.specops}"
    return replace(page, steps=(), foot=(written,))


def _plain(result: Result) -> Document:
    """The document of a phase that has none of its own."""
    visible = (section for section in sections(RunFolder.of_result(result)) if section.title != FILES)
    return Document.of_result(result, (), visible)


def lint(result: Result, path: Path) -> Document:
    return Document.of_result(result, (), _lint_sections(result))


def _lint_sections(result: Result) -> Iterator[Section]:
    rows: list[tuple[str | Cell, ...]] = []
    for command in checked(LintData, result.data, "the result is damaged: data").commands:
        where = f"{command.where}, {command.engine} {command.version}"
        rows += [
            (finding.flag, Cell(finding.level, LEVEL_STATES[finding.level]), finding.why,
             finding.replacement or "", where)
            for finding in command.findings
        ]  # fmt: skip
        rows += [
            (unknown.what, Cell("unknown", LEVEL_STATES["unknown"]), unknown.why, unknown.how, where)
            for unknown in command.unknown
        ]
    if rows:
        columns = ("flag", "level", "why", "instead", "where")
        yield Section("Findings", tables=(Table("", columns, tuple(rows), prose=(2, 3, 4)),))


_DOCUMENTS: Mapping[str, Callable[[Result, Path], Document]] = {
    "ab": ab,
    "baseline": baseline,
    "canary": canary,
    "checklist": checklist,
    "diagnose": diagnose,
    "edge_simulate": edge_simulate,
    "guard-drill": guard_drill,
    "lint": lint,
    "monitor-check": monitor_check,
    "route-check": route_check,
    "predict": predict,
    "sweep": sweep,
    "verify-draft": verify_draft,
}
