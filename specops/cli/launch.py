"""`specops launch …`: how pools are started, and what is wrong with how they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.output import DebugFlag, FolderOption, JsonFlag, OutOption, QuietFlag, print_json

launch = typer.Typer(
    help="Render how pools are started; lint commands that start them.", no_args_is_help=True
)


@launch.command()
def render(
    rollout: Annotated[Path, typer.Argument(help="The rollout file; `specops init` writes one.")],
    out: FolderOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Write start scripts, Compose and Kubernetes files of pools."""
    from specops.config import load, run_folder

    file = load(rollout)  # before what follows is loaded: a wrong file is answered at once
    from specops import results
    from specops.cli.launch_page import page
    from specops.cli.progress import progress
    from specops.phases.commands import Commands
    from specops.phases.launch import render

    folder = run_folder(rollout, file.rollout, out)
    with progress(quiet) as shown:
        result = render(file, folder, shown)
    results.write(folder / "launch.json", result)
    if as_json:
        print_json(result)
    else:
        typer.echo("\n".join(page(result, Commands(file, rollout, folder))))
    raise typer.Exit(result.exit_code)


@launch.command()
def lint(
    command: Annotated[
        list[str] | None, typer.Argument(help="After --: the command, as it would be typed.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="A shell script, Compose file, Kubernetes manifest or YAML file of flags."
        ),
    ] = None,
    engine_version: Annotated[
        str | None,
        typer.Option(help="Left out: the image's or the program's, else the newest known."),
    ] = None,
    as_json: JsonFlag = False,
    out: OutOption = None,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Find unsupported or wrong flags of a serving engine.

    Exit 1 if an error is found.

    Warnings and notes do not fail. No engine is run: a version's flags come from its released source.
    """
    from specops import results
    from specops.cli.lint_page import page
    from specops.errors import UsageError
    from specops.phases.lint import SOURCE, lint_file, lint_words

    if (file is None) == (not command):
        raise UsageError(
            "launch lint looks at a command or at a file, one of the two",
            hint="specops launch lint -- vllm serve MODEL …, or specops launch lint --file start.sh",
        )
    judged, result = lint_file(file, engine_version) if file else lint_words(command or [], engine_version)
    if out is not None:
        results.write(out, result)
    if as_json:
        print_json(result)
    else:
        typer.echo("\n".join([*page(judged), f"{result.reason}, {SOURCE}"]))
    raise typer.Exit(result.exit_code)
