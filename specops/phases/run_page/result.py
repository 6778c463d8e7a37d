"""The page of one result, for a notebook: the document that the terminal shows of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from specops.phases.ab.document import document as ab
from specops.phases.baseline_document import document as baseline
from specops.phases.canary.document import document as canary
from specops.phases.checklist.document import document as checklist
from specops.phases.diagnose.document import document as diagnose
from specops.phases.edge_simulate_document import document as edge_simulate
from specops.phases.guard_drill.document import document as guard_drill
from specops.phases.launch.document import document as launch
from specops.phases.launch.document import lint
from specops.phases.monitor.document import document as monitor
from specops.phases.monitor.document import monitor_check
from specops.phases.predict.document import document as predict
from specops.phases.referee.document import document as referee
from specops.phases.route.document import document as route
from specops.phases.route.document import route_check
from specops.phases.run_folder import RunFolder
from specops.phases.run_page.sections import FILES, sections
from specops.phases.sweep.document import document as sweep
from specops.phases.verify_draft.document import document as verify_draft
from specops.render.report.document import Document
from specops.render.report.formats import framed
from specops.results import Result


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


_DOCUMENTS: Mapping[str, Callable[[Result, Path], Document]] = {
    "ab": ab,
    "baseline": baseline,
    "canary": canary,
    "checklist": checklist,
    "diagnose": diagnose,
    "edge_simulate": edge_simulate,
    "guard-drill": guard_drill,
    "launch": launch,
    "lint": lint,
    "monitor": monitor,
    "monitor-check": monitor_check,
    "route": route,
    "route-check": route_check,
    "predict": predict,
    "referee": referee,
    "sweep": sweep,
    "verify-draft": verify_draft,
}
