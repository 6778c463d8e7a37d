"""What was rendered for monitoring, and a check of a Prometheus, as documents."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from specops.phases.commands import Commands
from specops.phases.measurement import checked
from specops.phases.monitor.check import GOOD, MonitorCheckData, NameState
from specops.phases.monitor.render import FOLDER, MonitorData
from specops.render.figures import NONE
from specops.render.prometheus.alerts import Limit
from specops.render.report.document import Cell, Document, Section, State, Step, Table
from specops.results import Result

STATES: dict[str, State] = {"there": "good", "no traffic": "open"}
"""Of a name; the others are bad."""


def document(result: Result, path: Path, commands: Commands | None = None) -> Document:
    """The document of rendered files. `path` names the result in the message of the FileError for a damaged
    one. `commands` are those of its rollout, for what to do next."""
    data = checked(MonitorData, result.data, f"{path} is damaged: data")
    files = Path(data.folder) / FOLDER
    alerts = tuple((name, *_limit(limit)) for name, limit in data.alerts.items())
    tables = [
        Table(
            "Scraped",
            ("job", "addresses"),
            tuple((job, ", ".join(addresses)) for job, addresses in data.targets.items()),
        ),
        Table("Alerts", ("alert", "threshold", "for", "source"), alerts, prose=(3,)),
        Table("Left out", ("alert", "why"), tuple(data.left_out.items()), prose=(1,)),
        Table("Not read", ("result", "why"), tuple(data.not_read.items()), prose=(1,)),
    ]
    section = Section("Monitoring", tables=tuple(table for table in tables if table.rows))
    steps = [_loading(files, commands)] if commands is not None else []
    return Document.of_result(result, (files,), [section], steps)


def _limit(limit: Limit) -> tuple[str, str, str]:
    minutes = f"{limit.for_s // 60} min" if limit.for_s % 60 == 0 else f"{limit.for_s} s"
    value = NONE if limit.value is None else f"{limit.value:g}"
    return value, minutes if limit.for_s else "at once", limit.source


def _loading(files: Path, commands: Commands) -> Step:
    prometheus = commands.rollout.addresses.prometheus
    change = f"let the Prometheus at {prometheus} load {files}"
    if prometheus is None:
        named = f"name its root as addresses.prometheus in {commands.file}"
        change = f"let a Prometheus load {files}, and {named}"
    return Step(change, "", f"specops monitor check {shlex.quote(str(commands.file))}")


def monitor_check(result: Result, path: Path) -> Document:
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
