"""The page of one result, for a notebook: the verdict, then what the page of a run shows of its phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from specops.phases.diagnose import Diagnosis
from specops.phases.launch import LintData
from specops.phases.measurement import checked
from specops.phases.run_page.conclusion import STATES, decision
from specops.phases.run_page.document import capital, tiles
from specops.phases.run_page.folder import of_one
from specops.phases.run_page.sections import sections
from specops.phases.verify_draft.pair import Finding
from specops.render.figures import sentence
from specops.render.report.document import Cell, Document, Section, State, Table
from specops.render.report.formats import framed
from specops.results import Result

FILES = "Rendered files"
"""The section that needs the run folder."""
DRAFT_STATES: Mapping[str, State] = {
    "compatible": "good",
    "needs_setting": "good",
    "degraded": "open",
    "unknown": "open",
    "incompatible": "bad",
}
LEVEL_STATES: Mapping[str, State] = {"error": "bad", "warning": "open", "note": "none", "unknown": "open"}
CAUSE_STATES: Mapping[str, State] = {
    "symptom": "bad",
    "cause": "bad",
    "contributing": "open",
    "unknown": "open",
    "ruled_out": "good",
}


def notebook(result: Result) -> str:
    """HTML that a notebook shows in place of the result's fields. Raises FileError for a damaged result."""
    return framed(document(result))


def document(result: Result) -> Document:
    run = of_one(result)
    state, verdict = STATES[result.verdict]
    headline = sentence(result.reason)
    summary: tuple[str, ...] = ()
    if run.comparison is not None:
        found = decision(run.walk())
        state, verdict, headline, summary = found.state, found.verdict, found.headline, found.support
    return Document(
        title=f"Result of {result.phase}",
        subtitle=f"{result.created:%Y-%m-%d %H:%M} UTC · specops {result.specops}",
        status=state,
        verdict=verdict,
        headline=capital(headline),
        summary=tuple(map(capital, summary)),
        tiles=tuple(tiles(run)),
        steps=(),
        sections=(*_findings(result), *(one for one in sections(run) if one.title != FILES)),
    )


def _findings(result: Result) -> Iterator[Section]:
    make = _TABLES.get(result.phase)
    table = make(result) if make is not None else None
    if table is not None and table.rows:
        yield Section("Findings", tables=(table,))


def _of_lint(result: Result) -> Table:
    rows: list[tuple[str | Cell, ...]] = []
    for command in checked(LintData, result.data, "the result is damaged: data").commands:
        where = f"{command.where}, {command.engine} {command.version}"
        rows += [
            (one.flag, Cell(one.level, LEVEL_STATES[one.level]), one.why, one.replacement or "", where)
            for one in command.findings
        ]
        rows += [
            (one.what, Cell("unknown", LEVEL_STATES["unknown"]), one.why, one.how, where)
            for one in command.unknown
        ]
    return Table("", ("flag", "level", "why", "instead", "where"), tuple(rows), prose=(2, 3, 4))


def _of_draft(result: Result) -> Table:
    found = [Finding.model_validate(one) for one in result.data["findings"]]
    rows = tuple(
        (one.check, Cell(one.verdict, DRAFT_STATES[one.verdict]), one.detail, one.find_out or "")
        for one in found
    )
    return Table("", ("check", "verdict", "details", "find out"), rows, prose=(2, 3))


def _of_diagnosis(result: Result) -> Table:
    found = checked(Diagnosis, result.data, "the result is damaged: data").findings
    rows = tuple(
        (one.id, Cell(one.severity, CAUSE_STATES[one.severity]), one.message, one.fix or "") for one in found
    )
    return Table("", ("check", "severity", "message", "fix"), rows, prose=(2, 3))


_TABLES: Mapping[str, Callable[[Result], Table]] = {
    "lint": _of_lint,
    "verify-draft": _of_draft,
    "diagnose": _of_diagnosis,
}
