"""`specops launch …`: how pools are started, and what is wrong with how they are."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from specops.cli.call import Answer, AnswerOption, Call, RolloutCall, shared_options
from specops.render.figures import count
from specops.serving import LintResult

launch = typer.Typer(no_args_is_help=True)


@launch.command()
@shared_options()
def render(call: RolloutCall) -> Answer:
    """Write start scripts, Compose and Kubernetes files of pools."""
    from specops import results
    from specops.phases.launch import render
    from specops.phases.launch.document import document

    path = call.folder / "launch.json"
    with call.progress() as progress:
        result = render(call.file, call.folder, progress)
    results.write(path, result)
    return Answer(result, document(result, path, call.commands))


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
