"""`specops issues`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from specops.cli.output import DebugFlag, JsonFlag, QuietFlag


def issues(
    engine: Annotated[str | None, typer.Option(help="Only of this engine, such as vllm.")] = None,
    version: Annotated[
        str | None,
        typer.Option("--engine-version", help="Only those of this version, such as 0.33."),
    ] = None,
    acceptance: Annotated[bool, typer.Option(help="List published acceptance lengths instead.")] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """List known issues of serving engines with speculation.

    `launch lint` names those that a command has, `canary` those that a failed check may be. Exit code 0.
    """
    from specops.errors import UsageError
    from specops.serving import issues as known_issues
    from specops.serving import reference_acceptances

    if acceptance:
        rows = reference_acceptances()
        if as_json:
            typer.echo(json.dumps([row.model_dump() for row in rows], indent=2, ensure_ascii=False))
            return
        for row in rows:
            typer.echo(f"{row.length:.2f} tokens a step  {row.model.strip('*')}, {row.method}, K = {row.k}")
            typer.echo(f"      {row.conditions} ({row.source})")
        return
    engines = sorted({issue.engine for issue in known_issues()})
    if engine is not None and engine not in engines:
        hint = f"specops issues --engine {engines[0]}"
        raise UsageError(f"no known issues of engine {engine!r}: expected {', '.join(engines)}", hint=hint)
    found = [
        issue
        for issue in known_issues()
        if (engine is None or issue.engine == engine) and issue.of_version(version)
    ]
    if as_json:
        typer.echo(json.dumps([issue.model_dump() for issue in found], indent=2, ensure_ascii=False))
        return
    for issue in found:
        since, before = issue.since or "any", f"before {issue.before}" if issue.before else "newest"
        typer.echo(f"{issue.id}  {issue.status}  {issue.engine} {since} to {before}")
        typer.echo(f"    {issue.symptom}" + (f" (with {issue.traffic})" if issue.traffic else ""))
        typer.echo(f"    workaround: {issue.workaround}")
        typer.echo(f"    {issue.source}")
    typer.echo(f"{len(found)} known issues")
