"""A check of a Prometheus as a document: the terminal and a notebook show it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specops.phases.measurement import checked
from specops.phases.monitor.check import GOOD, MonitorCheckData, NameState
from specops.render.figures import NONE
from specops.render.report.document import Cell, Document, Section, State, Table
from specops.results import Result

STATES: dict[str, State] = {"there": "good", "no traffic": "open"}
"""Of a name; the others are bad."""


def document(result: Result, path: Path) -> Document:
    """The document of a check. `path` names it in the message of the FileError for a damaged one."""
    states = checked(MonitorCheckData, result.data, f"{path} is damaged: data").names
    places = dict.fromkeys(state.where for state in states)
    rows = tuple(_row(where, [state for state in states if state.where == where]) for where in places)
    sections = [
        Section("Names", tables=(Table("", ("names of", "there", "last value", "wait for traffic"), rows),))
    ]
    lacking = tuple(_lacking(state) for state in states if state.status not in GOOD)
    if lacking:
        columns = ("name", "state", "of", "here it is", "last sample", "needed for", "fix")
        sections.append(Section("Missing", tables=(Table("", columns, lacking, prose=(5, 6)),)))
    return Document.of_result(result, (result.settings.get("prometheus"),), sections)


def _row(where: str, states: Sequence[NameState]) -> tuple[str, ...]:
    present = [state for state in states if state.status == "there"]
    waiting = sum(state.status == "no traffic" for state in states)
    ages = [state.age_s for state in present if state.age_s is not None]
    last = f"{max(ages):.0f} s ago" if ages else NONE
    return where, f"{len(present)} of {len(states)}", last, str(waiting)


def _lacking(state: NameState) -> tuple[str | Cell, ...]:
    return (
        state.name,
        Cell(state.status, STATES.get(state.status, "bad")),
        state.where,
        state.now_called or NONE,
        NONE if state.age_s is None else f"{state.age_s / 60:.0f} min ago",
        state.needs,
        state.fix or "",
    )
