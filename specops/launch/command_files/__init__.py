"""Commands that start a serving engine, in the files where people keep them.

forms.py        the registry: a line a form; each form has a file of its own
shell.py        scripts, read with tree-sitter's grammar of bash
containers.py   a container: words, variables, files
recognition.py  which engine words call; dynamo.py, Dynamo's workers around an engine

Nothing is run. A value that only a shell, a cluster or a template has stays a variable, such as $MODEL; what
could not be read is part of the command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specops.errors import FileError, UsageError
from specops.hints import listing
from specops.launch.command_files import forms, presets, shell, windows
from specops.launch.command_files.recognition import command_lines, recognised, titles
from specops.serving import Command, Files, LintResult, joined


def judge(command: Command, requested: str | None = None) -> LintResult:
    """Judge the command of a file. `requested`: a version that the operator names. Raises ConfigError for one
    that is invalid or too old."""
    result = command_lines()[command.engine].judge(command, requested)
    if command.version and result.corrected:
        result = replace(result, corrected=_retagged(result.corrected, command.version, result.version))
    if result.corrected:
        result = replace(result, corrected=windows.written(result.corrected, command.where))
    if command.launcher and result.corrected and not command.flags_file:
        result = replace(
            result, corrected=f"{result.corrected.rstrip()} \\\n    {joined(command.launcher)}\n"
        )
    return result


def _retagged(text: str, tag: str, judged: str) -> str:
    """Return a corrected command with the image of the release that it was corrected for, where that is newer
    than the image's tag: the older release may know nothing of the flags that the correction has."""
    own, newer = (re.search(r"\d+(\.\d+)*", version) for version in (tag, judged))
    if own is None or newer is None or _numbers(own[0]) >= _numbers(newer[0]):
        return text
    return re.sub(rf"(\S+:[\w-]*?){re.escape(own[0])}[\w.-]*(?=[\s'\"]|$)", rf"\g<1>{newer[0]}", text)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:3]))


def command_of(words: Sequence[str]) -> Command:
    """Return what was given on the command line: as words, or quoted as one.

    Raises UsageError where it calls no engine that is known. Flags alone are taken for the first engine's.
    """
    files = Files(folder=Path())
    if len(words) == 1 and " " in words[0]:
        commands = list(shell.commands(words[0], "the command", files=files))
        if commands:
            return _of_one_model(commands[0])
        words = shlex.split(words[0])
    command = recognised(words, "the command", files=files)
    if command is None and words and words[0].startswith("-"):
        return Command("the command", next(iter(command_lines())), tuple(words), files=files)
    if command is None:
        examples = ", or ".join(line.example for line in command_lines().values())
        refusal = f"not a command of {titles()}"
        is_printable = words and "=" not in words[0]  # a variable may hold a key
        raise UsageError(
            f"{f'{words[0]} is ' if is_printable else ''}{refusal}: expected the program first, such as "
            f"{examples}",
            hint=f"specops launch lint -- {next(iter(command_lines().values())).example.removesuffix(' …')}",
        )
    return _of_one_model(command)


def _of_one_model(command: Command) -> Command:
    """Return the command with its preset file read, where that has one model; `commands_in` reads all."""
    models = list(presets.expanded(command))
    return models[0] if len(models) == 1 else command


def commands_in(path: Path, text: str | None = None) -> list[Command]:
    """Return the commands in a file. Raises FileError for a file that is not there, UsageError for one
    without a command of an engine.

    text: the file's text, where it is not on this machine; then no file that it names is read.
    """
    files = Files(folder=path.parent if text is None else None)
    if text is None:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise FileError(f"could not read {path}: {reason}", hint=listing(path)) from error
    commands, form, instead = forms.file_commands(path, text, files)
    if not commands:
        raise UsageError(f"there is no command of {titles()} in {path}: it is {form}", hint=instead)
    return commands
