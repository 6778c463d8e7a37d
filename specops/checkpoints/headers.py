"""What safetensors headers tell: the tensors of a checkpoint, without reading any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specops.checkpoints.source import Checkpoint, read_json
from specops.errors import ModelError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]
    size: int
    """Bytes."""


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
        return _weights([checkpoint.header(SINGLE)], f"{SINGLE} of {checkpoint.name}")
    index = read_json(checkpoint, INDEX)
    if index is not None:
        return _sharded(checkpoint, index, set(names))
    loose = [name for name in names if name.endswith(".safetensors")]
    if loose:  # such as a head's, under a name of its own
        return _weights([checkpoint.header(name) for name in loose], f"the weights of {checkpoint.name}")
    return None


def _sharded(checkpoint: Checkpoint, index: dict[str, Any], names: set[str]) -> Weights:
    what = f"{INDEX} of {checkpoint.name}"
    try:
        shards = sorted(set(index["weight_map"].values()))
        if names.issuperset(shards):
            return _weights([checkpoint.header(shard) for shard in shards], what)
        return Weights(int(index["metadata"]["total_size"]), {})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(what, error) from error


def _weights(headers: list[dict[str, Any]], what: str) -> Weights:
    tensors = {}
    try:
        for header in headers:
            for name, told in header.items():
                if name == "__metadata__":
                    continue
                begin, end = told["data_offsets"]
                tensors[name] = Tensor(str(told["dtype"]), tuple(map(int, told["shape"])), end - begin)
        return Weights(sum(tensor.size for tensor in tensors.values()), tensors)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(what, error) from error


def _damaged(what: str, error: Exception) -> ModelError:
    return ModelError(
        f"could not read {what}: {type(error).__name__} {error}", hint="copy or download the weights again"
    )
