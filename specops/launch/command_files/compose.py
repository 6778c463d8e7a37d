"""Compose files: services with their configs, env_file, and files that they mount."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from specops.launch.command_files import containers
from specops.launch.command_files.form import Document, DocumentForm
from specops.launch.command_files.recognition import assignments
from specops.section import SECRET_VARIABLE
from specops.serving import Command, Files, Unknown, is_unknown


def matches(document: Document) -> bool:
    return isinstance(document.get("services"), dict)


def commands(document: Document, where: str, files: Files) -> Iterator[Command]:
    held = files.with_texts(_configs(document))
    env_file_values = {
        name: value
        for name, value in assignments(replace(files, contained=False).text(".env") or "").items()
        if not SECRET_VARIABLE.search(name)  # what is filled in is printed
    }
    for name, service in document["services"].items():
        if not isinstance(service, dict):
            continue
        # Compose fills in variables first and splits then, so that one may hold several words, or none.
        started = [_filled(service.get(key), env_file_values) for key in ("entrypoint", "command")]
        image = service.get("image")
        stated = service.get("env_file")
        names = [
            str(containers.mapping(e).get("path", e))
            for e in (stated if isinstance(stated, list) else [stated])
        ]
        environment, unread = containers.env_files([n for n in names if n != "None"], files)
        variables = containers.variables(service.get("environment"))
        missing: list[Unknown] = []
        for key, part in (("include", document.get("include")), ("extends", service.get("extends"))):
            if part:
                reason = "other files add to the service, which were not read"
                how = "docker compose config > rendered.yaml  # then lint that file"
                missing.append(Unknown(key, reason, how))
        yield from containers.commands(
            [word for part in started for word in containers.listed(part)],
            f"service {name}",
            _interpolated(image, env_file_values) if isinstance(image, str) else image,
            environment | {n: _interpolated(v, env_file_values) for n, v in variables.items()},
            replace(held, mounts=dict(_mounts(service.get("volumes")))),
            unread,
            missing,
        )


def _mounts(volumes: Any) -> Iterator[tuple[str, str]]:
    """Yield paths in the container, with the paths beside the file that are mounted there."""
    for volume in volumes if isinstance(volumes, list) else ():
        source, target = containers.mapping(volume).get("source"), containers.mapping(volume).get("target")
        if isinstance(volume, str):
            source, _, target = volume.partition(":")
            target = target.partition(":")[0]
        if source and target and not is_unknown(str(source)) and str(source).startswith((".", "/", "~")):
            yield str(target), str(source)


def _filled(value: Any, env_file_values: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_interpolated(str(word), env_file_values) for word in value]
    return _interpolated(value, env_file_values) if isinstance(value, str) else value


def _interpolated(text: str, env_file_values: Mapping[str, str]) -> str:
    """Return the text with the variables of the file .env. Of others, ${NAME:-default} is the default and
    ${NAME:+other} is nothing; $$ is a dollar."""
    before, text = "", text.replace("$$", "\0")
    text = re.sub(
        r"\$(?:(\w+)|\{(\w+)(?::?[-?](?:[^{}]|\{[^{}]*\})*)?\})",
        lambda match: env_file_values.get(match[1] or match[2]) or match[0],
        text,
    )
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


FORM = DocumentForm("a Compose file", matches, commands, "docker compose config  # which services there are")
