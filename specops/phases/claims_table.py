"""The table on which a decision rests: the same for a comparison, a sweep and an edge bench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specops.experiment.findings import Finding
from specops.experiment.sentences import table
from specops.render.report.document import Cell, State, Table

STATES: Mapping[str, State] = {"shown": "good", "against": "bad", "open": "open", "unknown": "none"}


def claims_table(title: str, findings: Sequence[Finding], note: str = "") -> Table:
    """Return what must hold, what was observed of it, and whether that shows it; equal rows once."""
    rows = (
        (*row[:5], Cell(row[5], STATES[finding.verdict]))
        for finding, row in zip(findings, table(findings), strict=True)
    )
    columns = ("item", "observed", "bound", "margin", "n", "verdict")
    return Table(title, columns, tuple(dict.fromkeys(rows)), note)
