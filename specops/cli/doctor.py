"""`specops doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from specops.cli.output import DebugFlag, JsonFlag, OutOption, QuietFlag, print_json


def doctor(
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", help="Also look at this endpoint, such as http://host:8000/v1."),
    ] = None,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Look at this machine, and at an endpoint: a line for each check, with its mend."""
    from specops import results
    from specops.phases.doctor import examine, result

    checks = examine(base_url)
    answer = result(checks)
    if out is not None:
        results.write(out, answer)
    if as_json:
        print_json(answer)
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            typer.echo(f"{check.status:4}  {check.name:{width}}  {check.found}")
            if check.mend and check.status != "ok":
                typer.echo(f"{'':4}  {'':{width}}  mend: {check.mend}")
    raise typer.Exit(answer.exit_code)
