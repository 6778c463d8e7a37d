"""`specops canary`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
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
from specops.phases.commands import Commands
from specops.phases.measurement import checked
from specops.render.figures import aligned, count, sentence
from specops.results import Result
from specops.validation import problem

if TYPE_CHECKING:
    from specops.config import Rollout
    from specops.config.rollout import CheckName
    from specops.phases.canary.pool_pair import Conformance
    from specops.serving import Pool

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
    from specops.phases.commands import Commands
    from specops.phases.measurement import partial_results

    wanted = _checks(only)
    folder = (
        run_folder(rollout, file.rollout, call.out) if rollout else call.out or Path("runs") / file.rollout
    )
    path = folder / FILE
    previous = results.read(path) if path.exists() and not fresh else None
    if previous is not None and not resumable(previous, inputs(file, wanted), str(path)):
        previous = None
    with call.progress() as shown:

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
    commands = Commands(file, rollout, folder) if rollout else None
    return Answer(result, page(result, path, commands, shlex.join(["specops", *sys.argv[1:]])))


def _checks(only: str) -> list[CheckName]:
    from typing import get_args

    from specops.config.rollout import CheckName

    wanted, known = names(only), get_args(CheckName)
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"the canary has no check {name!r}: expected {', '.join(known)}",
                hint=with_options({"--only": nearest(name, known)}),
            )
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
        raise UsageError(f"could not use the options: {where} {problem(first)}", hint=HINT) from error


def _only_model(base_url: str) -> str:
    from specops.access import OPEN
    from specops.load.client import only_model
    from specops.load.settings import Endpoint, checked_base_url

    try:
        at = Endpoint(checked_base_url(base_url), "", credentials=OPEN.credentials())
    except ValueError as error:
        raise UsageError(f"{base_url} is not a usable address: it {error}", hint=HINT) from None

    return only_model(at)


WORDS = {
    "pass": "pass",
    "fail": "FAIL",
    "unsupported": "unsupported",
    "differs": "differs",
    "undecided": "undecided",
}
WIDEST = 150


def page(result: Result, path: Path, commands: Commands | None, again: str) -> list[str]:
    """The page's lines; requests that show what differs or is undecided are in `path`, the result. `again`
    is the command that made it, `commands` those of its rollout; None for a canary of two addresses."""
    from specops.phases.canary.pool_pair import Conformance

    data = checked(Conformance, result.data, f"{path} is damaged: data")
    requested = ", ".join(f"{number} to {pool}" for pool, number in data.requests.items())
    lines = [f"canary · {count(len(data.checks), 'check')} · requests: {requested} · {path}"]
    lines += aligned([[f"  {one.name}", WORDS[one.status], _short(one.message)] for one in data.checks])
    for one in data.checks:
        if one.status == "fail" and one.request:
            lines += ["", f"{one.name}, as sent to the speculative pool:", one.request]
        if one.status == "fail" and commands is not None:
            lines += _known(commands.rollout.pools.speculative, one.name)
    if any(one.status == "fail" for one in data.checks):
        lines.append("")
    for entry in data.unsupported:
        if entry.pool == "speculative":
            lines.append(f"  rule: requests with {entry.parameter} go to the standard pool")
    return [*lines, sentence(result.reason), *_next(data, result, commands, again)]


def _known(pool: Pool, check: str) -> Iterator[str]:
    """Known issues of the pool's engine that a failure of `check` may be."""
    from specops.serving import of_check

    version = pool.pair.version if pool.pair else None
    for issue in of_check(pool.engine, version, check):
        yield f"  possibly {issue.id} ({issue.status}): {issue.symptom}"
        yield f"    workaround: {issue.workaround}; {issue.source}"


def _short(message: str) -> str:
    return message if len(message) <= WIDEST else message[: WIDEST - 1] + "…"


def _next(data: Conformance, result: Result, commands: Commands | None, again: str) -> Iterator[str]:
    failed = {one.name for one in data.checks if one.status == "fail"}
    routed = any(one.status == "fail" and one.parameter for one in data.checks)
    if failed == {"mixed"} and commands is not None:
        yield f"change: keep sampled requests standard: route.max_temperature: 0 in {commands.file}"
        yield f"next: {commands.of('route render {rollout}')}"
    elif failed:
        yield "change: send the request above to both servers, and report it to the engine's maintainers"
        if routed and commands is not None:  # meanwhile such requests stay standard
            yield f"next: {commands.of('route render {rollout}')}"
        else:
            yield f"next: {again}"
    elif result.verdict == "undecided":
        yield "change: nothing else may send requests to the servers meanwhile"
        yield f"next: {again}"
    elif commands is not None:
        yield f"next: {commands.of('monitor render {rollout}')}"
    else:
        yield "next: specops init"
