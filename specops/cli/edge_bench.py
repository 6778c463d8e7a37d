"""`specops edge bench`: whether to draft at the edge, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.extras import extra
from specops.cli.load_options import wrong_option
from specops.cli.output import DebugFlag, JsonFlag, OutOption, QuietFlag, print_json, print_table


def bench(
    rollout: Annotated[
        Path | None, typer.Argument(help="The rollout file. [default: the shipped playbooks/edge.yaml]")
    ] = None,
    rtt: Annotated[
        float | None,
        typer.Option(
            "--rtt", min=0.0, max=60_000.0, help="Milliseconds there and back. [default: the file's]"
        ),
    ] = None,
    clients: Annotated[
        str | None, typer.Option("--clients", help="At a time, such as 1,4,8. [default: the file's]")
    ] = None,
    heads: Annotated[
        str | None, typer.Option("--heads", help="One edge arm each, such as 0,1,8. [default: the file's]")
    ] = None,
    ahead: Annotated[
        str | None,
        typer.Option(
            "--ahead",
            help="Next trees sent before it is known which it is, such as 0,16; with the most heads one edge "
            "arm each. [default: the file's]",
        ),
    ] = None,
    depth: Annotated[
        str | None,
        typer.Option(
            "--depth", help="adaptive, included:D, excluded:D; one edge arm each. [default: the file's]"
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Prompts, spread over the set.")] = 16,
    tokens: Annotated[
        int | None, typer.Option("--tokens", min=2, help="Of each answer. [default: the file's, or 64]")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0.0, help="[default: the file's]")
    ] = None,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Compare drafting on the server, at the edge, and none.

    One pair and the same prompts, over a link with delay.

    Ctrl-C ends it. Finished measurements are printed and stored in --out.
    """
    from pydantic import ValidationError

    from specops import results
    from specops.assets import asset
    from specops.cli.edge_bench_page import lines, tables
    from specops.cli.progress import progress
    from specops.config import load
    from specops.errors import SpecopsError
    from specops.results import Result

    with extra("edge", "bench edge drafting"):
        from specops.phases.edge_bench.measure import comparison_of, measure
        from specops.phases.edge_bench.settings import settings_of
    try:
        settings = settings_of(
            load(rollout or asset("playbooks", "edge.yaml")),
            rtt_ms=rtt,
            clients=_numbers(clients, "--clients", least=1),
            heads=_numbers(heads, "--heads", least=0),
            ahead=_numbers(ahead, "--ahead", least=0),
            depth=None if depth is None else _depths(depth),
            count=count,
            tokens=tokens,
            temperature=temperature,
        )
    except ValidationError as error:
        raise wrong_option(error, "edge bench") from error

    def tell(result: Result) -> None:
        if out is not None:
            results.write(out, result)
        if as_json:
            print_json(result)
            return
        found = comparison_of(result)
        for title, columns, rows in tables(found, settings.currency):
            print_table(columns, rows, title=title)
            typer.echo()
        for line in lines(found):
            typer.echo(line)
        typer.echo(f"{result.verdict}: {result.reason}")

    partial: list[Result] = []
    try:
        with progress(quiet) as shown:
            result = measure(settings, shown, partial.append)
    except (KeyboardInterrupt, SpecopsError):
        for measured in partial:
            tell(measured)
        raise
    tell(result)
    raise typer.Exit(result.exit_code)


def _numbers(text: str | None, option: str, *, least: int) -> list[int] | None:
    from specops.errors import UsageError

    if text is None:
        return None
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and int(part) >= least for part in parts):
        raise UsageError(
            f"{option} is {text!r}, and should be whole numbers from {least} on",
            hint=f"such as {option} 1,4,8",
        )
    return [int(part) for part in parts]


def _depths(text: str) -> list[str]:
    """UsageError where one is none."""
    from specops.edge.depth import parse_depth

    return [str(parse_depth(part)) for part in text.split(",")]
