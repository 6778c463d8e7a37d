"""Commands that start a serving engine, given as words or found in files, and what is wrong with them.

Shell scripts, Compose files, Kubernetes manifests, and YAML files of flags as `vllm serve --config` reads
them, such as the playbook's speculative_decoding_config.yaml.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from specops.errors import FileError, UsageError
from specops.serving import ENGINES, Command, CommandLine, Judged

YAML = (".yaml", ".yml", ".json")
SHELLS = ("sh", "bash", "dash")
BEFORE = ("exec", "nohup", "sudo", "time", "command")
"""Words that a shell's command may begin with, and that say nothing of it."""
SAYING = ("echo", "printf")


def judge(command: Command, asked: str | None = None) -> Judged:
    """`asked`: a version that the operator names. ConfigError for one that is none, or is too old."""
    return _lines()[command.engine].judge(command, asked)


def command_of(words: Sequence[str]) -> Command:
    """What was given on the command line: as words, or quoted as one.

    UsageError where it calls no engine that is known. Flags alone are taken for the first engine's.
    """
    if len(words) == 1 and " " in words[0]:
        found = list(_shell(words[0], "the command"))
        if found:
            return found[0]
        words = shlex.split(words[0])
    command = _command(words, "the command")
    if command is None and words and words[0].startswith("-"):
        return Command("the command", next(iter(_lines())), tuple(words))
    if command is None:
        raise UsageError(
            f"this is no command of {_titles()}",
            hint=f"begin with the program: {', or '.join(line.example for line in _lines().values())}",
        )
    return command


def commands_in(path: Path) -> list[Command]:
    """FileError for a file that is not there, UsageError for one without a command of an engine."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise FileError(f"could not read {path}: {reason}", hint="give a text file") from error
    found = list(_yaml(text, path) if path.suffix in YAML else _shell(text, path.name))
    if not found:
        raise UsageError(
            f"there is no command of {_titles()} in {path}",
            hint="shell scripts, Compose files, Kubernetes manifests and YAML files of flags are read",
        )
    return found


def _command(words: Sequence[str], where: str, image: str | None = None) -> Command | None:
    """`image`: of the container that the words run in."""
    engine, length = _program_of(words)
    tags = [_engine_of_image(word) for word in (image or "", *words[:length])]
    tag = next((tag for tag in tags if tag is not None), None)
    if engine is None and tag is not None and image is not None:
        engine = tag[0]  # the words are arguments of the image's own program
    if engine is None:
        return None
    return Command(where, engine, tuple(words), tag[1] if tag else None)


def _lines() -> dict[str, CommandLine]:
    """The command lines of engines that have one, by the engine's name."""
    found = {name: engine.command_line for name, engine in ENGINES.items()}
    return {name: line for name, line in found.items() if line is not None}


def _titles() -> str:
    return " or ".join(ENGINES[name].title for name in _lines())


def _program_of(words: Sequence[str]) -> tuple[str | None, int]:
    """Which engine `words` call, and how many of them call it; (None, 0): none that is known.

    `vllm serve`, `python -m vllm.entrypoints…`, `docker run … IMAGE` and their like.
    """
    lines = _lines()
    called = [(line.call.program(words), name) for name, line in lines.items()]
    run = [(line.call.container(words), name) for name, line in lines.items()]
    for found in (called, run):
        lengths = [(length, name) for length, name in found if length is not None]
        if lengths:
            length, engine = min(lengths)
            return engine, length
    return None, 0


def _engine_of_image(image: str) -> tuple[str, str | None] | None:
    """The engine of a container's image, and the version that its tag says."""
    tags = {name: line.call.tag(image) for name, line in _lines().items()}
    return next(((name, tag or None) for name, tag in tags.items() if tag is not None), None)


# Shell


def _shell(text: str, where: str) -> Iterator[Command]:
    for line, statement in _statements(text, where):
        place = f"{where}, line {line}"
        for words in _simple(statement):
            command = _command(words, place)
            if words[0] in SHELLS and "-c" in words[:-1]:
                inner = words[words.index("-c") + 1]
                yield from (replace(found, where=place) for found in _shell(inner, place))
            elif command is not None and words[0] not in SAYING:
                yield command


