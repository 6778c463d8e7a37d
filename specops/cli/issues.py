"""`specops issues`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.call import Answer, Call, shared_options

if TYPE_CHECKING:
    from specops.serving import KnownIssue, ReferenceAcceptance


@shared_options()
def issues(
    call: Call,
    engine: Annotated[str | None, typer.Option(help="Only of this engine, such as vllm.")] = None,
    version: Annotated[
        str | None,
        typer.Option("--engine-version", help="Only those of this version, such as 0.33."),
    ] = None,
    acceptance: Annotated[bool, typer.Option(help="List published acceptance lengths instead.")] = False,
) -> Answer:
    """`launch lint` names those that a command has, `canary` those that explain a failed check."""
    from specops.errors import UsageError
    from specops.serving import issues as known_issues
    from specops.serving import reference_acceptances

    if acceptance:
        rows = reference_acceptances()
        return Answer([row.model_dump() for row in rows], _acceptances(rows))
    engines = sorted({issue.engine for issue in known_issues()})
    if engine is not None and engine not in engines:
        hint = f"specops issues --engine {engines[0]}"
        raise UsageError(f"no known issues of engine {engine!r}: expected {', '.join(engines)}", hint=hint)
    found = [
        issue
        for issue in known_issues()
        if (engine is None or issue.engine == engine) and issue.of_version(version)
    ]
    return Answer([issue.model_dump() for issue in found], _page(found))


def _acceptances(rows: Sequence[ReferenceAcceptance]) -> Iterator[str]:
    for row in rows:
        yield f"{row.length:.2f} tokens a step  {row.model.strip('*')}, {row.method}, K = {row.k}"
        yield f"      {row.conditions} ({row.source})"


def _page(found: Sequence[KnownIssue]) -> Iterator[str]:
    for issue in found:
        since, before = issue.since or "any", f"before {issue.before}" if issue.before else "newest"
        yield f"{issue.id}  {issue.status}  {issue.engine} {since} to {before}"
        yield f"    {issue.symptom}" + (f" (with {issue.traffic})" if issue.traffic else "")
        yield f"    workaround: {issue.workaround}"
        yield f"    {issue.source}"
    yield f"{len(found)} known issues"
