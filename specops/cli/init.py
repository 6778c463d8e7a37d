"""`specops init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.output import DebugFlag, JsonFlag, QuietFlag, print_json


def init(
    directory: Annotated[Path, typer.Argument(help="Where to write rollout.yaml.")] = Path(),
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of rollout files; write nothing.")
    ] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Write a commented rollout file to start from."""
    if schema:
        from specops.config import Rollout

        print_json(Rollout.model_json_schema())
        return
    from specops.phases.init import write_rollout

    path = write_rollout(directory)
    if as_json:
        print_json({"rollout": str(path)})
    else:
        typer.echo(f"wrote {path}\nnext: specops run {path}")
