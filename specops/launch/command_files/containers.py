"""Containers, as Compose, Kubernetes and charts describe them: image, words, environment, files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specops.launch.command_files import shell
from specops.launch.command_files.recognition import (
    assignments,
    command_lines,
    engine_of_image,
    inner_script,
    recognised,
)
from specops.serving import Command, Files, Unknown


def commands(
    words: list[str],
    where: str,
    image: Any,
    environment: Mapping[str, str],
    files: Files,
    unread: Sequence[Unknown] = (),
    missing: Sequence[Unknown] = (),
) -> Iterator[Command]:
    """Yield the commands of a container's entry point and arguments. `bash -c SCRIPT` is read as a script.
    `unread`: variables of the container that were not read; `missing`: what else was not."""
    image = image if isinstance(image, str) else ""
    for command in _started(words, where, image, environment, replace(files, contained=True)):
        decides = command_lines()[command.engine].reads_environment
        entries = (replace(entry, decides=entry.decides and decides) for entry in unread)
        yield replace(command, unread=(*command.unread, *entries, *missing))


def _started(
    words: list[str], where: str, image: str, environment: Mapping[str, str], files: Files
) -> Iterator[Command]:
    values: dict[str, shell.Value] = dict(environment)
    script, beside = inner_script(words), script_beside(words, files)
    if script is not None:
        after = words[words.index(script) + 1 :]
        if after[:1]:  # bash -c SCRIPT NAME ARGUMENT …
            values["@"] = list(after[1:])
        text = filled_in(script)
    elif beside is not None:
        text, values["@"] = beside
    else:
        command = recognised(words, where, image=image, environment=environment, files=files)
        if command is not None:
            yield command
        return
    for command in shell.commands(
        text, where, values=values, image=image, environment=environment, files=files
    ):
        version = command.version or _version(image)
        yield replace(command, where=where, version=version, image=image or None)


def script_beside(words: Sequence[str], files: Files) -> tuple[str, list[str]] | None:
    """Return the text and the arguments of a script that the words run, and that is held or stands beside."""
    for index, word in enumerate(words[:3]):
        if word.endswith((".sh", ".bash")):
            names = (word, word.rsplit("/", 1)[-1])  # an image copies it from beside the file
            text = next(
                (t for name in names if (t := replace(files, contained=False).text(name)) is not None), None
            )
            return None if text is None else (text, list(words[index + 1 :]))
    return None


def filled_in(script: str) -> str:
    """Return the text without the directives of a Go template, as if all its conditions held: KServe's
    configurations have scripts with {{- if .Spec.Parallelism.Expert -}}--enable-expert-parallel{{- end }}.
    What stands for a value becomes one word."""
    script = re.sub(r"\{\{-?\s*(?:if|else|end|range|with)\b[^}]*\}\}", " ", script)
    return re.sub(r"\{\{[^}]*\}\}", lambda match: re.sub(r"\s+", "", match[0]), script)


def _version(image: str) -> str | None:
    tag = engine_of_image(image)
    return tag[1] if tag else None


def relocated(commands: Iterable[Command], where: str) -> Iterator[Command]:
    """Yield the commands with another place, for people."""
    for command in commands:
        yield replace(command, where=where)


def listed(value: Any) -> list[str]:
    """A command in YAML: a list of words, or one text that is split as a shell would."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError:
            return value.split()
    return (
        [str(part) for part in value if not isinstance(part, dict | list)] if isinstance(value, list) else []
    )


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def of_container(node: dict[str, Any], where: str, files: Files) -> Iterator[Command]:
    """Yield the commands of a container with command, args, env and image; or repository and tag, as charts
    have it."""
    environment = variables(node.get("env"), files)
    unread, missing = [], list[Unknown]()
    for source in node["envFrom"] if isinstance(node.get("envFrom"), list) else ():
        kind, reference = next(iter(mapping(source).items()), ("", None))
        name = str(mapping(reference).get("name", ""))
        if name in files.maps:
            environment = dict(files.maps[name]) | environment
        else:
            how = f"kubectl get {'secret' if 'secret' in kind else 'configmap'} {name} -o yaml"
            unread.append(Unknown(name, f"{kind} sets variables that are not in this file", how))
    words = [*listed(node.get("command")), *listed(node.get("args"))]
    for key in ("command", "args"):
        if isinstance(node.get(key), list) and any(isinstance(part, dict | list) for part in node[key]):
            reason = "it holds more than words, which were not read"
            how = "kubectl get pods -o yaml  # the words that the container has"
            missing.append(Unknown(key, reason, how))
    image = image_of(node)
    yield from commands(filled(words, environment), where, image, environment, files, unread, missing)


def image_of(node: dict[str, Any]) -> str:
    """Return a container's image: as one text, or as repository and tag, at the container or in `image`."""
    image = node.get("image")
    if isinstance(image, str):
        return image
    parts = image if isinstance(image, dict) else node
    return f"{parts['repository']}:{parts.get('tag', '')}" if "repository" in parts else ""


def variables(value: Any, files: Files | None = None) -> dict[str, str]:
    """`environment` of Compose (a mapping, or NAME=VALUE) and `env` of Kubernetes ({name, value}).

    One whose value comes from elsewhere, such as a Secret or the machine, is a variable of its own name.
    """
    held = files or Files()
    environment: dict[str, str] = {}
    if isinstance(value, dict):
        environment = {
            str(name): _text(text) if _is_plain(text) else f"${name}" for name, text in value.items()
        }
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict) and "name" in entry:
            name, text = str(entry["name"]), entry.get("value")
            reference = mapping(mapping(entry.get("valueFrom")).get("configMapKeyRef"))
            text = held.maps.get(str(reference.get("name")), {}).get(str(reference.get("key")), text)
            if _is_plain(text):
                environment[name] = _text(text)
            elif "valueFrom" in entry:
                environment[name] = f"${name}"
        elif isinstance(entry, str):
            name, equals, text = entry.partition("=")
            environment[name] = text if equals else f"${name}"
    return environment


def env_files(names: Sequence[str], files: Files) -> tuple[dict[str, str], list[Unknown]]:
    """Return the variables of the files, of which later ones outweigh earlier ones, and missing files."""
    environment: dict[str, str] = {}
    unread = []
    for name in names:
        text = replace(files, contained=False).text(name)
        if text is None:
            reason = "its variables were not read: it is not here"
            unread.append(
                Unknown(name, reason, f"put {name} beside the file that names it, and lint it again")
            )
        else:
            environment |= assignments(text)
    return environment, unread


def filled(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """$(NAME), as Kubernetes fills it in from the container's environment."""
    return [re.sub(r"\$\((\w+)\)", lambda m: environment.get(m[1], m[0]), word) for word in words]


def _is_plain(value: Any) -> bool:
    return value is not None and not isinstance(value, dict | list)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
