"""Kubernetes manifests: containers of a pod, wherever in an object they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specops.launch.command_files import containers, flags_file
from specops.launch.command_files.form import RENDERED, Document, DocumentForm
from specops.serving import Command, Files, Unknown


def matches(document: Document) -> bool:
    return isinstance(document.get("kind"), str)


def commands(document: Document, where: str, files: Files) -> Iterator[Command]:
    yield from _within(document, "", files)


def texts_of(document: Document) -> dict[str, str]:
    """Return the texts of a ConfigMap, or of those in a List."""
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        inner = [item for item in document["items"] if isinstance(item, dict)]
        return {name: text for item in inner for name, text in texts_of(item).items()}
    data = document.get("data") if document.get("kind") == "ConfigMap" else None
    entries = data.items() if isinstance(data, dict) else ()
    return {str(name): text for name, text in entries if isinstance(text, str)}


def maps_of(document: Document) -> dict[str, dict[str, str]]:
    """Return the texts of ConfigMaps by the map's name."""
    items = document.get("items") if document.get("kind") == "List" else [document]
    maps = {}
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and item.get("kind") == "ConfigMap":
            maps[str(containers.mapping(item.get("metadata")).get("name", ""))] = texts_of(item)
    return maps


def named(document: Mapping[str, Any]) -> str:
    """Return the kind and name of an object, such as `Deployment llm`."""
    name = containers.mapping(document.get("metadata")).get("name", "")
    return f"{document.get('kind', '')} {name}".strip()


def of_container(container: Any, where: str, files: Files) -> Iterator[Command]:
    if isinstance(container, dict):
        name = container.get("name")
        place = f"{where}, container {name}" if name else where
        commands = list(containers.of_container(container, place, files))
        yield from commands or _patch_of(container, place, files)


def _patch_of(container: Document, place: str, files: Files) -> Iterator[Command]:
    """Yield the flags of a container without an image: a patch, whose other part is in what it patches."""
    words = containers.listed(container.get("args"))
    settings = {word.removeprefix("--").partition("=")[0]: "" for word in words if word.startswith("--")}
    engine = flags_file.engine_of(settings) if settings and "image" not in container else None
    if engine is not None:
        reason = "it is a patch: the image and other words are in what it patches"
        unread = Unknown("patch", reason, "kubectl kustomize . > rendered.yaml  # then lint that file")
        environment = containers.variables(container.get("env"), files)
        yield Command(place, engine, tuple(words), environment=environment, files=files, unread=(unread,))


def _mounted(container: Any, volumes: Any, files: Files) -> Files:
    """Return the files with those of ConfigMaps at the paths at which the container has them."""
    maps = {}
    for volume in volumes if isinstance(volumes, list) else ():
        config = containers.mapping(containers.mapping(volume).get("configMap"))
        maps[str(containers.mapping(volume).get("name"))] = files.maps.get(str(config.get("name")), {})
    texts: dict[str, str] = {}
    mounts = containers.mapping(container).get("volumeMounts")
    for mount in map(containers.mapping, mounts if isinstance(mounts, list) else ()):
        held, path = maps.get(str(mount.get("name")), {}), str(mount.get("mountPath", "")).rstrip("/")
        key = str(mount.get("subPath"))
        texts |= {path: held[key]} if key in held else {f"{path}/{name}": text for name, text in held.items()}
    return files.with_texts(texts)


def _within(node: Any, where: str, files: Files, volumes: Any = None) -> Iterator[Command]:
    if isinstance(node, dict):
        volumes = node.get("volumes", volumes)
        if "kind" in node and isinstance(node.get("metadata"), dict):
            where = named(node)
        if where and ({"command", "args"} & node.keys()):  # such as mainContainer of Dynamo
            yield from of_container(node, where, _mounted(node, volumes, files))
        for key, value in node.items():
            if key in ("containers", "initContainers") and isinstance(value, list):
                for container in value:
                    yield from of_container(container, where, _mounted(container, volumes, files))
            else:
                yield from _within(value, where, files, volumes)
    elif isinstance(node, list):
        for part in node:
            yield from _within(part, where, files, volumes)


FORM = DocumentForm("a Kubernetes manifest", matches, commands, RENDERED)
