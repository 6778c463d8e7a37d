"""Where a checkpoint's files lie: a local folder, or a repository of the hub.

Of a repository only what is asked for is downloaded: small files whole, into the hub's usual cache, and of
weights the headers alone, by range requests. The token of a gated repository is huggingface_hub's to find
(HF_TOKEN or a login); it is never seen here.
"""

from __future__ import annotations

import json
import re
from os import SEEK_END
from pathlib import Path
from typing import Any, Protocol

from specops.errors import ModelError, UsageError

LONGEST_HEADER = 100_000_000
"""Bytes; safetensors itself refuses longer ones."""

LFS_POINTER = b"version "
"""The first 8 bytes of a file that Git LFS left in place of its content."""

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class Checkpoint(Protocol):
    @property
    def name(self) -> str:
        """As it was given."""

    @property
    def revision(self) -> str | None:
        """The commit of a repository; a folder has none."""

    def file(self, name: str) -> Path | None:
        """A small file, whole and on this disk; None where the checkpoint has none of that name."""

    def names(self) -> list[str]:
        """Of all its files, sorted."""

    def header(self, name: str) -> dict[str, Any]:
        """The header of a safetensors file: {tensor: {dtype, shape, data_offsets}}."""

    def tensor(self, name: str, offsets: tuple[int, int]) -> bytes | None:
        """One small tensor's bytes, by its data_offsets; None where only headers are read (the hub)."""


class Folder:
    revision = None

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path = path
        self.name = name or str(path)

    def file(self, name: str) -> Path | None:
        path = self.path / name
        return path if path.is_file() else None

    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir() if path.is_file())

    def header(self, name: str) -> dict[str, Any]:
        return _read_header(self.path / name)

    def tensor(self, name: str, offsets: tuple[int, int]) -> bytes | None:
        with (self.path / name).open("rb") as file:
            file.seek(8 + int.from_bytes(file.read(8), "little") + offsets[0])
            return file.read(offsets[1] - offsets[0])


def find(name: str) -> Checkpoint:
    """The checkpoint that `name` means: a folder where there is one, else a hub id.

    Raises UsageError where it can be neither, ModelError where the hub does not have or give it.
    """
    path = Path(name)
    if path.is_dir():
        return Folder(path)
    if path.exists():
        raise UsageError(
            f"could not read a model from {name}: it is a file", hint="give the folder that it lies in"
        )
    if not HUB_ID.fullmatch(name) or name.startswith("."):
        raise UsageError(
            f"there is no folder {name}",
            hint="give a folder with a config.json, or a hub id such as ORG/NAME",
        )
    from specops.checkpoints.hub import repository

    return repository(name)


def read_json(checkpoint: Checkpoint, name: str) -> dict[str, Any] | None:
    """A JSON object of the checkpoint; None where it has no such file. ModelError where it is damaged."""
    path = checkpoint.file(name)
    if path is None:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"could not read {name} of {checkpoint.name}: {error}", hint="copy or download the model again"
        ) from error
    if not isinstance(content, dict):
        raise ModelError(
            f"could not read {name} of {checkpoint.name}: it is no JSON object",
            hint="copy or download the model again",
        )
    return content


def _read_header(path: Path) -> dict[str, Any]:
    """The file begins with the header's length, 8 bytes, little-endian, and the header, a JSON object
    (https://huggingface.co/docs/safetensors)."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            if start == LFS_POINTER:
                raise ValueError("it is a Git LFS pointer, not the weights (git lfs pull downloads them)")
            length = int.from_bytes(start, "little")
            if not 2 <= length <= LONGEST_HEADER:
                raise ValueError(f"its header would be {length} bytes long")
            header = json.loads(file.read(length))
            size = file.seek(0, SEEK_END)
        if not isinstance(header, dict):
            raise ValueError("its header is not a JSON object")
        ends = [end for _, end in map(offsets_of, _tensors(header).values())]
        expected = 8 + length + max(ends, default=0)
        if size < expected:
            raise ValueError(f"the file has {size:,} bytes, its header describes {expected:,}")
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"could not read the header of {path}: {error}", hint="copy or download the weights again"
        ) from error
    return header


def _tensors(header: dict[str, Any]) -> dict[str, Any]:
    return {name: described for name, described in header.items() if name != "__metadata__"}


def offsets_of(described: Any) -> tuple[int, int]:
    """data_offsets of a tensor in a safetensors header. ValueError unless two ascending numbers."""
    found = described.get("data_offsets") if isinstance(described, dict) else None
    match found:
        case [int(begin), int(end)] if 0 <= begin <= end:
            return begin, end
    raise ValueError(f"invalid data_offsets {found!r}: expected two ascending numbers")
