"""`specops init`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from specops.cli.call import Answer, Call, shared_options


@shared_options()
def init(
    call: Call,
    directory: Annotated[Path, typer.Argument(help="Where to write rollout.yaml.")] = Path(),
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of rollout files; write nothing.")
    ] = False,
) -> Answer:
    """The file is DIRECTORY/rollout.yaml."""
    if schema:
        from specops.config import Rollout

        schema_of_file = Rollout.model_json_schema()
        return Answer(schema_of_file, [json.dumps(schema_of_file, indent=1)])
    from specops.phases.init import write_rollout

    path = write_rollout(directory)
    return Answer({"rollout": str(path)}, [f"wrote {path}", f"next: specops run {path}"])
