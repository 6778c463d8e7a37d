"""The command line: loads a command when it is used, and turns an error into a sentence and an exit code."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import signal
import sys
import traceback
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from typer._completion_shared import _completion_scripts
from typer.core import TyperGroup

from specops import __version__
from specops.cli import output
from specops.cli.interruption import resume_hint, sigterm_as_ctrl_c
from specops.cli.registry import COMMANDS, FOR_A_FILE, OTHER_NAMES, SUMMARIES
from specops.errors import Exit, SpecopsError, UsageError
from specops.phases.run_page import run_pages

EXIT_CODES = """\
Exit codes:
  0  the verdict is yes, or the command did its work
  1  the verdict is no: a gate failed, a check failed, a cause was found
  2  wrong usage, rollout file or prompts
  3  the environment failed: a server, a file, a program
  4  undecided: not enough evidence; the answer says what is missing
  130, 143  stopped by Ctrl-C or SIGTERM; the last line says how to resume
  141  the program that read the output, such as `head`, closed it
"""


class LazyGroup(dict[str, Any]):
    """The commands by name; a command's module is imported when the command is taken out."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(SUMMARIES))

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            self[name] = _load(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401  # this is `get`

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


def _load(name: str) -> Any:
    word = name.replace("-", "_")
    command = getattr(import_module(f"specops.cli.{word}"), word)
    above = typer.Typer(add_completion=False, rich_markup_mode=None)
    if isinstance(command, typer.Typer):
        above.add_typer(command, name=name)
    else:
        above.command(name)(command)
    loaded = typer.main.get_group(above).commands[name]
    loaded.help = "\n\n".join(filter(None, (SUMMARIES[name], loaded.help)))
    return loaded


class Specops(TyperGroup):
    """All commands, in sections and loaded when needed; says how to resume what was interrupted."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": LazyGroup()})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for section, commands in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl(list(commands.items()), col_max=14)
        formatter.write_paragraph()
        formatter.write(EXIT_CODES)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        completions = [
            SimpleNamespace(value=name, type="plain", help=summary)  # what Typer reads of a completion
            for name, summary in SUMMARIES.items()
            if name.startswith(incomplete)
        ]
        return completions or super().shell_complete(ctx, incomplete)

    def invoke(self, ctx: Any) -> Any:
        with resume_hint():
            try:
                return super().invoke(ctx)
            except BrokenPipeError:  # what reads the answer, such as `head`, has enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(128 + signal.SIGPIPE) from None


def _answering_the_first_tab(script: str) -> str:
    """The completion script of zsh. zsh loads the installed file at the first Tab. Typer's only registers its
    function then, so that the first Tab completes nothing."""
    register = "compdef %(complete_func)s %(prog_name)s"
    loaded = "[[ $zsh_eval_context[-1] == loadautofunc ]]"
    return script.replace(register, f'{register}\n{loaded} && %(complete_func)s "$@"')


_completion_scripts["zsh"] = _answering_the_first_tab(_completion_scripts["zsh"])

app = typer.Typer(
    name="specops",
    cls=Specops,
    help="Measure, roll out and guard speculative decoding for LLM serving.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,  # `main` prints errors
    rich_markup_mode=None,  # plain text reads well everywhere
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"specops {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def _is_help(error: typer.TyperException) -> bool:
    """Return whether a group was called without a command: then Typer raises its help."""
    context = getattr(error, "ctx", None)
    return context is not None and error.format_message() == context.get_help()


_NO_NUMBER = re.compile(r"(.*'(--[\w-]+).*': )Input should be a valid (\w+), .*")
"""Typer's message for a value that is not a number. It leaves the value out."""


def _value_of(option: str) -> str:
    """The value of an option on the command line, for a message."""
    for word, following in pairwise([*sys.argv, ""]):
        name, equals, value = word.partition("=")
        if name == option:
            return f"{(value if equals else following)!r}, "
    return ""


def _usage_error(error: typer.TyperException) -> UsageError:
    """Return Typer's error in the form of all errors: `Missing option '--by'.` becomes `missing option
    '--by'`."""
    if (unknown := _UNKNOWN.match(error.format_message())) is not None:
        return _unknown_command(error, unknown["word"])
    message = error.format_message().rstrip(".").replace("Value error, ", "")
    message = _NO_NUMBER.sub(
        lambda match: f"{match[1]}{_value_of(match[2])}expected a valid {match[3]}", message
    )
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "specops"
    return UsageError(message[:1].lower() + message[1:], hint=f"{command} --help")


_UNKNOWN = re.compile(r"No such command '(?P<word>.*?)'")


def _unknown_command(error: typer.TyperException, word: str) -> UsageError:
    """Return the error for a command that is not there, with the one that was probably meant."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "specops"
    group = path.removeprefix("specops").strip()
    if group in FOR_A_FILE and word.endswith((".yaml", ".yml")):
        hint = f"{path} {FOR_A_FILE[group]} {shlex.quote(word)}"
    elif not group and word == "help":
        following = sys.argv[sys.argv.index(word) + 1 :] if word in sys.argv else []
        hint = shlex.join(["specops", *following[:1], "--help"])
    elif not group and word in OTHER_NAMES:
        hint = OTHER_NAMES[word]
    else:
        commands = SUMMARIES if not group else getattr(getattr(context, "command", None), "commands", {})
        near = difflib.get_close_matches(word, list(commands), n=1)
        hint = f"{path} {near[0]} --help" if near else f"{path} --help"
    return UsageError(f"no such command '{word}'", hint=hint)


def main() -> None:
    """Entry point. Wrong usage exits with 2, Ctrl-C with 130, SIGTERM with 143.

    Errors of usage are raised by Typer, and printed here in the form of all errors.
    """
    debug = "--debug" in sys.argv
    as_json = output.wants_json(sys.argv[1:])
    try:
        with sigterm_as_ctrl_c(), run_pages():
            ended = app(prog_name="specops", standalone_mode=False)
        code = ended if isinstance(ended, int) else Exit.YES
    except Exception as error:
        if isinstance(error, SpecopsError):
            output.print_error(error, as_json=as_json)
            code = error.exit_code
        elif isinstance(error, typer.Abort):
            code = 128 + signal.SIGINT
        elif isinstance(error, typer.TyperException):
            code = Exit.USAGE
            if _is_help(error):
                typer.echo(error.format_message(), err=True)
            else:
                output.print_error(_usage_error(error), as_json=as_json)
        else:
            output.print_unexpected(error, as_json=as_json)
            code = Exit.ENVIRONMENT
        if debug:
            traceback.print_exc()
    sys.exit(code)
