"""Containers, as Compose, Kubernetes and charts describe them (image, words and environment); the readers of
Compose files and of Dockerfiles, in which a stage's ENTRYPOINT and CMD start something with its ENV and ARG.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specops.launch.command_files import shell
from specops.launch.command_files.recognition import engine_of_image, inner_script, recognised
from specops.serving import Command


def commands(
    words: list[str],
    where: str,
    image: Any,
    environment: Mapping[str, str],
    files: Mapping[str, str],
) -> Iterator[Command]:
    """Yield the commands of a container's entry point and arguments. `bash -c SCRIPT` is read as a script."""
    image = image if isinstance(image, str) else ""
    script = inner_script(words)
    if script is not None:
        after = words[words.index(script) + 1 :]
        given: dict[str, shell.Value] = dict(environment)
        if after[:1]:  # bash -c SCRIPT NAME ARGUMENT …
            given["@"] = list(after[1:])
        for found in shell.commands(
            filled_in(script), where, given=given, image=image, environment=environment, files=files
        ):
            version = found.version or _version(image)
            yield replace(found, where=where, version=version, image=image or None)
        return
    found_command = recognised(words, where, image=image, environment=environment, files=files)
    if found_command is not None:
        yield found_command


def filled_in(script: str) -> str:
    """Return the text without the directives of a Go template, as if all its conditions held: KServe's
    configurations have scripts with {{- if .Spec.Parallelism.Expert -}}--enable-expert-parallel{{- end }}.
    What stands for a value becomes one word."""
    script = re.sub(r"\{\{-?\s*(?:if|else|end|range|with)\b[^}]*\}\}", " ", script)
    return re.sub(r"\{\{[^}]*\}\}", lambda found: re.sub(r"\s+", "", found[0]), script)


def _version(image: str) -> str | None:
    tag = engine_of_image(image)
    return tag[1] if tag else None


def listed(value: Any) -> list[str]:
    """A command in YAML: a list of words, or one text that is split as a shell would."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError:
            return value.split()
    return [str(part) for part in value] if isinstance(value, list) else []


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def of_container(node: dict[str, Any], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    """Yield the commands of a container with command, args, env and image; or repository and tag, as charts
    have it."""
    environment = variables(node.get("env"))
    words = [*listed(node.get("command")), *listed(node.get("args"))]
    image = node.get("image")
    if not isinstance(image, str) and "repository" in node:
        image = f"{node['repository']}:{node.get('tag', '')}"
    yield from commands(filled(words, environment), where, image, environment, files)


def variables(value: Any) -> dict[str, str]:
    """`environment` of Compose (a mapping, or NAME=VALUE) and `env` of Kubernetes ({name, value}).

    One whose value comes from elsewhere, such as a Secret, is left out.
    """
    found: dict[str, str] = {}
    if isinstance(value, dict):
        found = {str(name): _text(one) for name, one in value.items() if _is_plain(one)}
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict) and _is_plain(entry.get("value")):
            found[str(entry.get("name"))] = _text(entry["value"])
        elif isinstance(entry, str) and "=" in entry:
            name, _, text = entry.partition("=")
            found[name] = text
    return found


def filled(words: list[str], environment: Mapping[str, str]) -> list[str]:
    """$(NAME), as Kubernetes fills it in from the container's environment."""
    return [re.sub(r"\$\((\w+)\)", lambda m: environment.get(m[1], m[0]), word) for word in words]


def _is_plain(value: Any) -> bool:
    return value is not None and not isinstance(value, dict | list)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Compose


def is_compose(document: dict[str, Any]) -> bool:
    return isinstance(document.get("services"), dict)


def compose_commands(document: dict[str, Any], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    held = {**files, **_configs(document)}
    for name, service in document["services"].items():
        if not isinstance(service, dict):
            continue
        # Compose fills in variables first and splits then, so that one may hold several words, or none.
        started = [_filled_in_compose(service.get(key)) for key in ("entrypoint", "command")]
        image = service.get("image")
        yield from commands(
            [word for one in started for word in listed(one)],
            f"service {name}",
            _interpolated(image) if isinstance(image, str) else image,
            {n: _interpolated(v) for n, v in variables(service.get("environment")).items()},
            held,
        )


def _filled_in_compose(value: Any) -> Any:
    if isinstance(value, list):
        return [_interpolated(str(one)) for one in value]
    return _interpolated(value) if isinstance(value, str) else value


def _interpolated(text: str) -> str:
    """No variable is known: ${NAME:-default} is the default, ${NAME:+other} is nothing; $$ is a dollar."""
    before, text = "", text.replace("$$", "\0")
    while text != before:  # a default may hold another one
        before = text
        text = re.sub(r"\$\{\w+:?-((?:[^{}$]|\$(?!\{))*)\}", r"\1", text)
        text = re.sub(r"\$\{\w+:?\+(?:[^{}]|\$\{\w+\})*\}", "", text)
    return text.replace("\0", "$")


def _configs(document: dict[str, Any]) -> dict[str, str]:
    """Texts of `configs: {NAME: {content: …}}`."""
    configs = document.get("configs")
    entries = configs.items() if isinstance(configs, dict) else ()
    return {
        str(name): entry["content"]
        for name, entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("content"), str)
    }


# Dockerfiles


def is_dockerfile(path: Path) -> bool:
    """Dockerfile, Containerfile, Dockerfile.gpu, gpu.Dockerfile."""
    return any(part in ("Dockerfile", "Containerfile") for part in path.name.split("."))


def dockerfile_commands(text: str, where: str) -> Iterator[Command]:
    """Yield the commands of the last stage that has any, and of those before it."""
    stage = _Stage("")
    for line, instruction, rest in _instructions(text):
        if instruction == "FROM":
            yield from stage.commands(where)
            names = {**stage.arguments, **stage.environment}
            stage = _Stage(_filled(rest.split(" ")[0], names), arguments=stage.arguments)
        else:
            stage.read(line, instruction, rest)
    yield from stage.commands(where)


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

    def commands(self, where: str) -> Iterator[Command]:
        words = [*self.entrypoint, *self.command]
        if words:
            place = f"{where}, line {self.line}"
            yield from commands(words, place, self.image, self.environment, {})


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
    found = re.findall(r"""(\w+)=((?:"[^"]*"|'[^']*'|\\.|[^\s"'\\])*)""", text)
    return {name: _filled(re.sub(r"""["']""", "", value), names) for name, value in found}


def _filled(text: str, names: dict[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name, other = found[1] or found[3], found[2]
        return names.get(name, other if other is not None else found[0])

    return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)", value, text)
