"""How a page is printed: on a terminal folded at words, with verdicts in colour; elsewhere as it is."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable

import typer

GOOD, BAD, OPEN = "green", "red", "yellow"
VERDICTS = {
    GOOD: ("passed", "yes", "ok", "compatible", "faster", "deploy", "healthy", "use it"),
    BAD: ("failed", "no", "NO", "missing", "incompatible", "slower", "bad", "error", "keep it off"),
    OPEN: ("undecided", "open", "degraded", "warn", "warning", "skipped", "unknown", "partial"),
}
STYLES = {word: style for style, words in VERDICTS.items() for word in words}
STATE = re.compile(rf"(?<=\s)({'|'.join(sorted(STYLES, key=len, reverse=True))})(?=\s\s|$)")
"""A verdict in its column: between spaces, with two spaces or nothing after it."""

COMMAND = re.compile(r"\b(specops|pip|vllm|docker|kubectl|curl|python) ")
"""A line with a command to paste stays whole, however long."""


def print_lines(lines: Iterable[str]) -> None:
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else 0
    colour = terminal and "NO_COLOR" not in os.environ
    for line in "\n".join(lines).split("\n"):
        for piece in folded(line, width) if terminal else [line]:
            typer.echo(coloured(piece) if colour else piece)


def folded(line: str, width: int) -> list[str]:
    """The line in pieces of at most `width` characters, continued below the beginning of its last column."""
    if len(line) <= width or COMMAND.search(line):
        return [line]
    columns = [found.end() for found in re.finditer(r"\S {2,}(?=\S)", line[: width // 2])]
    indent = columns[-1] if columns else len(line) - len(line.lstrip()) + 2
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * indent,
        drop_whitespace=True,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )


def coloured(line: str) -> str:
    return STATE.sub(lambda found: typer.style(found[1], fg=STYLES[found[1]], bold=True), line, count=1)
