"""A check of a router as a document: the terminal and a notebook show it."""

from __future__ import annotations

from pathlib import Path

from specops.phases.measurement import checked
from specops.phases.route.check import RouteCheckData
from specops.render.figures import count
from specops.render.report.document import Cell, Document, Section, Step, Table
from specops.results import Result


def document(result: Result, path: Path) -> Document:
    """The document of a check. `path` names it in the message of the FileError for a damaged one."""
    data = checked(RouteCheckData, result.data, f"{path} is damaged: data")
    if not data.tried:
        refused = Section("Refused", (f"The router says: {data.refused}",))
        return Document.of_result(result, (), [refused], [Step(data.hint or "", "", "")])
    rows = tuple(
        (outcome.name, Cell("wrong", "bad") if outcome.wrong else Cell("right", "good"), outcome.pool,
         outcome.reason, outcome.wrong or "")
        for outcome in data.tried
    )  # fmt: skip
    table = Table("", ("request", "outcome", "pool", "reason", "why it is wrong"), rows, prose=(4,))
    section = Section("Requests", tables=(table.without_empty_prose(),))
    return Document.of_result(result, (count(len(data.tried), "request"),), [section])