def _statements(text: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """Lines, joined where one ends in a backslash or inside quotes, as words and operators."""
    pending, first = "", 1
    for number, line in enumerate(text.splitlines(), start=1):
        if not pending:
            first = number
        if line.rstrip().endswith("\\") and not line.lstrip().startswith("#"):
            pending += line.rstrip()[:-1] + " "
            continue
        pending += line + "\n"
        try:
            words = _tokens(pending)
        except ValueError:  # a quote is open: it goes on in the next line
            continue
        yield first, words
        pending = ""
    if pending.strip():
        try:
            yield first, _tokens(pending)
        except ValueError as error:
            raise UsageError(
                f"could not read {where}, line {first}: {str(error).lower()}", hint="close the quote"
            ) from error


def _tokens(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    return list(lexer)


def _simple(words: list[str]) -> Iterator[list[str]]:
    """The simple commands of a line, up to a redirection, without what may stand before a program."""
    for operator, group in itertools.groupby(words, lambda word: set(word) <= set(";&|")):
        if operator:
            continue
        current = list(itertools.takewhile(lambda word: not re.match(r"\d*[<>]", word), group))
        while current and current[0] in BEFORE:
            current.pop(0)
        if current:
            yield current


# YAML


def _yaml(text: str, path: Path) -> Iterator[Command]:
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        problem = str(error).splitlines()[0]
        raise UsageError(
            f"could not read {path}: this is no YAML: {problem}",
            hint="a template has to be rendered first, as `helm template` does",
        ) from error
    for document in documents:
        if isinstance(document, dict) and isinstance(document.get("services"), dict):
            yield from _compose(document["services"])
        elif isinstance(document, dict) and "kind" in document:
            yield from _kubernetes(document)
        elif isinstance(document, dict) and {"rollout", "pools"} <= document.keys():
            raise UsageError(
                f"{path} is a rollout file",
                hint=f"`specops launch render {path}` renders and lints its pools",
            )
        elif isinstance(document, dict):
            words = [word for key, value in document.items() for word in _flag(str(key), value)]
            for name, line in _lines().items():
                if line.flag is not None and any(map(line.flag, words)):  # else it is about something else
                    yield Command(path.name, name, tuple(words), flags_file=True)
                    break


def _compose(services: dict[str, Any]) -> Iterator[Command]:
    for name, service in services.items():
        if isinstance(service, dict):
            words = [*_listed(service.get("entrypoint")), *_listed(service.get("command"))]
            yield from _in_a_container(words, f"service {name}", service.get("image"))


def _kubernetes(node: Any, where: str = "") -> Iterator[Command]:
    if isinstance(node, dict):
        if "kind" in node and isinstance(node.get("metadata"), dict):
            where = f"{node['kind']} {node['metadata'].get('name', '')}".strip()
        for key, value in node.items():
            if key in ("containers", "initContainers") and isinstance(value, list):
                for container in value:
                    if isinstance(container, dict):
                        words = [*_listed(container.get("command")), *_listed(container.get("args"))]
                        place = f"{where}, container {container.get('name', '')}"
                        yield from _in_a_container(words, place, container.get("image"))
            else:
                yield from _kubernetes(value, where)
    elif isinstance(node, list):
        for part in node:
            yield from _kubernetes(part, where)


def _in_a_container(words: list[str], where: str, image: Any) -> Iterator[Command]:
    if words[:1] and words[0].rsplit("/", 1)[-1] in SHELLS:
        tag = _engine_of_image(str(image))
        for inner in _shell(words[-1], where):
            yield replace(inner, where=where, version=inner.version or (tag[1] if tag else None))
        return
    command = _command(words, where, str(image))
    if command is not None:
        yield command


def _listed(value: Any) -> list[str]:
    """A command in YAML: a list of words, or one text that is split as a shell would."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError:
            return value.split()
    return [str(part) for part in value] if isinstance(value, list) else []


def _flag(key: str, value: Any) -> list[str]:
    flag = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag] if value else []
    if isinstance(value, dict):
        return [flag, json.dumps(value)]
    if isinstance(value, list):
        return [flag, *(str(part) for part in value)]
    return [flag] if value is None else [flag, str(value)]
