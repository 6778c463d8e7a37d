"""`specops bench …`: what a pair can do, measured in process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.output import DebugFlag, JsonFlag, OutOption, QuietFlag, print_json, print_table

bench = typer.Typer(help="Measure a pair of models on the embedded engine.", no_args_is_help=True)


@bench.callback()
def _group() -> None: ...


@bench.command()
def acceptance(
    target: Annotated[
        Path | None, typer.Option("--target", help="Folder of the target. [default: the shipped]")
    ] = None,
    draft: Annotated[
        Path | None, typer.Option("--draft", help="Folder of the draft. [default: the shipped]")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", help="Prompt set. [default: the shipped]")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Prompts, spread over the set.")] = 32,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Tokens after each prompt.")] = 64,
    widths: Annotated[int, typer.Option("--widths", min=1, help="Children of a node, up to.")] = 5,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """How often one of k drafted tokens is accepted, by verification rule and width."""
    from specops import results
    from specops.assets import asset
    from specops.cli.progress import progress
    from specops.errors import EnvironmentFailure

    try:
        from specops.phases.acceptance import AcceptanceSettings, measure, table
    except ModuleNotFoundError as error:
        raise EnvironmentFailure(
            f"could not measure the pair: {error.name} is not installed",
            hint="install the engine extra: pip install 'specops[engine]'",
        ) from error

    shipped = ("playbooks", "embedded")
    settings = AcceptanceSettings(
        target=target or asset(*shipped, "target"),
        draft=draft or asset(*shipped, "draft"),
        prompts=prompts or asset(*shipped, "prompts.json"),
        count=count,
        tokens=tokens,
        widths=widths,
        seed=seed,
    )
    with progress(quiet) as shown:
        result = measure(settings, shown)
    if out is not None:
        results.write(out, result)
    if as_json:
        print_json(result)
        return
    print_table(*table(result))
    spread = result.summary["greedy_acceptance_by_prompt"]
    typer.echo(
        f"{result.reason}; greedy by prompt: "
        f"{spread['min']:.2f} / {spread['median']:.2f} / {spread['max']:.2f} (least, median, most)"
    )
