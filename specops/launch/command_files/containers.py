"""A container as Compose, Kubernetes and charts describe one: image, words and environment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
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
    """Of a container's entry point and arguments. `bash -c SCRIPT` is read as a script."""
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
            yield Command(
                where,
                found.engine,
                found.words,
                version,
                environment=found.environment,
                files=found.files,
            )
        return
    found_command = recognised(words, where, image=image, environment=environment, files=files)
    if found_command is not None:
        yield found_command


def filled_in(script: str) -> str:
    """Without the directives of a Go template, as if all its conditions held: KServe's configurations have
    scripts with {{- if .Spec.Parallelism.Expert -}}--enable-expert-parallel{{- end }}. What stands for a
    value becomes one word."""
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
