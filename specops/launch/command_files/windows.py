"""Batch files and PowerShell scripts, in which llama-server is started on Windows. Each line that calls an
engine is written as bash has it: its continuations, variables, quotes and paths. What a block or a function
around the line does is not read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PureWindowsPath

from specops.launch.command_files import shell
from specops.launch.command_files.form import LOOK, FileForm
from specops.launch.command_files.recognition import command_lines, mentions_engine
from specops.serving import Command, Files


@dataclass(frozen=True)
class Dialect:
    """How a shell of Windows writes what bash writes otherwise."""

    suffixes: tuple[str, ...]
    continuation: str
    comment: re.Pattern[str]
    assignment: re.Pattern[str]
    """name, and the value in `double`, `single` or `bare`."""

    variable: re.Pattern[str]
    start: re.Pattern[str]
    """Words before the program."""


BATCH = Dialect(
    (".bat", ".cmd"),
    "^",
    re.compile(r"(?i)^\s*@?(rem\b|::).*$"),
    re.compile(r'(?i)^\s*@?set\s+(?:"(?P<quoted>\w+)=(?P<double>[^"]*)"|(?P<name>\w+)=(?P<bare>.*))$'),
    re.compile(r"%(\w+)%"),
    re.compile(r'(?i)^\s*@?(call\s+|start\s+("[^"]*"\s+)?(/\w+\s+)*)?'),
)
POWERSHELL = Dialect(
    (".ps1",),
    "`",
    re.compile(r"^\s*#.*$"),
    re.compile(
        r"^\s*\$(?P<name>(?:env:)?\w+)\s*=\s*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<bare>[\w.:/-]+))\s*$"
    ),
    re.compile(r"\$\{?(?:env:)?(\w+)\}?"),
    re.compile(r"^\s*&?\s*"),
)
DIALECTS = (BATCH, POWERSHELL)
RUNNERS = ("python", "python3", "py", "docker", "podman", "wsl", "uv", "uvx")
INNER = re.compile(r'(?i)cmd\s+/[ck]\s+"(.*)"\s*')
"""cmd /k "COMMAND"."""


def commands(dialect: Dialect, text: str, where: str, files: Files) -> Iterator[Command]:
    values: dict[str, shell.Value] = {}
    programs = {*RUNNERS, *(called[0] for line in command_lines().values() for called in line.call.programs)}
    for number, line in _lines(dialect, text):
        assigned = dialect.assignment.match(line)
        if assigned is not None:
            parts = assigned.groupdict()
            value = next(
                (parts[key] for key in ("double", "single", "bare") if parts.get(key) is not None), ""
            )
            name = str(parts.get("quoted") or parts["name"])
            values[name.rpartition(":")[2]] = _forward(_referring(dialect, value.strip()))
        elif mentions_engine(line):
            words = dialect.start.sub("", _forward(_referring(dialect, line)), count=1)
            inner = INNER.fullmatch(words)
            words = inner[1] if inner else words
            first = words.strip().strip("\"'").partition(" ")[0].rpartition("/")[2].strip("\"'").lower()
            path = re.match(r"""["'][^"']*/([^"'/]+)["']""", words.strip())
            if (path[1].lower() if path else first) not in programs:
                continue  # such as taskkill, echo or if
            for command in shell.commands(words, where, values=values, files=files):
                yield replace(command, where=f"{where}, line {number}")


def written(text: str, where: str) -> str:
    """Return a corrected command as the shell of the file that it was read from has it."""
    suffix = PureWindowsPath(where.partition(",")[0]).suffix.lower()
    dialect = next((dialect for dialect in DIALECTS if suffix in dialect.suffixes), None)
    if dialect is None:
        return text
    text = text.replace(" \\\n", f" {dialect.continuation}\n")
    text = f"& {text.lstrip()}" if dialect is POWERSHELL else text  # it takes a quoted program for a string
    return re.sub(r"'([^'\"]*)'", r'"\1"', text) if dialect is BATCH else text


def _lines(dialect: Dialect, text: str) -> Iterator[tuple[int, str]]:
    """Yield the script's lines, those that are continued as one, with the number of the first."""
    joined, first = "", 1
    for number, line in enumerate(text.splitlines(), 1):
        first = first if joined else number
        if not joined and dialect.comment.match(line):
            continue
        joined += line.rstrip()
        if joined.endswith(dialect.continuation):
            joined = joined.removesuffix(dialect.continuation) + " "
            continue
        yield first, joined
        joined = ""
    if joined:
        yield first, joined


def _referring(dialect: Dialect, text: str) -> str:
    text = dialect.variable.sub(r"${\1}", text)
    if dialect is POWERSHELL:  # a variable is one word, whatever it holds, and @NAME gives its words
        text = re.sub(r"(?<=\s)(\$\{\w+\})(?=\s|$)", r'"\1"', re.sub(r"(?<=\s)@(\w+)", r"$\1", text))
    return text


def _forward(text: str) -> str:
    """Return the text with the paths of Windows as bash reads them, and programs without .exe."""
    text = re.sub(r'\\(?!")', "/", text)
    return re.sub(r"(?i)\.exe(?=[\"'\s]|$)", "", text)


def _form(name: str, dialect: Dialect) -> FileForm:
    return FileForm(
        name,
        lambda path, text: path.suffix.lower() in dialect.suffixes,
        lambda text, where, files: commands(dialect, text, where, files),
        LOOK,
    )


BATCH_FORM = _form("a batch file", BATCH)
POWERSHELL_FORM = _form("a PowerShell script", POWERSHELL)
