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
from specops.cli.canary import canary
from specops.cli.checklist import checklist
from specops.cli.diagnose import diagnose
from specops.cli.doctor import doctor
from specops.cli.edge import edge
from specops.cli.guard import guard
from specops.cli.init import init
from specops.cli.interruption import Commands, sigterm_as_ctrl_c
from specops.cli.issues import issues
from specops.cli.launch import launch
from specops.cli.monitor import monitor
from specops.cli.plan import plan
from specops.cli.report import report
from specops.cli.route import route
from specops.cli.run import run
from specops.cli.serve import serve
from specops.cli.sweep import sweep
from specops.cli.verify_draft import verify_draft
from specops.errors import Exit, SpecopsError

app = typer.Typer(
    name="specops",
    cls=Commands,
    help="Measure, roll out and guard speculative decoding for LLM serving.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
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


for _command in (init, run, serve, baseline, verify_draft, sweep, ab, canary, diagnose, doctor, issues):
    app.command()(_command)
app.add_typer(bench, name="bench")
app.add_typer(edge, name="edge")
app.add_typer(plan, name="plan")
app.add_typer(launch, name="launch")
app.add_typer(route, name="route")
app.add_typer(monitor, name="monitor")
app.add_typer(guard, name="guard")
app.add_typer(report, name="report")
app.add_typer(checklist, name="checklist")


def main() -> None:
    """Entry point. Wrong usage exits with 2, Ctrl-C with 130, SIGTERM with 143.

    Typer prints wrong usage itself. With --json it is raised instead, so that it is printed as JSON too.
    """
    debug = "--debug" in sys.argv
    as_json = output.wants_json(sys.argv[1:])
    try:
        with sigterm_as_ctrl_c():
            ended = app(prog_name="specops", standalone_mode=not as_json)
        code = ended if isinstance(ended, int) else Exit.YES
    except Exception as error:
        if isinstance(error, SpecopsError):
            output.print_error(error, as_json=as_json)
            code = error.exit_code
        elif as_json and callable(said := getattr(error, "format_message", None)):
            code = Exit.USAGE
            context = getattr(error, "ctx", None)
            hint = f"{context.command_path} --help" if context is not None else None
            output.print_failure(said(), hint, code, as_json=True)
        else:
            output.print_unexpected(error, as_json=as_json)
            code = Exit.ENVIRONMENT
        if debug:
            traceback.print_exc()
    sys.exit(code)
