"""Scripts in other files: `run` of a GitHub workflow or SkyPilot, and the like; a recipe whose command is a
format template, with {name} for each of its `defaults` and doubled braces for braces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from specops.errors import UsageError
from specops.launch.command_files import containers, shell
from specops.launch.command_files.form import LOOK, Document, DocumentForm
from specops.launch.command_files.recognition import mentions_engine
from specops.serving import Command, Files

GITHUB = re.compile(r"\$\{\{\s*([\w.-]+)[^}]*\}\}")
"""A variable of a GitHub workflow: ${{ matrix.model }}."""

PROSE = ("description", "name", "title", "summary", "notes", "help", "comment", "message")
"""Keys whose text says something of a command, and runs none."""


def matches(document: Document) -> bool:
    return next(_scripts(document, ()), None) is not None


def commands(document: Document, where: str, files: Files) -> Iterator[Command]:
    """A script that cannot be read is about something else."""
    variables = containers.variables(document.get("envs") or document.get("env"))
    values: dict[str, shell.Value] = dict(variables)
    defaults = containers.mapping(document.get("defaults"))
    for keys, script in _scripts(document, ()):
        text = GITHUB.sub(lambda match: "${" + re.sub(r"\W", "_", match[1]) + "}", script)
        if defaults or re.search(r"\{\{\s*[\"']", text):
            text = formatted(text, defaults)
        with suppress(UsageError):
            place = f"{where}, {'.'.join(keys)}"
            yield from list(shell.commands(text, place, values=values, environment=variables, files=files))


def formatted(text: str, values: Mapping[str, Any]) -> str:
    """Return a format template with its values filled in, once; a name without a value stays {name}."""

    def piece(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        return str(values[match[1]]) if match[1] in values else match[0]

    return re.sub(r"\{\{|\}\}|(?<!\$)\{([A-Za-z_]\w*)\}", piece, text)


def _scripts(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts that call an engine, with the keys at which they stand."""
    if isinstance(value, str) and keys and keys[-1] not in PROSE and mentions_engine(value):
        yield keys, value
    for key, part in value.items() if isinstance(value, dict) else ():
        yield from _scripts(part, (*keys, str(key)))
    for part in value if isinstance(value, list) else ():
        yield from _scripts(part, keys)


def is_recipe(document: Document) -> bool:
    """Return whether its command is a format template: it has defaults, or JSON with doubled braces."""
    if "kind" in document or not isinstance(document.get("command"), str):
        return False
    doubled = re.search(r"\{\{\s*[\"']", document["command"]) is not None
    return (doubled or isinstance(document.get("defaults"), dict)) and matches(document)


RECIPE = DocumentForm("a recipe", is_recipe, commands, LOOK)
FORM = DocumentForm("a file with scripts", matches, commands, LOOK)
