"""What was rendered for the pools, and what a lint found, as documents."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from specops.phases.capacity.gate import AGAIN
from specops.phases.commands import Commands
from specops.phases.launch import COMPOSE, RENDERED, LaunchData, LintData, RenderedPool
from specops.phases.measurement import checked
from specops.render.figures import count, sentence
from specops.render.report.document import Cell, Document, Section, State, Step, Table
from specops.results import Result

LEVEL_STATES: Mapping[str, State] = {"error": "bad", "warning": "open", "note": "none", "unknown": "open"}


def document(result: Result, path: Path, commands: Commands | None = None) -> Document:
    """The document of rendered pools; names of files are relative to the run folder, which stands beside the
    title. `path` names the result in the message of the FileError for a damaged one. `commands` are those of
    its rollout, for what to do next."""
    data = checked(LaunchData, result.data, f"{path} is damaged: data")
    pools = Table(
        "",
        ("pool", "engine", "files"),
        tuple((name, *_pool(name, pool, data)) for name, pool in data.pools.items()),
        prose=(2,),
    )
    rows = tuple((name, *row) for name, pool in data.pools.items() for row in _findings(pool))
    findings = Table("Findings", ("pool", "level", "of", "why", "fix"), rows, prose=(3, 4))
    tables = (pools, findings.without_empty_prose()) if rows else (pools,)
    capacity = () if data.capacity.reason in result.reason else (sentence(data.capacity.reason),)
    section = Section("Rendered", capacity, tables=tables)
    steps = [_step(data, commands)] if commands is not None else []
    return Document.of_result(result, (data.folder, count(len(data.files), "file")), [section], steps)


def _pool(name: str, pool: RenderedPool, data: LaunchData) -> tuple[str, str]:
    own = [file for file in data.files if f"/{name}." in file or (file == COMPOSE and pool.in_a_container)]
    return f"{pool.engine} {pool.version or ''}".rstrip(), ", ".join(own) or "nothing"


def _findings(pool: RenderedPool) -> Iterator[tuple[str | Cell, ...]]:
    for finding in pool.findings:
        level = Cell(finding.level, LEVEL_STATES[finding.level])
        yield level, finding.flag, finding.why, finding.replacement or ""
    for entry in pool.unknown:
        yield Cell("unknown", LEVEL_STATES["unknown"]), entry.what, entry.why, entry.how
    for condition in pool.conditions:
        yield "chosen", condition.name, f"{condition.value or 'not known'} (by {pool.judged})", ""
    for part, why in pool.left_out.items():
        yield "left out", part, why, ""


def _step(data: LaunchData, commands: Commands) -> Step:
    again = commands.of("launch render {rollout}")
    if any(finding.level == "error" for pool in data.pools.values() for finding in pool.findings):
        return Step(f"fix the errors above in {commands.file}", "", again)
    if unread := [entry for pool in data.pools.values() for entry in pool.unknown if entry.decides]:
        return Step(unread[0].how, "", again)
    if data.capacity.verdict != "yes":
        change = data.capacity.change
        again = commands.of("run {rollout} --only baseline")
        return Step(change if change and change != AGAIN else "", "", again)
    if f"{RENDERED}/kubernetes/standard.yaml" in data.files:
        manifests = shlex.quote(str(Path(data.folder) / RENDERED / "kubernetes"))
        return Step("", "", f"kubectl apply -f {manifests}")
    if data.files:
        return Step("", "", shlex.quote(str(Path(data.folder) / data.files[0])))
    return Step("", "", commands.of("run {rollout}"))


def lint(result: Result, path: Path) -> Document:
    """The document of a lint, for a notebook."""
    rows: list[tuple[str | Cell, ...]] = []
    for command in checked(LintData, result.data, f"{path} is damaged: data").commands:
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
    columns = ("flag", "level", "why", "instead", "where")
    findings = Section("Findings", tables=(Table("", columns, tuple(rows), prose=(2, 3, 4)),))
    return Document.of_result(result, (), [findings] if rows else [])
