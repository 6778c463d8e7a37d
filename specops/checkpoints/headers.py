"""What safetensors headers tell: the tensors of a checkpoint, without reading any."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from specops.checkpoints.source import Checkpoint, offsets_of, read_json
from specops.errors import ModelError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


WIDTHS = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"), 1),
}
"""Bytes of one number. Others, such as 4-bit ones, are not checked."""


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]
    size: int
    """Bytes."""

    file: str = ""
    offsets: tuple[int, int] = (0, 0)
    """Where it lies in `file`, behind the header."""


@dataclass(frozen=True)
class Weights:
    size: int
    """Bytes of all tensors."""

    tensors: dict[str, Tensor]
    """Empty where the index of a sharded checkpoint is here and its shards are not."""

    @property
    def dtypes(self) -> dict[str, int]:
        """Bytes of each dtype, the largest first."""
        sizes: dict[str, int] = {}
        for tensor in self.tensors.values():
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.size
        return dict(sorted(sizes.items(), key=lambda item: -item[1]))

    def ends_with(self, name: str) -> Tensor | None:
        """The tensor of that name under whatever prefix; the first by name where there are several."""
        for full in sorted(self.tensors):
            if full == name or full.endswith("." + name):
                return self.tensors[full]
        return None


def weights_of(checkpoint: Checkpoint) -> Weights | None:
    """Of a checkpoint, sharded or not; None where it has none in safetensors. ModelError for damage."""
    names = checkpoint.names()
    if SINGLE in names:
        return _weights(checkpoint, [SINGLE], f"{SINGLE} of {checkpoint.name}")
    index = read_json(checkpoint, INDEX)
    if index is not None:
        return _sharded(checkpoint, index, set(names))
    loose = [name for name in names if name.endswith(".safetensors")]
    if loose:  # such as a head's, under a name of its own
        return _weights(checkpoint, loose, f"the weights of {checkpoint.name}")
    return None


def _sharded(checkpoint: Checkpoint, index: dict[str, Any], names: set[str]) -> Weights:
    """From all shards, or from the index alone where none of them is here (a download of the small files)."""
    what = f"{INDEX} of {checkpoint.name}"
    try:
        shards = sorted(set(index["weight_map"].values()))
        here = sorted(names.intersection(shards))
        if len(here) == len(shards):
            return _weights(checkpoint, shards, what)
        if not here:
            return Weights(int(index["metadata"]["total_size"]), {})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(what, error) from error
    missing = next(shard for shard in shards if shard not in names)
    raise ModelError(
        f"could not use the weights of {checkpoint.name}: {len(here)} of {len(shards)} shards are here, "
        f"{missing} is missing",
        hint="the download is not complete: download the model again",
    )


def _weights(checkpoint: Checkpoint, files: list[str], what: str) -> Weights:
    tensors = {}
    try:
        for file in files:
            for name, described in checkpoint.header(file).items():
                if name != "__metadata__":
                    tensors[name] = _tensor(file, name, described)
        return Weights(sum(tensor.size for tensor in tensors.values()), tensors)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(what, error) from error


def _tensor(file: str, name: str, described: dict[str, Any]) -> Tensor:
    begin, end = offsets_of(described)
    dtype, shape = str(described["dtype"]), tuple(map(int, described["shape"]))
    width = WIDTHS.get(dtype)
    if width is not None and end - begin != math.prod(shape) * width:
        raise ValueError(f"{name} of shape {list(shape)} and type {dtype} cannot have {end - begin:,} bytes")
    return Tensor(dtype, shape, end - begin, file, (begin, end))


def _damaged(what: str, error: Exception) -> ModelError:
    return ModelError(
        f"could not read {what}: {type(error).__name__} {error}", hint="copy or download the weights again"
    )
