"""systemd: units with ExecStart, Environment and EnvironmentFile, and Podman's Quadlets, which are units of a
container."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from specops.launch.command_files import containers, shell
from specops.launch.command_files.form import FileForm
from specops.launch.command_files.recognition import command_lines, engine_of_image
from specops.serving import Command, Files, Unknown, is_unknown

SECTION = re.compile(r"(?m)^\[(?:Unit|Service)\]\s*$")
QUADLET = re.compile(r"(?m)^\[Container\]\s*$")
PREFIXES = "@-:+!|"
"""Characters before the program of ExecStart that say how it is run."""

SPECIFIERS = re.compile(r"%([a-zA-Z%])")

Unit = dict[str, list[str]]


def read_unit(text: str) -> Unit:
    """Return the values of each key, in order. A backslash joins lines, an empty value clears the earlier."""
    unit: Unit = {}
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("#", ";"))]
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("["):
            values = unit.setdefault(key.strip(), [])
            if value.strip():
                values.append(value.strip())
            else:
                values.clear()
    return unit


def _environment(unit: Unit, files: Files) -> tuple[dict[str, str], list[Unknown]]:
    """Return the variables that the unit sets, and files of variables that were not read."""
    named = [part.removeprefix("-") for value in unit.get("EnvironmentFile", []) for part in value.split()]
    environment, unread = containers.env_files(named, files)
    for value in unit.get("Environment", []):
        for word in _split(value):
            name, equals, text = word.partition("=")
            if equals:
                environment[name] = text
    return environment, unread


def _split(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def service_commands(text: str, where: str, files: Files) -> Iterator[Command]:
    unit = read_unit(text)
    environment, unread = _environment(unit, files)
    values: dict[str, shell.Value] = dict(environment)
    for value in unit.get("ExecStart", []):
        # systemd knows $NAME and ${NAME} alone, the second as one word, and %SPECIFIER.
        line = re.sub(r"(?<=[\s=])(\$\{\w+\})(?=\s|$)", r'"\1"', value.lstrip(PREFIXES).replace("$$", "\\$"))
        line = SPECIFIERS.sub(lambda match: "%" if match[1] == "%" else "${SPECIFIER_" + match[1] + "}", line)
        for command in shell.commands(line, where, values=values, files=files):
            contained = any(engine_of_image(word) is not None for word in command.words)
            # A file decides where the words have variables that it may set, or are flags themselves.
            decides = any(map(is_unknown, command.words)) or command_lines()[command.engine].reads_environment
            missing = tuple(replace(entry, decides=decides) for entry in unread)
            yield replace(
                command,
                where=where,
                environment={} if contained else environment,
                unread=(*command.unread, *missing),
            )


def quadlet_commands(text: str, where: str, files: Files) -> Iterator[Command]:
    unit = read_unit(text)
    environment, unread = _environment(unit, files)
    image = "".join(unit.get("Image", [])[-1:])
    words = [
        word for key in ("Entrypoint", "Exec") for value in unit.get(key, [])[-1:] for word in _split(value)
    ]
    mounts = {}
    for value in unit.get("Volume", []):
        source, _, target = value.partition(":")
        mounts[target.partition(":")[0]] = source
    yield from containers.commands(words, where, image, environment, replace(files, mounts=mounts), unread)


SERVICE = FileForm(
    "a systemd unit",
    lambda path, text: bool(SECTION.search(text)) and not QUADLET.search(text),
    service_commands,
    "systemctl cat {stem}  # which program it starts",
)
CONTAINER = FileForm(
    "a Quadlet",
    lambda path, text: bool(QUADLET.search(text)),
    quadlet_commands,
    "systemctl cat {stem}  # which image it runs",
)
