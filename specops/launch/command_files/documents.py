"""YAML and JSON: which reader each document is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from specops.errors import UsageError
from specops.launch.command_files import compose, flags_file, helm, kserve, kubernetes, ray_serve
from specops.serving import Command

Document = dict[str, Any]
READERS: tuple[tuple[Callable[[Document], bool], Callable[..., Iterator[Command]]], ...] = (
    (compose.is_one, compose.commands),
    (kserve.is_one, kserve.commands),
    (ray_serve.is_one, ray_serve.commands),
    (kubernetes.is_one, kubernetes.commands),
    (helm.is_one, helm.commands),
    (flags_file.is_one, flags_file.commands),
)
"""The first that takes a document reads it: `commands(document, name, files)`, `name` of the file, `files`
the texts that ConfigMaps and here documents beside it hold, by name."""


def commands(text: str, path: Path) -> Iterator[Command]:
    """UsageError for what is no YAML, and for a rollout file."""
    documents = _loaded(text, str(path))
    for document in documents:
        if {"rollout", "pools"} <= document.keys():
            raise UsageError(
                f"{path} is a rollout file",
                hint=f"`specops launch render {path}` renders and lints its pools",
            )
    yield from _read(documents, path.name, {})


def of_text(text: str, where: str, files: Mapping[str, str]) -> Iterator[Command]:
    """Of a here document, which may be about something else: then there is none."""
    try:
        documents = _loaded(text, where)
    except UsageError:
        return
    yield from _read([one for one in documents if not flags_file.is_one(one)], where, files)


def _loaded(text: str, where: str) -> list[Document]:
    try:
        documents = [document for document in yaml.safe_load_all(text) if isinstance(document, dict)]
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date
        problem = str(error).splitlines()[0]
        raise UsageError(
            f"could not read {where}: this is no YAML: {problem}",
            hint="a template has to be rendered first, as `helm template` does",
        ) from error
    return documents


def _read(documents: list[Document], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    held = dict(files)
    for document in documents:
        held |= kubernetes.texts_of(document)
    for document in documents:
        reader = next((read for is_one, read in READERS if is_one(document)), None)
        if reader is not None:
            yield from reader(document, where, held)
