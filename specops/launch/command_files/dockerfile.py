"""Dockerfiles: a stage's ENTRYPOINT and CMD start something with its ENV and ARG."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from specops.launch.command_files import containers
from specops.launch.command_files.form import LOOK, FileForm
from specops.serving import Command, Files


def matches(path: Path, text: str) -> bool:
    """Dockerfile, Containerfile, Dockerfile.gpu, gpu.Dockerfile."""
    return any(part in ("Dockerfile", "Containerfile") for part in path.name.split("."))


def commands(text: str, where: str, files: Files) -> Iterator[Command]:
    """Yield the commands of the last stage that has any, and of those before it."""
    stage = _Stage("")
    for line, instruction, rest in _instructions(text):
        if instruction == "FROM":
            yield from stage.commands(where, files)
            names = {**stage.arguments, **stage.environment}
            stage = _Stage(_filled(rest.split(" ")[0], names), arguments=stage.arguments)
        else:
            stage.read(line, instruction, rest)
    yield from stage.commands(where, files)


class _Stage:
    def __init__(self, image: str, arguments: dict[str, str] | None = None) -> None:
        self.image = image
        self.environment: dict[str, str] = {}
        self.arguments = dict(arguments or {})
        self.entrypoint: list[str] = []
        self.command: list[str] = []
        self.line = 0

    def read(self, line: int, instruction: str, rest: str) -> None:
        names = {**self.arguments, **self.environment}
        if instruction == "ENV":
            self.environment |= _assignments(rest, names)
        elif instruction == "ARG":
            name, equals, value = rest.partition("=")
            if equals:
                self.arguments[name.strip()] = _filled(value.strip().strip("\"'"), names)
        elif instruction == "ENTRYPOINT":
            self.entrypoint, self.command, self.line = _words(rest, names), [], line
        elif instruction == "CMD":
            self.command, self.line = _words(rest, names), self.line or line

    def commands(self, where: str, files: Files) -> Iterator[Command]:
        words = [*self.entrypoint, *self.command]
        if words:
            place = f"{where}, line {self.line}"
            yield from containers.commands(words, place, self.image, self.environment, files)


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Lines joined where one ends in a backslash, without comments."""
    pending, first = "", 1
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#"):
            continue
        if not pending:
            first = number
        pending += line.rstrip().removesuffix("\\") + (" " if line.rstrip().endswith("\\") else "")
        if line.rstrip().endswith("\\"):
            continue
        instruction, _, rest = pending.strip().partition(" ")
        if instruction:
            yield first, instruction.upper(), rest.strip()
        pending = ""
    if pending.strip():
        instruction, _, rest = pending.strip().partition(" ")
        yield first, instruction.upper(), rest.strip()


def _words(text: str, names: dict[str, str]) -> list[str]:
    """["a", "b"], which no shell reads; or a line for `sh -c`."""
    try:
        listed = json.loads(text)
    except ValueError:
        return ["/bin/sh", "-c", text]
    return [str(word) for word in listed] if isinstance(listed, list) else ["/bin/sh", "-c", text]


def _assignments(text: str, names: dict[str, str]) -> dict[str, str]:
    """NAME=VALUE …, or the old NAME VALUE."""
    if "=" not in text.split(" ")[0]:
        name, _, value = text.partition(" ")
        return {name: _filled(value.strip(), names)}
    pairs = re.findall(r"""(\w+)=((?:"[^"]*"|'[^']*'|\\.|[^\s"'\\])*)""", text)
    return {name: _filled(re.sub(r"""["']""", "", value), names) for name, value in pairs}


def _filled(text: str, names: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name, default = match[1] or match[3], match[2]
        return names.get(name, default if default is not None else match[0])

    return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)", value, text)


FORM = FileForm("a Dockerfile", matches, commands, LOOK)
