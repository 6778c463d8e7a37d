"""`specops doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.call import Answer, AnswerOption, Call, shared_options
from specops.cli.output import UnfoldedLine

if TYPE_CHECKING:
    from specops.phases.doctor.machine import Check


@shared_options(out=AnswerOption)
def doctor(
    call: Call,
    rollout: Annotated[
        Path | None, typer.Argument(help="Rollout file whose programs, files and servers are checked too.")
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", help="Endpoint to check too, such as http://host:8000/v1."),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(help="Prometheus to check too, such as http://host:9090."),
    ] = None,
) -> Answer:
    """One line for each check, with its fix. Both pools of a rollout that run already get one short request:
    are they two servers, and does only the speculative one speculate?

    Keys come from the environment: SPECOPS_API_KEY, SPECOPS_PROMETHEUS_TOKEN, SPECOPS_PROMETHEUS_HEADERS.
    """
    from specops.config import load

    file = load(rollout) if rollout else None  # before what follows is loaded
    from specops.phases.doctor import examine, result

    checks = examine(base_url, prometheus, file, rollout)
    return Answer(result(checks), _page(checks, runs=rollout is not None))


def _page(checks: Sequence[Check], *, runs: bool) -> Iterator[str]:
    """A text to paste begins at the first column, so that it can be pasted as it stands. `runs`: there is a
    rollout file, which can be run."""
    width = max(len(check.name) for check in checks)
    states = max(len(check.status) for check in checks)
    for check in checks:
        yield f"{check.status:{states}}  {check.name:{width}}  {check.found}"
        if check.status == "ok":
            continue
        if check.paste:
            then = ", then run the command below it" if check.fix else ""
            yield f"{'':{states}}  {'':{width}}  fix: paste this into {check.paste.into}{then}"
            yield from map(UnfoldedLine, check.paste.text.splitlines())
        if check.fix:
            label = "" if check.paste else f"{'':{states}}  {'':{width}}  fix: "
            yield UnfoldedLine(f"{label}{check.fix}")
    counts = Counter(check.status for check in checks)
    summary = ", ".join(
        f"{counts[status]} {status}" for status in ("ok", "warn", "unknown", "fail") if counts[status]
    )
    yield f"{len(checks)} checks: {summary}"
    if runs and not counts["fail"]:
        yield "next: specops run ROLLOUT"
