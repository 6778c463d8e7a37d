"""`specops init`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from specops.cli.call import Answer, Call, nearest, shared_options
from specops.hints import with_options
from specops.serving import ENGINES, OWN

STARTED = [name for name, engine in ENGINES.items() if engine.drafts is not None]
"""Engines whose pools `init` can write: those whose drafts specops knows."""


class InitOutput(TypedDict):
    rollout: str
    """Path of the file."""


@shared_options()
def init(
    call: Call,
    directory: Annotated[Path, typer.Argument(help="Folder for rollout.yaml.")] = Path(),
    base_url: Annotated[
        list[str] | None,
        typer.Option(help="Endpoint of one pool, such as http://127.0.0.1:8000/v1; give it twice."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help=f"Engine of pools that specops starts: {', '.join(STARTED)}; default: embedded."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Target, a folder or hub id; embedded has one of its own.")
    ] = None,
    draft: Annotated[
        str | None, typer.Option(help="Draft, a folder or hub id; default: n-grams of the text.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Prompt set; default: samples, written beside the file.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Write every key, each with a comment.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of rollout files; write nothing.")
    ] = False,
) -> Answer:
    """The file is DIRECTORY/rollout.yaml, short, and runs as it is; the rollout has the folder's name.

    With --base-url twice it is for two servers that run. Each gets a few short requests; the one that
    speculates becomes the speculative pool. Otherwise specops starts both pools: of the pair that ships with
    specops, or of --engine, --model and --draft.
    """
    if schema:
        from specops.config import Rollout

        schema_of_file = Rollout.model_json_schema()
        return Answer(schema_of_file, [json.dumps(schema_of_file, indent=1)])
    from specops.errors import UsageError
    from specops.phases.init import write_commented, write_endpoints, write_pools

    pools = [name for name, value in (("--engine", engine), ("--model", model), ("--draft", draft)) if value]
    if base_url and pools:
        raise UsageError(f"--base-url and {pools[0]} exclude each other", hint=with_options({pools[0]: None}))
    if full and (base_url or pools or prompts):
        raise UsageError("--full takes no other option", hint=f"specops init {directory} --full")
    name = engine or OWN.name
    if name not in STARTED:
        raise UsageError(
            f"could not use --engine {name!r}: expected {', '.join(STARTED)}",
            hint=with_options({"--engine": nearest(name, STARTED)}),
        )
    if full:
        path = write_commented(directory)
    elif base_url:
        path = write_endpoints(directory, base_url, prompts)
    else:
        path = write_pools(directory, ENGINES[name].name, model, draft, prompts)
    return Answer(InitOutput(rollout=str(path)), [f"wrote {path}", f"next: specops run {path}"])
