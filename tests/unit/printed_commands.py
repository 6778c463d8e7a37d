"""Commands of specops that a text shows, and whether the real command line takes them. Nothing is run.

A command may have words that its reader replaces (ROLLOUT, FILE). Those are parsed like any other word.
"""

from __future__ import annotations

import ast
import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import typer

from specops.cli.app import app
from specops.phases.checklist.checklist import ITEMS
from specops.phases.diagnose.finding import Symptom

COMMANDS: Any = typer.main.get_command(app)
DEFAULTS = ("show", "make")
"""`checklist ROLLOUT` is `checklist show ROLLOUT`, `report ROLLOUT` is `report make ROLLOUT`."""
ENDS = {"|", "||", "&&", "&", ";", ">", ">>", "2>", "<"}
HOLE = "\x00"
"""A part of a command that is known only when the program runs."""
FILLS = ("x", "1", "7d", "x:1")
"""What may stand in a hole: a name, a number, a time, an address."""
CHECKED_LATER = {
    ("diagnose", "symptom"): frozenset(get_args(Symptom)),
    ("attest", "item"): frozenset(spec.name for spec in ITEMS),
}
"""Values that a command checks itself, after its arguments are parsed: by command and parameter."""

_NAMES = "|".join(sorted(COMMANDS.commands, key=len, reverse=True))
_CALL = re.compile(rf"(?<![\w./-])specops (?=(?:{_NAMES})\b(?![-\w]))")
_END = re.compile(r"[;:,)]+(?=\s|$)|[?](?=\s|$)|\.(?=\s|$)|\s{2,}#|\s\(|\s&&\s|\n|'s\b|$")


class WrongCommand(Exception):
    pass


def found(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words call, and the words after its name; of a group, its own default."""
    command, left = COMMANDS, list(words)
    while inner := getattr(command, "commands", None):
        if left and left[0] in inner:
            command = inner[left.pop(0)]
        elif left and (default := next((name for name in DEFAULTS if name in inner), None)):
            command = inner[default]
        else:
            break
    return command, left


def parse(words: list[str]) -> None:
    """Raises what the command line raises for words that it does not take."""
    command, left = found(words)
    if left in (["--help"], ["--version"]):
        return
    if hasattr(command, "commands"):
        if left:
            raise LookupError(f"there is no such command: {left[0]}")
        raise WrongCommand(f"{' '.join(words)} is a group of commands: name one of them")
    try:
        context = command.make_context(command.name, left)
    except typer.Exit:  # --help among its options
        return
    for name, value in context.params.items():
        known = CHECKED_LATER.get((command.name, name))
        for one in value if isinstance(value, list | tuple) else (value,):
            if known and one is not None and one not in known and HOLE not in one and not one.isupper():
                raise WrongCommand(f"{name} of {command.name}: {one!r} is not one of {sorted(known)}")


def problem(words: list[str]) -> str | None:
    """Why the command line does not take them, whatever stands in their holes; None where it does."""
    holes = sum(word.count(HOLE) for word in words)
    first = None
    for fill in itertools.product(FILLS, repeat=min(holes, 4)):
        left = iter(itertools.chain(fill, itertools.repeat(FILLS[0])))
        filled = [re.sub(HOLE, lambda _: next(left), word) for word in words]  # noqa: B023
        try:
            parse(filled)
        except Exception as error:
            said = getattr(error, "format_message", lambda: "")() or str(error)
            first = first or said or type(error).__name__
        else:
            return None
    return first


def of_shell(text: str) -> list[list[str]]:
    """The words after `specops` of every call of it in a shell script."""
    calls = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>(){}")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word not in ENDS and not set(word) <= set(";(){}"):
                words.append(word)
                continue
            calls += _called(words)
            words = []
    return calls


def _called(words: list[str]) -> Iterator[list[str]]:
    """Of `[NAME=value …] [python -m] specops …`."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if words and Path(words[0]).name == "specops":
        yield words[1:]
    elif words[1:3] == ["-m", "specops"]:
        yield words[3:]


@dataclass(frozen=True)
class Shown:
    """A command within prose."""

    text: str
    quoted: bool
    """Between backticks: it ends where they do."""

    @property
    def words(self) -> list[str]:
        return shlex.split(re.split(r"\s+# ", self.text)[0].replace("`", ""))

    @property
    def only_named(self) -> bool:
        """A command is spoken of, and none of its arguments is given."""
        return self.quoted and not found(self.words)[1]


def in_prose(text: str) -> Iterator[Shown]:
    """What follows `specops ` and the name of a command: to the closing backtick, or to the next
    punctuation, bracket or end of a line."""
    for call in _CALL.finditer(text):
        rest = text[call.end() :]
        if text[: call.start()].endswith("`"):
            # A line of a page may end within a command; the comments of a file begin each line anew.
            yield Shown(re.sub(r"\s*\n[#\s]*", " ", rest.partition("`")[0]), quoted=True)
        else:
            end = _END.search(rest)
            assert end is not None
            yield Shown(rest[: end.start()].strip(), quoted=False)


@dataclass(frozen=True)
class Literal:
    """A text of the program's own source."""

    path: Path
    line: int
    text: str
    """With a HOLE for each value that is put in."""

    describes: bool
    """Help of an option, or of a key of the rollout file: it may speak of a command by its name."""


def literals(path: Path) -> Iterator[Literal]:
    """Every string of a module but its docstrings."""
    source = path.read_text(encoding="utf-8")
    if "specops " not in source:
        return
    nodes = list(ast.walk(ast.parse(source)))
    skipped, described = set(), set()
    for node in nodes:
        if isinstance(node, ast.Expr):  # a docstring, of a module, a function or a field
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
        elif isinstance(node, ast.keyword) and node.arg in ("help", "description"):
            described |= {id(inner) for inner in ast.walk(node.value)}
    for node in nodes:
        text = None if id(node) in skipped else _text(node)
        if text is not None:
            yield Literal(path, node.lineno, text, id(node) in described)  # type: ignore[attr-defined]


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{\w+\}", HOLE, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else HOLE  # type: ignore[misc]
            for part in node.values
        )
    return None
