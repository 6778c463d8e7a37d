"""The page of `launch render`: what was written, what is wrong with it, and whether it carries the peak."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from specops.phases.commands import Commands
from specops.phases.measurement import checked
from specops.phases.rendered import COMPOSE, RENDERED, Rendered, RenderedPool
from specops.phases.throughput import AGAIN
from specops.render.figures import aligned, count, sentence
from specops.results import Result


def page(result: Result, commands: Commands) -> list[str]:
    """The page's lines; names of files are relative to the run folder, which the first line names."""
    data = checked(Rendered, result.data, "launch.json is damaged: data")
    lines = [
        f"launch · {data.folder}",
        *aligned([_row(name, pool, data) for name, pool in data.pools.items()]),
    ]
    for name, pool in data.pools.items():
        lines += [f"  {line}" for line in _findings(name, pool)]
    lines += [f"  capacity  {data.capacity.reason}"]
    lines.append(_verdict(result))
    lines += _next(data, commands)
    return lines


def _row(name: str, pool: RenderedPool, data: Rendered) -> list[str]:
    engine = f"{pool.engine} {pool.version or ''}".rstrip()
    ours = [file for file in data.files if file == COMPOSE or f"/{name}." in file]
    if pool.in_a_container:
        return ["  rendered", name, engine, "  ".join(ours)]
    return ["  rendered", name, engine, "  ".join(file for file in ours if file != COMPOSE) or "nothing"]


def _findings(name: str, pool: RenderedPool) -> Iterator[str]:
    for found in pool.findings:
        instead = f"; instead: {found.replacement}" if found.replacement else ""
        yield f"{found.level:8}  {name}: {found.flag}: {found.why}{instead}"
    for what, why in pool.left_out.items():
        yield f"left out  {name}: {what}: {why}"


def _verdict(result: Result) -> str:
    files, errors = result.summary["files"], result.summary["errors"]
    wrote = f"wrote {count(files, 'file')}"
    if errors:
        return sentence(f"{wrote}, with {count(errors, 'error')} to fix before they are used")
    carries = {
        "yes": "the standard pool carries the peak alone",
        "no": "the standard pool does not carry the peak alone: falling back would overload it",
        "undecided": "whether the standard pool carries the peak alone is not known yet",
    }
    return sentence(f"{wrote}; {carries[result.summary['capacity']]}")


def _next(data: Rendered, commands: Commands) -> Iterator[str]:
    if any(found.level == "error" for pool in data.pools.values() for found in pool.findings):
        yield f"change: fix the errors above in {commands.file}"
        yield f"next: {commands.of('launch render {rollout}')}"
    elif data.capacity.verdict != "yes":
        if data.capacity.hint not in (None, AGAIN):
            yield f"change: {data.capacity.hint}"
        yield f"next: {commands.of('run {rollout} --only baseline')}"
    elif f"{RENDERED}/kubernetes/standard.yaml" in data.files:
        yield f"next: kubectl apply -f {shlex.quote(str(Path(data.folder) / RENDERED / 'kubernetes'))}"
    elif data.files:
        yield f"next: {shlex.quote(str(Path(data.folder) / data.files[0]))}"
    else:
        yield f"next: {commands.of('run {rollout}')}"
