"""Compose files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from specops.launch.command_files import containers
from specops.serving import Command


def is_one(document: dict[str, Any]) -> bool:
    return isinstance(document.get("services"), dict)


def commands(document: dict[str, Any], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    held = {**files, **_configs(document)}
    for name, service in document["services"].items():
        if not isinstance(service, dict):
            continue
        words = [*containers.listed(service.get("entrypoint")), *containers.listed(service.get("command"))]
        image = service.get("image")
        yield from containers.commands(
            [_interpolated(word) for word in words],
            f"service {name}",
            _interpolated(image) if isinstance(image, str) else image,
            {n: _interpolated(v) for n, v in containers.variables(service.get("environment")).items()},
            held,
        )


def _interpolated(text: str) -> str:
    """${NAME:-default} is the default, since no environment is known; $$ is a dollar."""
    text = re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", text)
    return re.sub(r"\$\$(?=\w|\{|\()", "$", text)


def _configs(document: dict[str, Any]) -> dict[str, str]:
    """Texts of `configs: {NAME: {content: …}}`."""
    configs = document.get("configs")
    entries = configs.items() if isinstance(configs, dict) else ()
    return {
        str(name): entry["content"]
        for name, entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("content"), str)
    }
