"""Kustomize: a kustomization, its resources and patches that stand beside it, and files of JSON patches.

Patches are not applied: each is judged for itself, and so is what it patches. That both together were not
judged is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from specops.launch.command_files import containers, flags_file
from specops.launch.command_files.form import Document, DocumentForm
from specops.serving import Command, Files, Unknown

BUILD = "kubectl kustomize {path} > rendered.yaml  # then lint that file"
NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
OPERATIONS = "operations"
"""Where a list of JSON patches stands, made a document."""


KEYS = (
    "resources", "bases", "components", "patches", "patchesStrategicMerge", "patchesJson6902", "images",
    "namespace", "namePrefix", "nameSuffix", "commonLabels", "labels", "commonAnnotations", "replicas",
    "configMapGenerator", "secretGenerator", "generatorOptions", "replacements", "configurations", "crds",
    "vars", "helmCharts",
)  # fmt: skip
"""Keys of a kustomization, which need not say what it is."""


def matches(document: Document) -> bool:
    if _is_patch(document.get(OPERATIONS)):
        return True
    unnamed = "kind" not in document and isinstance(document.get("resources"), list)
    unnamed = unnamed and set(document) <= set(KEYS)
    return unnamed or "kustomize.config.k8s.io" in str(document.get("apiVersion", ""))


def commands(document: Document, where: str, files: Files) -> Iterator[Command]:
    from specops.launch.command_files import forms

    yield from _patched(document.get(OPERATIONS), where, files)
    patches = [containers.mapping(patch) for patch in containers.items(document.get("patches"))]
    texts = [(str(patch["patch"]), where) for patch in patches if "patch" in patch]
    merged = [str(text) for text in containers.items(document.get("patchesStrategicMerge"))]
    texts += [(text, where) for text in merged if "\n" in text]
    names = [str(patch["path"]) for patch in patches if "path" in patch]
    names += [name for name in merged if "\n" not in name]
    unread = _unread(bool(texts or names))
    for name in [*containers.items(document.get("resources")), *containers.items(document.get("bases"))]:
        resource = _resource(str(name), files)
        if resource is None:
            reason = "its command was not read: it is not here"
            unread.append(Unknown(str(name), reason, BUILD.format(path=".")))
        else:
            texts.append(resource)
    for name in names:
        text = files.text(name)
        if text is not None:
            texts.append((text, name))
        else:
            unread.append(Unknown(name, "the patch was not read: it is not here", BUILD.format(path=".")))
    for text, place in texts:
        for command in forms.held_commands("patch.yaml", text, place, files):
            yield replace(command, unread=(*command.unread, *unread))


def _resource(name: str, files: Files) -> tuple[str, str] | None:
    """Return the text of a resource beside the kustomization, and its name. A folder has one of its own."""
    for candidate in (name, *(f"{name}/{base}" for base in NAMES)):
        text = files.text(candidate)
        if text is not None:
            return text, PurePosixPath(candidate).as_posix()
    return None


def _patched(operations: Any, where: str, files: Files) -> Iterator[Command]:
    """Yield the flags that a JSON patch writes into a container's words."""
    if not _is_patch(operations):
        return
    words: list[str] = []
    for operation in operations:
        path, value = str(operation.get("path", "")), operation.get("value")
        if "/args" in path or "/command" in path:
            words += [str(word) for word in value] if isinstance(value, list) else [str(value)]
    settings = {word.removeprefix("--").partition("=")[0]: "" for word in words if word.startswith("--")}
    engine = flags_file.engine_of(settings) if settings else None
    if engine is not None:
        yield Command(where, engine, tuple(words), files=files, unread=tuple(_unread(True)))


def _is_patch(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(part, dict) and "op" in part for part in value)
        and bool(value)
    )


def _unread(patches: bool) -> list[Unknown]:
    reason = "patches and what they patch were judged apart"
    return [Unknown("patches", reason, BUILD.format(path="."))] if patches else []


FORM = DocumentForm("a kustomization", matches, commands, BUILD)
