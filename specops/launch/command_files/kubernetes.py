"""Kubernetes manifests: containers of a pod, wherever in an object they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specops.launch.command_files import containers
from specops.serving import Command


def is_one(document: dict[str, Any]) -> bool:
    return isinstance(document.get("kind"), str)


def commands(document: dict[str, Any], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    yield from _within(document, "", files)


def texts_of(document: dict[str, Any]) -> dict[str, str]:
    """Of a ConfigMap, or of those in a List."""
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        inner = [item for item in document["items"] if isinstance(item, dict)]
        return {name: text for item in inner for name, text in texts_of(item).items()}
    data = document.get("data") if document.get("kind") == "ConfigMap" else None
    entries = data.items() if isinstance(data, dict) else ()
    return {str(name): text for name, text in entries if isinstance(text, str)}


def named(document: Mapping[str, Any]) -> str:
    """Such as: Deployment llm."""
    metadata = document.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{document.get('kind', '')} {name}".strip()


def of_container(container: Any, where: str, files: Mapping[str, str]) -> Iterator[Command]:
    if not isinstance(container, dict):
        return
    environment = containers.variables(container.get("env"))
    words = [*containers.listed(container.get("command")), *containers.listed(container.get("args"))]
    place = f"{where}, container {container.get('name', '')}"
    yield from containers.commands(
        containers.filled(words, environment), place, container.get("image"), environment, files
    )


def _within(node: Any, where: str, files: Mapping[str, str]) -> Iterator[Command]:
    if isinstance(node, dict):
        if "kind" in node and isinstance(node.get("metadata"), dict):
            where = named(node)
        for key, value in node.items():
            if key in ("containers", "initContainers") and isinstance(value, list):
                for container in value:
                    yield from of_container(container, where, files)
            else:
                yield from _within(value, where, files)
    elif isinstance(node, list):
        for part in node:
            yield from _within(part, where, files)
