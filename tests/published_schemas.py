"""What commands print with --json, and results that they write, held against the published schemas.

`tests/calling.py` calls `check_result` for each result that a command in this process writes, and
`check_printed` after the command.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from jsonschema import Draft202012Validator

from specops.cli.app import app
from specops.cli.output import wants_json
from specops.cli.registry import PHASES_OF, SHAPES, of_command
from specops.cli.schema import document
from specops.results import Result

MOST_CHARACTERS, MOST_OF_A_PHASE = 300_000, 3
"""A schema is checked in Python, slowly: larger results are left out, and those beyond so many of a phase in
one process."""

checked: Counter[str] = Counter()
"""Documents that were checked in this process, by the name of their schema."""


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(document(name))


def errors(name: str, value: Any) -> list[str]:
    found = validator(name).iter_errors(value)
    return [f"{name}: {'/'.join(map(str, one.absolute_path))}: {one.message[:300]}" for one in found]


def command_of(words: tuple[str, ...]) -> str:
    """The command that `words` call, without its arguments; of a group without one named, its first."""
    command, found = typer.main.get_command(app), []
    rest = list(words)
    while hasattr(command, "commands"):
        names = list(command.commands)
        name = rest.pop(0) if rest and rest[0] in names else names[0] if found else None
        if name is None:
            return ""
        found.append(name)
        command = command.commands[name]
    return " ".join(found)


def check_printed(words: tuple[str, ...], printed: str) -> None:
    """`words` are those behind `specops`."""
    if not wants_json(words) or "--help" in words or not printed.strip():
        return
    if words[:1] == ("schema",) or "--schema" in words:
        return  # it prints a schema
    value = json.loads(printed)
    failed = isinstance(value, dict) and value.keys() == {"error", "hint", "code"}
    names = ["error"] if failed else of_command(command_of(words))
    tried = {name: errors(name, value) for name in names}
    right = [name for name, found in tried.items() if not found]
    if not right:
        pytest.fail(f"specops {' '.join(words)} printed what has no schema: {tried}")
    checked.update(right)


def check_result(path: Path, result: Result) -> None:
    name = next((name for name, phase in PHASES_OF.items() if phase == result.phase), result.phase)
    if name not in SHAPES or not result.data:
        return  # a test's own phase, or a result that a test made up without figures
    if checked[name] >= MOST_OF_A_PHASE or path.stat().st_size > MOST_CHARACTERS:
        return
    checked[name] += 1
    if found := errors(name, json.loads(path.read_text(encoding="utf-8"))):
        pytest.fail(f"{path} does not match its schema: {found[:5]}")
