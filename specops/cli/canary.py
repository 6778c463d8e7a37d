"""`specops canary`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.load_options import ApiKeyOption, EndpointOption, PromptsOption, names
from specops.cli.output import DebugFlag, JsonFlag, QuietFlag, print_json
from specops.cli.progress import progress
from specops.errors import UsageError

if TYPE_CHECKING:
    from specops.config import Rollout
    from specops.config.canary import CheckName

HINT = "specops canary rollout.yaml, or --standard http://HOST:8000/v1 --speculative http://HOST:8001/v1"


def canary(
    rollout: Annotated[
        Path | None, typer.Argument(help="The rollout file: its pools, prompts and section canary.")
    ] = None,
    standard: Annotated[
        str | None, typer.Option(help="In its place: the base URL of a server that does not speculate.")
    ] = None,
    speculative: Annotated[str | None, typer.Option(help="And of one that does.")] = None,
    model: Annotated[
        str | None, typer.Option(help="What both call the model; left out: the only one that each lists.")
    ] = None,
    endpoint: EndpointOption = "chat",
    prompts: PromptsOption = None,
    only: Annotated[str, typer.Option(help="Checks to make, by commas; all without.")] = "",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Repeat all checks; discard stored findings.")
    ] = False,
    api_key_env: ApiKeyOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The run folder; default: runs/NAME, or runs/canary."),
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Check that the speculative pool answers as the standard.

    Resumes where Ctrl-C or SIGTERM ended it. Exit 1 where it does not, 4 where it is undecided. What only
    the speculative pool lacks becomes a rule of the router.
    """
    from specops.config import load, run_folder

    if (rollout is None) == (standard is None and speculative is None):
        raise UsageError("the canary asks the pools of a rollout file, or two addresses", hint=HINT)
    if rollout is None:
        file = _of_addresses(standard, speculative, model, endpoint, prompts)
    else:
        file = load(rollout)  # before what follows is loaded: a wrong file is answered at once
    from specops import results
    from specops.cli.canary_page import page
    from specops.phases.canary import FILE, inputs, resumable
    from specops.phases.canary import canary as ask
    from specops.phases.commands import Commands
    from specops.phases.partial_results import partial_results

    wanted = _checks(only)
    folder = run_folder(rollout, file.rollout, out) if rollout else out or Path("runs") / file.rollout
    path = folder / FILE
    previous = results.read(path) if path.exists() and not fresh else None
    if previous is not None and not resumable(previous, inputs(file, wanted), str(path)):
        previous = None
    with progress(quiet) as shown:

        def set_aside() -> None:
            if path.exists():
                shown.note(f"the earlier canary is now {results.set_aside(path)}")

        with partial_results(path, shown, resumed=previous is not None, before_first=set_aside) as keep:
            keep(
                ask(
                    file,
                    folder,
                    shown,
                    only=wanted,
                    api_key_env=api_key_env,
                    previous=previous,
                    on_partial=keep,
                )
            )
    result = results.read(path)
    if as_json:
        print_json(result)
    else:
        commands = Commands(file, rollout, folder) if rollout else None
        again = shlex.join(["specops", *sys.argv[1:]])
        typer.echo("\n".join(page(result, path, commands, again)))
    raise typer.Exit(result.exit_code)


def _checks(only: str) -> list[CheckName]:
    from typing import get_args

    from specops.config.canary import CheckName

    wanted, known = names(only), get_args(CheckName)
    for name in wanted:
        if name not in known:
            raise UsageError(f"the canary has no check {name!r}", hint=f"known: {', '.join(known)}")
    return wanted  # type: ignore[return-value]


def _of_addresses(
    standard: str | None, speculative: str | None, model: str | None, endpoint: str, prompts: Path | None
) -> Rollout:
    """A rollout of two endpoints that run already."""
    from pydantic import ValidationError

    from specops.config import Rollout

    if standard is None or speculative is None:
        raise UsageError("the canary needs both --standard and --speculative", hint=HINT)
    fields: dict[str, Any] = {
        "rollout": "canary",
        "pools": {
            name: {"engine": "endpoint", "base_url": url, "model": model or _only_model(url)}
            for name, url in (("standard", standard), ("speculative", speculative))
        },
        "measure": {"endpoint": endpoint},
    }
    try:
        return Rollout.model_validate(fields | ({"prompts": str(prompts)} if prompts else {}))
    except ValidationError as error:
        first = error.errors()[0]
        where = "--" + str(first["loc"][-2 if first["loc"][-1] == "base_url" else -1])
        raise UsageError(f"could not use the options: {where}: {first['msg']}", hint=HINT) from error


def _only_model(base_url: str) -> str:
    import asyncio

    from specops.load.client import Client
    from specops.load.settings import Decoding, Endpoint, api_key, checked_base_url

    try:
        at = Endpoint(checked_base_url(base_url), "", api_key=api_key())
    except ValueError as error:
        raise UsageError(f"{base_url} is not a usable address: it {error}", hint=HINT) from None

    async def ask() -> str:
        async with Client(at, Decoding()) as client:
            return await client.only_model()

    return asyncio.run(ask())
