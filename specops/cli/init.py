"""`specops init`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from specops.cli.call import Answer, Call, shared_options


class Written(TypedDict):
    rollout: str
    """Path of the file."""


@shared_options()
def init(
    call: Call,
    directory: Annotated[Path, typer.Argument(help="Where to write rollout.yaml.")] = Path(),
    base_url: Annotated[
        list[str] | None,
        typer.Option(help="Endpoint of one pool, such as http://127.0.0.1:8000/v1; give it twice."),
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Prompt set for --base-url; default: samples, written too.")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of rollout files; write nothing.")
    ] = False,
) -> Answer:
    """The file is DIRECTORY/rollout.yaml.

    With --base-url twice it is a short file for two servers that run. Each gets a few short requests; the
    one that speculates becomes the speculative pool.
    """
    if schema:
        from specops.config import Rollout

        schema_of_file = Rollout.model_json_schema()
        return Answer(schema_of_file, [json.dumps(schema_of_file, indent=1)])
    from specops.phases.init import write_rollout, write_rollout_of

    path = write_rollout_of(directory, base_url, prompts) if base_url else write_rollout(directory)
    return Answer(Written(rollout=str(path)), [f"wrote {path}", f"next: specops run {path}"])
