"""Presets of llama-server: an INI file with a section a model, whose keys are flags without their dashes.

[*] holds for all sections. The command that names the file with --models-preset outweighs both. Read in
llama.cpp's server, b11549.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from specops.launch.command_files.form import LOOK, FileForm
from specops.launch.command_files.recognition import command_lines
from specops.serving import Command, Files

NAMED_BY, VARIABLE = "--models-preset", "LLAMA_ARG_MODELS_PRESET"
EVERYWHERE = "*"
OWN_KEYS = ("load-on-startup", "stop-timeout", "dedup-cache-models", "pin", "version")
"""Keys of presets that are no flags."""

SECTION = re.compile(r"^\s*\[([^\]]+)\]\s*(?:[;#].*)?$", re.MULTILINE)
MODEL_KEYS = re.compile(r"(?m)^\s*(model|m|hf|hf-repo|hfr|spec-type|ctx-size|c|n-gpu-layers|ngl)\s*=")


def matches(path: Path, text: str) -> bool:
    return path.suffix == ".ini" and bool(SECTION.search(text)) and bool(MODEL_KEYS.search(text))


def _engine() -> str:
    """The engine whose settings are presets."""
    return next(name for name, line in command_lines().items() if line.settings is not None)


def sections(text: str) -> dict[str, dict[str, str]]:
    """Return the settings of each section by its name; those before the first are under no name."""
    content: dict[str, dict[str, str]] = {"": {}}
    name = ""
    for line in (re.sub(r"(^|\s)[;#].*", "", line) for line in text.splitlines()):
        if (header := SECTION.match(line)) is not None:
            name = header[1].strip()
            content.setdefault(name, {})
            continue
        key, equals, value = line.partition("=")
        if equals and key.strip():
            content[name][key.strip()] = value.strip()
    return content


def commands(text: str, where: str, files: Files) -> Iterator[Command]:
    yield from _preset_commands(
        text, Command(where, _engine(), command_lines()[_engine()].call.programs[0], files=files)
    )


def expanded(command: Command) -> Iterator[Command]:
    """Yield a command for each model of the preset file that `command` names; the command itself where it
    names none, or one that is not here."""
    words = list(command.words)
    name, start = None, len(words)
    for index, word in enumerate(words):
        if word == NAMED_BY and index + 1 < len(words):
            name, start = words[index + 1], index
    name = name or command.environment.get(VARIABLE)
    text = command.files.text(name) if command.engine == _engine() and name else None
    if text is None:
        yield command
        return
    around = {key: value for key, value in command.environment.items() if key != VARIABLE}
    yield from _preset_commands(
        text, replace(command, words=(*words[:start], *words[start + 2 :]), environment=around)
    )


def _preset_commands(text: str, command: Command) -> Iterator[Command]:
    content = sections(text)
    shared = content.pop("", {}) | content.pop(EVERYWHERE, {})
    line = command_lines()[_engine()]
    start = line.call.start(command.words)
    assert line.settings is not None
    for name, settings in content.items():
        stated = {k: v for k, v in (shared | settings).items() if k not in OWN_KEYS}
        variables = {key: value for key, value in stated.items() if key.startswith("LLAMA_ARG_")}
        words = [w for k, v in stated.items() if k not in variables for w in line.settings(k, v)]
        yield replace(
            command,
            where=f"{command.where}, model {name}",
            words=(*command.words[:start], *words, *command.words[start:]),
            environment={**command.environment, **variables},
        )


FORM = FileForm("a file of presets", matches, commands, LOOK)
