"""Printing: the answer on stdout, everything else on stderr, an error as one sentence.

Nothing here needs colour to be read; rich leaves it out where NO_COLOR is set or stdout is not a terminal.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer
from pydantic import BaseModel
from typing_extensions import TypedDict

from specops import hints
from specops.errors import Exit, SpecopsError
from specops.hints import with_options
from specops.render.report.document import Document
from specops.results import Result, written

GOOD, BAD, OPEN = "green", "red", "yellow"
VERDICTS = {
    GOOD: (
        *("passed", "pass", "yes", "ok", "compatible", "faster", "deploy", "pays", "shown", "healthy"),
        *("use speculation", "better"),
    ),
    BAD: (
        *("failed", "no", "NO", "missing", "incompatible", "slower", "bad", "error", "worse"),
        *("keep speculation off", "do not deploy", "does not pay", "against", "FAIL", "differs", "CAUSE"),
    ),
    OPEN: (
        "undecided",
        "not shown",
        "possible",
        "open",
        "degraded",
        "warn",
        "warning",
        "skipped",
        "unknown",
        "partial",
    ),
}
STYLES = {word: style for style, words in VERDICTS.items() for word in words}
STATE = re.compile(rf"(?:^|(?<=\s))({'|'.join(sorted(STYLES, key=len, reverse=True))})(?=\s\s|$)")
"""A verdict in its column: at the beginning or after a space, with two spaces or nothing after it."""

_rollout: str | None = None
"""What is printed for the placeholder."""

COMMAND = re.compile(r"(?:^|(?<=[:;] )|(?<=  ))(specops|pip|vllm|docker|kubectl|curl|python) (?=[\w-])")
"""A command to paste stays whole, however long: at the beginning, in a column, after a colon or semicolon.
Elsewhere its words are a part of a sentence."""
LABEL = re.compile(r"\s*(\d+\. )?(\w+: +)?\Z")
"""Label before a command that has its line to itself."""


_GLUE = "\x00"
"""A space at which no line may break, while it is folded."""


def name_rollout(place: str | None) -> None:
    """Print `place`, the arguments that name the rollout file, for the placeholder from now on. None leaves
    the placeholder."""
    global _rollout
    _rollout = place


def named(text: str) -> str:
    """The text with the rollout file of this command in it."""
    return text if _rollout is None else hints.named(text, _rollout)


class UnfoldedLine(str):
    """A line to paste: it is never folded."""


def dumb() -> bool:
    """Return whether the terminal says that it knows no escape sequences, as Emacs' shell does."""
    return os.environ.get("TERM") in ("dumb", "unknown")


def print_lines(lines: Iterable[str], *, fold: bool = True) -> None:
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else 0
    colour = terminal and not os.environ.get("NO_COLOR") and not dumb()
    for line in named("\n".join(lines)).split("\n"):
        for piece in folded(line, width) if terminal and fold else [line]:
            typer.echo(coloured(piece) if colour else piece)


def print_message(text: str) -> None:
    """Print a message on stderr, folded at words on a terminal."""
    terminal = sys.stderr.isatty()
    width = shutil.get_terminal_size().columns if terminal else 0
    for line in text.split("\n"):
        for piece in folded(line, width) if terminal else [line]:
            print(piece, file=sys.stderr, flush=True)


def folded(line: str, width: int) -> list[str]:
    """The line in pieces of at most `width` characters, continued below the beginning of its last column. A
    command to paste that follows a sentence has the last line to itself."""
    if len(line) <= width:
        return [line]
    command = COMMAND.search(line)
    if command is not None:
        prose = line[: command.start()]
        if LABEL.match(prose):
            return [line]
        return [*folded(prose.rstrip(), width), f"  {line[command.start() :]}"]
    columns = [match.end() for match in re.finditer(r"\S {2,}(?=\S)", line[: width // 2])]
    indent = columns[-1] if columns else len(line) - len(line.lstrip()) + 2
    cells = re.split(r" {2,}", line[indent:])
    if len(cells) > 1 and max(map(len, cells)) <= width - indent:
        # A row of short cells is continued at a cell, so that a figure stays with its name.
        line = line[:indent] + re.sub(r"(?<=\S) (?=\S)", _GLUE, line[indent:])
    pieces = textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * indent,
        drop_whitespace=True,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [piece.replace(_GLUE, " ") for piece in pieces]


def coloured(line: str) -> str:
    return STATE.sub(lambda match: typer.style(match[1], fg=STYLES[match[1]], bold=True), line, count=1)


def print_json(value: BaseModel | Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document on stdout. A result or another pydantic model is printed as it is written to
    disk."""
    if isinstance(value, Result):
        typer.echo(written(value))
    elif isinstance(value, BaseModel):
        typer.echo(value.model_dump_json(by_alias=True, indent=1))
    else:
        typer.echo(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def print_document(document: Document) -> None:
    """Print a document on stdout, its tables within the width of the terminal."""
    from specops.render.report.terminal import terminal

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    print_lines(terminal(document, width))


def print_text(lines: Iterable[str]) -> None:
    """Lines on stdout, in their order."""
    for line in lines:
        print_lines([line], fold=not isinstance(line, UnfoldedLine))


def wants_json(words: Sequence[str]) -> bool:
    """Return whether the words of a command ask for JSON; words behind `--` are another program's."""
    return "--json" in itertools.takewhile(lambda word: word != "--", words)


class Failure(TypedDict):
    """The JSON that a command prints with --json where it fails."""

    error: str
    hint: str | None
    code: int
    """The exit code."""


def print_failure(message: str, hint: str | None, code: int, *, as_json: bool) -> None:
    """Print `error: sentence`, then `hint: what to do`, on stderr. As JSON, `{"error", "hint", "code"}` on
    stdout: a program that reads the answer there gets one document, whether the command succeeds or fails."""
    message, hint = named(message), named(hint) if hint else hint
    if as_json:
        print_json(Failure(error=message, hint=hint, code=code))
        return
    print_message(f"error: {message}")
    if hint:
        print(f"hint: {hint}", file=sys.stderr, flush=True)  # a command to paste: it is never folded


def print_error(error: SpecopsError, *, as_json: bool = False) -> None:
    print_failure(str(error), error.hint, error.exit_code, as_json=as_json)


def print_unexpected(error: Exception, *, as_json: bool = False) -> None:
    """A fault in specops itself."""
    detail = " ".join(str(error).split())
    message = f"a fault in specops itself: {type(error).__name__}: {detail}"
    hint = f"{with_options({'--debug': True})}  # prints the traceback: report it as a bug"
    print_failure(message, hint, Exit.ENVIRONMENT, as_json=as_json)
