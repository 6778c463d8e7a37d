"""`specops doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.output import DebugFlag, JsonFlag, OutOption, QuietFlag, print_json


def doctor(
    rollout: Annotated[
        Path | None, typer.Argument(help="Also look at all that this rollout file names, where it is.")
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", help="Also look at this endpoint, such as http://host:8000/v1."),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(help="Also ask this Prometheus, by its root, such as http://host:9090."),
    ] = None,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Check this machine, an endpoint, Prometheus or a rollout.

    One line for each check, with its fix. Both pools of a rollout that run already get one short request:
    are they two servers, and does only the speculative one speculate?

    Keys come from the environment: SPECOPS_API_KEY, SPECOPS_PROMETHEUS_TOKEN, SPECOPS_PROMETHEUS_HEADERS.
    """
    from specops import results
    from specops.config import load

    file = load(rollout) if rollout else None  # before what follows is loaded
    from specops.phases.doctor.examine import examine, result

    checks = examine(base_url, prometheus, file)
    answer = result(checks)
    if out is not None:
        results.write(out, answer)
    if as_json:
        print_json(answer)
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            typer.echo(f"{check.status:4}  {check.name:{width}}  {check.found}")
            if check.fix and check.status != "ok":
                fix = check.fix.replace("ROLLOUT", str(rollout)) if rollout else check.fix
                typer.echo(f"{'':4}  {'':{width}}  fix: {fix}")
    raise typer.Exit(answer.exit_code)
