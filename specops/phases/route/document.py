"""The router's rules, and a check of a router, as documents."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specops.phases.commands import Commands
from specops.phases.launch import RENDERED
from specops.phases.measurement import checked
from specops.phases.route import UNMATCHED_NOTE, RouteData
from specops.phases.route.check import RouteCheckData
from specops.render.figures import count
from specops.render.report.document import Cell, Document, Section, Step, Table
from specops.results import Result

RULES = {
    "speculate": "speculation",
    "min_tokens": "min tokens",
    "min_tokens_unstreamed": "min tokens unstreamed",
    "long_tokens": "long from",
    "otherwise": "default pool",
    "max_temperature": "max temperature",
    "max_in_flight": "in flight",
}
UNITS = {"long_tokens": " tokens"}
"""Unit of a rule whose label does not name it."""


def document(result: Result, path: Path, commands: Commands | None = None) -> Document:
    """The document of a rendered router. `path` names the result in the message of the FileError for a
    damaged one. `commands` are those of its rollout, for what to do next."""
    data = checked(RouteData, result.data, f"{path} is damaged: data")
    folder = f"{data.folder}/{RENDERED}/{data.router}"
    text = (*(f"note: {note}" for note in data.notes), *(f"limit: {limit}" for limit in data.limits))
    table = Table("", ("rule", "value", "source"), tuple(_rules(data)), prose=(2,))
    steps = list(_steps(data, folder, commands)) if commands is not None else []
    return Document.of_result(result, (folder,), [Section("Rules", text, tables=(table,))], steps)


def _rules(data: RouteData) -> Iterator[tuple[str, str, str]]:
    rules: Mapping[str, Any] = data.rules
    for pool, servers in (("standard", data.standard), ("speculative", data.speculative)):
        yield pool, ", ".join(servers), ""
    for name, label in RULES.items():
        yield label, _value(rules[name], UNITS.get(name, "")), rules[name]["source"]
    for traffic_class in rules["classes"]:
        name, allowed, limit = (traffic_class.get(key) for key in ("name", "speculate", "max_in_flight"))
        yield f"class {name}", "by size" if allowed["value"] else "standard", allowed["source"]
        if limit:
            yield f"in flight for {name}", _value(limit), limit["source"]
    for parameter in rules["unsupported"]:
        yield "unsupported", parameter["name"], parameter["source"]


def _value(rule: Mapping[str, Any], unit: str = "") -> str:
    value = rule["value"]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}{unit}" if isinstance(value, int | float) else str(value)


def _steps(data: RouteData, folder: str, commands: Commands) -> Iterator[Step]:
    if data.unmatched:
        yield Step(f"route.classes in {commands.file}", f"{UNMATCHED_NOTE}:", f"{data.paste}\n")
    router = commands.rollout.route.router
    start = router.start_command(Path(folder))
    check = f"specops route check {shlex.quote(str(commands.file))} --run {shlex.quote(data.folder)}"
    yield Step("", "", f"{check} && {start}" if router.untestable is None else start)


def route_check(result: Result, path: Path) -> Document:
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
