"""Where the tensors of a checkpoint lie, so that they can be read one by one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from specops.checkpoints.source import Folder
from specops.errors import ModelError

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
PIECE = 1 << 20
"""Bytes that are read, and paid for, at once."""


@dataclass(frozen=True)
class Place:
    """One tensor, [shape], row-major, `offset` bytes into a safetensors file."""

    path: Path
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * self.dtype.itemsize


def places(folder: Path) -> dict[str, Place]:
    """Every tensor of a folder's safetensors files, in one or in shards. Raises ModelError."""
    source, found = Folder(folder), {}
    for name in source.names():
        if not name.endswith(".safetensors"):
            continue
        path = folder / name
        begin = _data(path)
        for tensor, told in source.header(name).items():
            if tensor == "__metadata__":
                continue
            try:
                dtype, shape = _DTYPES[told["dtype"]], tuple(map(int, told["shape"]))
                place = Place(path, begin + int(told["data_offsets"][0]), dtype, shape)
                complete = int(told["data_offsets"][1]) - int(told["data_offsets"][0]) == place.size
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise ModelError(
                    f"could not read {tensor} of {path}: its header tells {told}",
                    hint="weights are read from disk in float32, float16 or bfloat16 only",
                ) from error
            if not complete or place.offset + place.size > path.stat().st_size:
                raise ModelError(
                    f"could not read {tensor} of {path}: the file is damaged",
                    hint="copy or download the weights again",
                )
            found[tensor] = place
    if not found:
        raise ModelError(
            f"could not read weights from {folder}: it has no safetensors file",
            hint="save the model with transformers, which writes safetensors",
        )
    return found


def _data(path: Path) -> int:
    """Where the tensors begin: behind 8 bytes and the header, whose length they tell."""
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def read(place: Place, into: Tensor | None = None, pay: Callable[[int], None] | None = None) -> Tensor:
    """The tensor as it is stored.

    into: at least as many bytes, uint8, which it is then a view of.
    pay: told of each piece's bytes before they are read; it may wait.
    Raises ModelError.
    """
    raw = torch.empty(place.size, dtype=torch.uint8) if into is None else into[: place.size]
    buffer, done = raw.numpy().data, 0
    try:
        with place.path.open("rb", buffering=0) as file:
            while done < place.size:
                piece = buffer[done : done + PIECE]
                if pay is not None:
                    pay(len(piece))
                count = os.preadv(file.fileno(), [piece], place.offset + done)
                if count == 0:
                    raise OSError("the file has become shorter")
                done += count
    except OSError as error:
        raise ModelError(f"could not read weights from {place.path}: {error}") from error
    return raw.view(place.dtype).view(place.shape)
