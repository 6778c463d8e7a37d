"""`specops edge bench`: whether to draft at the edge, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.call import Answer, AnswerOption, Call, extra, numbers, shared_options
from specops.quantities import MILLISECONDS

if TYPE_CHECKING:
    pass


@shared_options(out=AnswerOption)
def bench(
    call: Call,
    rollout: Annotated[
        Path | None, typer.Argument(help="The rollout file. [default: the shipped playbooks/edge.yaml]")
    ] = None,
    rtt: Annotated[
        float | None,
        MILLISECONDS,
        typer.Option("--rtt", min=0.0, max=60_000.0, help="Round-trip time in ms. [default: the file's]"),
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option(
            "--clients",
            help="Numbers of concurrent clients, comma-separated, such as 1,4,8. [default: the file's]",
        ),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            "--heads",
            help="Numbers of guessed outcomes, such as 0,1,8; one edge arm each. [default: the file's]",
        ),
    ] = None,
    ahead: Annotated[
        str | None,
        typer.Option(
            "--ahead",
            help="Numbers of next trees to send before the verdict, such as 0,16; one edge arm each, at the "
            "largest --heads. [default: the file's]",
        ),
    ] = None,
    depth: Annotated[
        str | None,
        typer.Option(
            "--depth",
            help="Depth: adaptive, included:D, excluded:D; one edge arm each. [default: the file's]",
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "--count", min=1, help="Number of prompts at each load, spread over the set; few are repeated."
        ),
    ] = 64,
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", min=2, help="Tokens of an answer. [default: the file's, or 64]"),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", min=0.0, help="Sampling temperature. [default: the file's]"),
    ] = None,
) -> Answer:
    """Compare drafting on the server, at the edge, and none.

    One pair and the same prompts, over a link with delay.

    Ctrl-C or SIGTERM ends it. Finished measurements are printed, and stored in --out where it is given.
    """
    from pydantic import ValidationError

    from specops.assets import asset
    from specops.config import load
    from specops.errors import SpecopsError, Stopped
    from specops.results import Result

    with extra("edge", "bench edge drafting"):
        from specops.phases.edge_bench.document import document
        from specops.phases.edge_bench.measure import measure
        from specops.phases.edge_bench.settings import settings_of
    try:
        settings = settings_of(
            load(rollout or asset("playbooks", "edge.yaml")),
            rtt_ms=rtt,
            clients=None if clients is None else numbers("--clients", clients, int, least=1),
            heads=None if heads is None else numbers("--heads", heads, int, least=0),
            ahead=None if ahead is None else numbers("--ahead", ahead, int, least=0),
            depth=None if depth is None else _depths(depth),
            count=count,
            tokens=tokens,
            temperature=temperature,
        )
    except ValidationError as error:
        raise call.wrong_option(error) from error

    partial: list[Result] = []
    try:
        with call.progress() as progress:
            result = measure(settings, progress, partial.append)
    except (KeyboardInterrupt, SpecopsError) as ended:
        for measured in partial:
            call.give(Answer(measured, document(measured, settings.currency)))
        if isinstance(ended, KeyboardInterrupt) and partial:
            raise Stopped(call.out, printed=True) from None
        raise
    return Answer(result, document(result, settings.currency))


def _depths(text: str) -> list[str]:
    """Return the depths. Raises UsageError for an invalid depth."""
    from specops.edge.settings import parse_depth

    return [str(parse_depth(part)) for part in text.split(",")]
