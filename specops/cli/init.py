"""`specops init`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typing_extensions import TypedDict

from specops.cli.call import Answer, Call, completing, nearest, shared_options
from specops.errors import UsageError
from specops.hints import with_options
from specops.render.figures import count
from specops.serving import ENGINES, OWN

if TYPE_CHECKING:
    from specops.access import Access
    from specops.phases.init import WrittenFile

STARTED = [name for name, engine in ENGINES.items() if engine.drafts is not None]
"""Engines whose pools `init` can write: those whose drafts specops knows."""


class InitOutput(TypedDict):
    rollout: str
    """Path of the file."""

    warnings: list[str]
    """What could not be checked, in sentences."""

    run_sends: str | None
    """What `specops run` sends to servers that run, and for how long; null: they were not timed."""


@shared_options()
def init(
    call: Call,
    directory: Annotated[Path, typer.Argument(help="Folder for rollout.yaml.")] = Path(),
    base_url: Annotated[
        list[str] | None,
        typer.Option(help="Endpoint of one pool, such as http://127.0.0.1:8000/v1; give it twice."),
    ] = None,
    api_key_env: Annotated[
        list[str] | None,
        typer.Option(
            help="Environment variable with the API key: once for both endpoints, or twice in their order."
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="Header for both endpoints, as 'NAME: VALUE'; ${NAME} is an environment variable."),
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="Certificates (PEM) of the authority of both endpoints.")
    ] = None,
    client_cert: Annotated[
        Path | None, typer.Option(help="Client certificate (PEM) for both endpoints.")
    ] = None,
    client_key: Annotated[
        Path | None, typer.Option(help="Private key (PEM) of --client-cert; default: in its file.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help=f"Engine of pools that specops starts: {', '.join(STARTED)}; default: embedded.",
            autocompletion=completing(lambda: STARTED),
        ),
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
    from specops.phases.init import WrittenFile, write_commented, write_endpoints, write_pools

    pools = [name for name, value in (("--engine", engine), ("--model", model), ("--draft", draft)) if value]
    if base_url and pools:
        raise UsageError(f"--base-url and {pools[0]} exclude each other", hint=with_options({pools[0]: None}))
    if full and (base_url or pools or prompts):
        raise UsageError("--full takes no other option", hint=f"specops init {directory} --full")
    if prompts is not None:
        from specops.load.workload import load_prompts

        load_prompts(prompts)  # before any request, and before a file names them
    name = engine or OWN.name
    if name not in STARTED:
        raise UsageError(
            f"could not use --engine {name!r}: expected {', '.join(STARTED)}",
            hint=with_options({"--engine": nearest(name, STARTED)}),
        )
    accesses = _accesses(
        len(base_url or ()), api_key_env or [], header or [], ca_file, client_cert, client_key
    )
    if full:
        written = WrittenFile(write_commented(directory))
    elif base_url:
        written = write_endpoints(directory, base_url, prompts, accesses)
    else:
        written = write_pools(directory, ENGINES[name].name, model, draft, prompts)
    run = f"specops run {written.path}"
    lines = [f"wrote {written.path}", *(f"warning: {warning}" for warning in written.warnings)]
    load = _load(written)
    lines += [f"a run sends {load}"] * (load is not None)
    lines.append(f"next: {f'{written.check}  # then: {run}' if written.check else run}")
    value = InitOutput(rollout=str(written.path), warnings=[*written.warnings], run_sends=load)
    return Answer(value, lines)


def _load(written: WrittenFile) -> str | None:
    """Return what a run of the file sends, by the times of its servers; None: they were not timed."""
    if written.token_s is None:
        return None
    from specops.cli.run import load_sentence
    from specops.config import load, run_folder
    from specops.phases.phase import PhaseInput
    from specops.phases.playbook.walk import forecast
    from specops.progress import SilentProgress

    rollout = load(written.path)
    folder = run_folder(written.path, rollout.rollout)
    task = PhaseInput(rollout, written.path, folder, SilentProgress())
    return load_sentence(forecast(task, token_s=written.token_s), rollout)


def _accesses(
    endpoints: int,
    keys: list[str],
    headers: list[str],
    ca_file: Path | None,
    client_cert: Path | None,
    client_key: Path | None,
) -> list[Access]:
    """Return what each endpoint requires. Raises UsageError for wrong values, and for any without an
    endpoint."""
    from pydantic import ValidationError

    from specops.access import Access

    options = {
        "--api-key-env": keys,
        "--header": headers,
        "--ca-file": ca_file,
        "--client-cert": client_cert,
        "--client-key": client_key,
    }
    named = next((option for option, value in options.items() if value), None)
    if named is not None and not endpoints:
        raise UsageError(f"{named} is for endpoints: --base-url is missing", hint="specops init --help")
    if len(keys) not in (0, 1, endpoints):
        raise UsageError(
            f"--api-key-env is given {count(len(keys), 'time')} for {count(endpoints, 'endpoint')}: "
            "expected once, or once for each",
            hint="specops init --help",
        )
    pairs = [text.partition(":") for text in headers]
    fields: dict[str, object] = {
        "headers": {name.strip(): value.strip() for name, _, value in pairs},
        "ca_file": ca_file,
        "client_cert": client_cert,
        "client_key": client_key,
    }
    fields = {name: value for name, value in fields.items() if value}
    endpoint_keys = keys * endpoints if len(keys) < 2 else keys
    named_keys = [{"api_key_env": key} for key in endpoint_keys] or [{}] * endpoints
    try:
        return [Access.model_validate(fields | key) for key in named_keys]
    except ValidationError as error:
        first = error.errors()[0]
        option = f"--{first['loc'][0]}".replace("_", "-").removesuffix("s") if first["loc"] else "the options"
        advice = first.get("ctx", {}).get("advice")
        raise UsageError(
            f"could not use {option}: {first['msg']}{f'; {advice}' if advice else ''}",
            hint="specops init --help",
        ) from None
