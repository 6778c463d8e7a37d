"""`specops canary`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.call import (
    Answer,
    ApiKeyOption,
    Call,
    EndpointOption,
    PromptsOption,
    names,
    nearest,
    shared_options,
)
from specops.errors import UsageError
from specops.hints import with_options
from specops.validation import problem

if TYPE_CHECKING:
    from specops.config import Rollout
    from specops.config.rollout import CheckName

HINT = "specops canary rollout.yaml"

CanaryFolder = Annotated[
    Path | None, typer.Option("--out", help="Run folder; default: runs/NAME, or runs/canary.")
]


@shared_options(out=CanaryFolder)
def canary(
    call: Call,
    rollout: Annotated[
        Path | None, typer.Argument(help="The rollout file: its pools, prompts and section canary.")
    ] = None,
    standard: Annotated[
        str | None, typer.Option(help="Base URL of a server that does not speculate, without a rollout file.")
    ] = None,
    speculative: Annotated[str | None, typer.Option(help="Base URL of the server that speculates.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model name on both servers; default: the only one that each lists.")
    ] = None,
    endpoint: EndpointOption = "chat",
    prompts: PromptsOption = None,
    only: Annotated[str, typer.Option(help="Checks to run, comma-separated; default: all.")] = "",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Repeat all checks; discard stored findings.")
    ] = False,
    api_key_env: ApiKeyOption = None,
) -> Answer:
    """Resumes where Ctrl-C or SIGTERM ended it. Exit 1 if a check fails, 4 if one is undecided.
    Parameters that only the speculative pool does not support get a router rule.
    """
    from specops.config import load, run_folder

    if (rollout is None) == (standard is None and speculative is None):
        raise UsageError("the canary needs a rollout file, or two addresses", hint=HINT)
    if rollout is None:
        file = _of_addresses(standard, speculative, model, endpoint, prompts)
    else:
        file = load(rollout)  # before what follows is loaded: a wrong file is answered at once
    from specops import results
    from specops.phases.canary import FILE, inputs, resumable
    from specops.phases.canary import canary as ask
    from specops.phases.canary.document import document
    from specops.phases.commands import Commands
    from specops.phases.measurement import partial_results

    checks = _checks(only)
    folder = (
        run_folder(rollout, file.rollout, call.out) if rollout else call.out or Path("runs") / file.rollout
    )
    path = folder / FILE
    previous = results.read(path) if path.exists() and not fresh else None
    if previous is not None and not resumable(previous, inputs(file, checks), str(path)):
        previous = None
    with call.progress() as progress:

        def set_aside() -> None:
            if path.exists():
                progress.note(f"the earlier canary is now {results.set_aside(path)}")

        with partial_results(path, progress, resumed=previous is not None, before_first=set_aside) as keep:
            keep(
                ask(
                    file,
                    folder,
                    progress,
                    only=checks,
                    api_key_env=api_key_env,
                    previous=previous,
                    on_partial=keep,
                )
            )
    result = results.read(path)
    commands = Commands(file, rollout, folder) if rollout else None
    return Answer(result, document(result, path, commands))


def _checks(only: str) -> list[CheckName]:
    from typing import get_args

    from specops.config.rollout import CheckName

    checks, choices = names(only), get_args(CheckName)
    for name in checks:
        if name not in choices:
            raise UsageError(
                f"the canary has no check {name!r}: expected {', '.join(choices)}",
                hint=with_options({"--only": nearest(name, choices)}),
            )
    return checks  # type: ignore[return-value]


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
        raise UsageError(f"could not use the options: {where} {problem(first)}", hint=HINT) from error


def _only_model(base_url: str) -> str:
    from specops.access import OPEN
    from specops.load.client import only_model
    from specops.load.settings import Endpoint, checked_base_url

    try:
        endpoint = Endpoint(checked_base_url(base_url), "", credentials=OPEN.credentials())
    except ValueError as error:
        raise UsageError(f"{base_url} is not a usable address: it {error}", hint=HINT) from None

    return only_model(endpoint)
