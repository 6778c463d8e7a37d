"""How every command speaks: the answer on stdout, everything else on stderr, an error as one sentence.

A command that has an answer prints it once: `print_json` with --json, else `print_table` or plain lines.
Nothing here needs colour to be read; rich leaves it out where NO_COLOR is set or stdout is no terminal.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from specops.errors import Exit, SpecopsError
from specops.results import Result, written

JsonFlag = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="Also write the answer to this file.")]
FolderOption = Annotated[
    Path | None, typer.Option("--out", help="The run folder; default: runs/NAME beside the rollout file.")
]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on stderr.")]
# `main` looks for --debug on the command line itself, since a command may fail before it is parsed.
DebugFlag = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def print_json(value: BaseModel | Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON document on stdout. A result or another pydantic model is printed as it is written to disk."""
    if isinstance(value, Result):
        typer.echo(written(value))
    elif isinstance(value, BaseModel):
        typer.echo(value.model_dump_json(by_alias=True, indent=1))
    else:
        typer.echo(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """A table on stdout: the first column to the left, the others to the right.

    Into a pipe or a file no line is folded, so that the output can be searched line by line.
    """
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=240, color_system=None)
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=not console.is_terminal)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def wants_json(words: Sequence[str]) -> bool:
    """Whether the words of a command ask for JSON; words behind `--` are another program's."""
    return "--json" in itertools.takewhile(lambda word: word != "--", words)


def print_failure(message: str, hint: str | None, code: int, *, as_json: bool) -> None:
    """`error: sentence`, then `hint: what to do`, on stderr. As JSON, `{"error", "hint", "code"}` on stdout:
    a program that reads the answer there gets one document, whether the command succeeds or fails."""
    if as_json:
        print_json({"error": message, "hint": hint, "code": code})
        return
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


def print_error(error: SpecopsError, *, as_json: bool = False) -> None:
    print_failure(error.message, error.hint, error.exit_code, as_json=as_json)


def print_unexpected(error: Exception, *, as_json: bool = False) -> None:
    """A fault in specops itself."""
    detail = " ".join(str(error).split())
    message = f"a fault in specops itself: {type(error).__name__}: {detail}"
    hint = "run it again with --debug and report the traceback as a bug"
    print_failure(message, hint, Exit.ENVIRONMENT, as_json=as_json)
