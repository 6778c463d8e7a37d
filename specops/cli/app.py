"""The command line: registers the commands, and turns every error into a sentence and an exit code.

A command module imports what is heavy (torch, openai, aiohttp) inside its functions, so that
`specops --help` answers at once.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from specops import __version__
from specops.cli import output
from specops.cli.ab import ab
from specops.cli.baseline import baseline
from specops.cli.bench import bench
from specops.cli.doctor import doctor
from specops.cli.init import init
from specops.cli.run import run
from specops.cli.serve import serve
from specops.errors import Exit, SpecopsError

app = typer.Typer(
    name="specops",
    help="Measure, roll out and guard speculative decoding for LLM serving.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # `main` prints errors
    rich_markup_mode=None,  # plain text reads well everywhere
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"specops {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


for _command in (init, run, serve, baseline, ab, doctor):
    app.command()(_command)
app.add_typer(bench, name="bench")


def main() -> None:
    """Entry point. Wrong usage is typer's to report (exit 2); Ctrl-C exits with 130."""
    debug = "--debug" in sys.argv
    try:
        app(prog_name="specops")
    except Exception as error:
        if isinstance(error, SpecopsError):
            output.print_error(error)
            code = error.exit_code
        else:
            output.print_unexpected(error)
            code = Exit.ENVIRONMENT
        if debug:
            traceback.print_exc()
        sys.exit(code)
