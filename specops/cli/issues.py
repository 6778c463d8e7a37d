"""`specops issues`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.call import Answer, Call, complete_engine, shared_options

if TYPE_CHECKING:
    from specops.serving import KnownIssue, ReferenceAcceptance


@shared_options()
def issues(
    call: Call,
    engine: Annotated[
        str | None, typer.Option(help="Only of this engine, such as vllm.", autocompletion=complete_engine)
    ] = None,
    version: Annotated[
        str | None,
        typer.Option("--engine-version", help="Only those of this version, such as 0.33."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="Log or traceback; only issues whose error it shows. -: standard input."),
    ] = None,
    of: Annotated[
        list[str] | None,
        typer.Option(
            "--of",
            metavar="KEY=VALUE",
            help="Only of this condition; keys: k, runner, device, quantisation, adapters, or a flag.",
        ),
    ] = None,
    acceptance: Annotated[bool, typer.Option(help="List published acceptance lengths instead.")] = False,
) -> Answer:
    """`launch lint` names those that a command has, `canary` those that explain a failed check.

    With --log the newest are first. Exit 4 where none matches, which says nothing about other causes.
    """
    from specops.cli.call import nearest
    from specops.errors import Exit, UsageError
    from specops.hints import with_value
    from specops.serving import issues as known_issues
    from specops.serving import matching, reference_acceptances

    if acceptance:
        rows = reference_acceptances()
        return Answer([row.model_dump() for row in rows], _acceptances(rows))
    engines = sorted({issue.engine for issue in known_issues()})
    if engine is not None and engine not in engines:
        hint = with_value(engine, nearest(engine, engines))
        raise UsageError(f"no known issues of engine {engine!r}: expected {', '.join(engines)}", hint=hint)
    conditions = [condition.partition("=") for condition in of or []]
    if wrong := next((key for key, equals, value in conditions if not (equals and value)), None):
        raise UsageError(
            f"invalid --of {wrong!r}: expected KEY=VALUE", hint="specops issues --of device=rocm --of k=5"
        )
    listed = [
        issue
        for issue in (known_issues() if log is None else matching(_read(log)))
        if (engine is None or issue.engine == engine)
        and issue.of_version(version)
        and all(issue.of_key(key, value) for key, _, value in conditions)
    ]
    if log is not None and not listed:
        lines = [
            f"none of the {len(known_issues())} known issues has an error text that matches {log}",
            "this says nothing about other causes: search the engine's own issues for the last error",
        ]
        return Answer([], lines, Exit.UNDECIDED)
    return Answer([issue.model_dump() for issue in listed], _page(listed))


def _read(log: Path) -> str:
    """The log's text. Raises FileError where it cannot be read."""
    from specops.errors import FileError
    from specops.hints import listing

    if str(log) == "-":
        return sys.stdin.buffer.read().decode("utf-8", errors="replace")
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FileError(f"could not read {log}: {error.strerror}", hint=listing(log.parent)) from error


def _acceptances(rows: Sequence[ReferenceAcceptance]) -> Iterator[str]:
    for row in rows:
        yield f"{row.length:.2f} tokens a step  {row.model.strip('*')}, {row.method}, K = {row.k}"
        yield f"      {row.conditions} ({row.source}, {row.date})"


def _page(listed: Sequence[KnownIssue]) -> Iterator[str]:
    for issue in listed:
        since, before = issue.since or "any", f"before {issue.before}" if issue.before else "newest"
        yield f"{issue.id}  {issue.status}  {issue.engine} {since} to {before}"
        yield f"    {issue.symptom}" + (f" ({issue.needs})" if issue.needs else "")
        yield f"    workaround: {issue.workaround}"
        yield f"    {issue.source}"
    yield f"{len(listed)} known issues"
