"""`specops launch …`: how pools are started, and what is wrong with how they are."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from specops.cli.call import Answer, AnswerOption, Call, RolloutCall, shared_options
from specops.phases.capacity.gate import AGAIN
from specops.phases.commands import Commands
from specops.phases.launch import COMPOSE, RENDERED, LaunchData, RenderedPool
from specops.phases.measurement import checked
from specops.render.figures import aligned, count, sentence
from specops.results import Result
from specops.serving import LintResult

launch = typer.Typer(no_args_is_help=True)


@launch.command()
@shared_options()
def render(call: RolloutCall) -> Answer:
    """Write start scripts, Compose and Kubernetes files of pools."""
    from specops import results
    from specops.phases.launch import render

    with call.progress() as progress:
        result = render(call.file, call.folder, progress)
    results.write(call.folder / "launch.json", result)
    return Answer(result, launch_page(result, call.commands))


@launch.command()
@shared_options(out=AnswerOption)
def lint(
    call: Call,
    command: Annotated[
        list[str] | None, typer.Argument(help="After --: the command, as it would be typed.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="A script, unit, Quadlet, Compose file, manifest, preset or YAML of flags."
        ),
    ] = None,
    engine_version: Annotated[
        str | None,
        typer.Option(
            help="Engine version; default: that of the image or the installed program, else the newest."
        ),
    ] = None,
) -> Answer:
    """Find unsupported or wrong flags of a serving engine.

    Exit 1 if an error is found, 4 if something that may hold one was not read.

    Warnings and notes do not fail. No engine is run: a version's flags come from its released source.
    """
    from specops.errors import UsageError
    from specops.phases.launch import SOURCE, lint_file, lint_words

    if (file is None) == (not command):
        raise UsageError(
            "launch lint needs a command or --file, not both",
            hint="specops launch lint --file start.sh",
        )
    if command and len(command) == 1 and Path(command[0]).is_file():
        raise UsageError(
            f"{command[0]} is a file: expected a command",
            hint=f"specops launch lint --file {shlex.quote(command[0])}",
        )
    judged, result = lint_file(file, engine_version) if file else lint_words(command or [], engine_version)
    return Answer(result, [*lint_page(judged), f"{result.reason}, {SOURCE}"])


def lint_page(judged: Sequence[LintResult]) -> list[str]:
    return [line for result in judged for line in _command(result)]


def _command(result: LintResult) -> Iterator[str]:
    yield f"{result.where}: {result.engine} {result.version}, {result.because}"
    for finding in result.findings:
        yield f"  {finding.level:8} {finding.flag}: {finding.why}"
        if finding.replacement:
            yield f"  {'':8} instead: {finding.replacement}"
    for entry in result.unknown:
        yield f"  unknown  {entry.what}: {entry.why}"
        yield f"  {'':8} find out: {entry.how}"
    if not result.findings and not result.unknown:
        yield f"  clean    no finding for {result.engine} {result.version}"
    if result.corrected is not None:
        whole = not result.left and not any(entry.decides for entry in result.unknown)
        yield "corrected:" if whole else "partly corrected:"
        yield ""
        yield from result.corrected.rstrip().splitlines()
        yield ""
    if result.left:
        flags = ", ".join(dict.fromkeys(finding.flag for finding in result.left))
        yield f"not corrected, fix by hand: {count(len(result.left), 'error')} ({flags})"


def launch_page(result: Result, commands: Commands) -> list[str]:
    """The page's lines; names of files are relative to the run folder, which the first line names."""
    data = checked(LaunchData, result.data, "launch.json is damaged: data")
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


def _row(name: str, pool: RenderedPool, data: LaunchData) -> list[str]:
    engine = f"{pool.engine} {pool.version or ''}".rstrip()
    pool_files = [file for file in data.files if file == COMPOSE or f"/{name}." in file]
    if pool.in_a_container:
        return ["  rendered", name, engine, "  ".join(pool_files)]
    return [
        "  rendered",
        name,
        engine,
        "  ".join(file for file in pool_files if file != COMPOSE) or "nothing",
    ]


def _findings(name: str, pool: RenderedPool) -> Iterator[str]:
    for finding in pool.findings:
        instead = f"; instead: {finding.replacement}" if finding.replacement else ""
        yield f"{finding.level:8}  {name}: {finding.flag}: {finding.why}{instead}"
    for entry in pool.unknown:
        yield f"unknown   {name}: {entry.what}: {entry.why}; find out: {entry.how}"
    if pool.conditions:
        chosen = ", ".join(
            f"{condition.name} {condition.value or 'not known'}" for condition in pool.conditions
        )
        yield f"chosen    {name}: {chosen} (by {pool.judged})"
    for part, why in pool.left_out.items():
        yield f"left out  {name}: {part}: {why}"


def _verdict(result: Result) -> str:
    files, errors = result.summary["files"], result.summary["errors"]
    wrote = f"wrote {count(files, 'file')}"
    if errors:
        return sentence(f"{wrote}, with {count(errors, 'error')} to fix before they are used")
    if result.summary["unknown"]:
        return sentence(
            f"{wrote}; {count(result.summary['unknown'], 'setting')} in them not judged: see above"
        )
    carries = {
        "yes": "the standard pool carries the peak alone",
        "no": "the standard pool does not carry the peak alone: falling back would overload it",
        "undecided": "whether the standard pool alone can carry the peak is not known: see capacity",
    }
    return sentence(f"{wrote}; {carries[result.summary['capacity']]}")


def _next(data: LaunchData, commands: Commands) -> Iterator[str]:
    if any(finding.level == "error" for pool in data.pools.values() for finding in pool.findings):
        yield f"change: fix the errors above in {commands.file}"
        yield f"next: {commands.of('launch render {rollout}')}"
    elif unread := [entry for pool in data.pools.values() for entry in pool.unknown if entry.decides]:
        yield f"change: {unread[0].how}"
        yield f"next: {commands.of('launch render {rollout}')}"
    elif data.capacity.verdict != "yes":
        if data.capacity.change not in (None, AGAIN):
            yield f"change: {data.capacity.change}"
        yield f"next: {commands.of('run {rollout} --only baseline')}"
    elif f"{RENDERED}/kubernetes/standard.yaml" in data.files:
        yield f"next: kubectl apply -f {shlex.quote(str(Path(data.folder) / RENDERED / 'kubernetes'))}"
    elif data.files:
        yield f"next: {shlex.quote(str(Path(data.folder) / data.files[0]))}"
    else:
        yield f"next: {commands.of('run {rollout}')}"
