"""A drill as a document: the terminal and a notebook show it."""

from __future__ import annotations

from pathlib import Path

from specops.phases.guard_drill import DrillSwitch, Rehearsal
from specops.phases.measurement import checked
from specops.render.figures import NONE, count, milliseconds
from specops.render.report.document import Document, Section, Table
from specops.results import Result


def document(result: Result, path: Path) -> Document:
    """The document of a drill, which `path` holds. Raises FileError for a damaged one."""
    rehearsal = checked(Rehearsal, result.data, f"{path} is damaged: data")
    table = Table(
        "",
        ("traffic", "targets", "switched in", "requests began then"),
        (_row("fell back", rehearsal.fallback), _row("returned", rehearsal.restoration)),
    )
    text: tuple[str, ...] = ()
    if rehearsal.ended is not None:
        ended, lost = sum(rehearsal.ended.values()), rehearsal.ended.get("lost", 0.0)
        text = (f"{count(round(ended), 'request')} ended, {lost:.0f} lost.",)
    return Document.of_result(result, (path,), [Section("Switches", text, tables=(table,))])


def _row(label: str, leg: DrillSwitch) -> tuple[str, ...]:
    counts = ", ".join(f"{n:.0f} on {pool}" for pool, n in sorted((leg.begun or {}).items()) if n)
    began = NONE if leg.begun is None else f"{counts or 'none'} within {leg.watched_s:g} s"
    return label, str(len(leg.targets)), milliseconds(leg.took_ms), began
