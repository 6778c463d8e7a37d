"""The interface of a model: its shape, its forward pass over the engine's cache, and its features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from specops.engine.attention import CPU, KVCache, Layout
from specops.engine.rng import all_finite
from specops.errors import ModelError
from specops.hints import listing


@dataclass(frozen=True)
class Shape:
    """The shape of a model, or of the part of it that this process holds, for the cache and the attention."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_positions: int
    dtype: torch.dtype
    device: torch.device = CPU
    kernel: bool = False
    """Attention by the Triton kernel instead of PyTorch's."""

    @property
    def tile(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    def cache(self, rows: int, capacity: int) -> KVCache:
        """A KV cache for `rows` sequences of up to `capacity` slots."""
        form = self.layers, rows, capacity, self.kv_heads, self.head_dim
        return KVCache(*form, self.dtype, self.device, kernel=self.kernel)


def refuse_not_finite(folder: Path, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Raises ModelError for a weight of `folder` with a NaN or an infinity."""
    for name, weight in weights:
        if weight.is_floating_point() and not all_finite(weight):
            raise ModelError(
                f"could not load {folder}: the weight {name} has a NaN or an infinity; the file is damaged, "
                "or the training failed",
                hint=listing(folder),
            )


class Model(Protocol):
    """A decoder that runs over the engine's cache."""

    @property
    def shape(self) -> Shape: ...

    def forward(self, tokens: Tensor, layout: Layout, indices: Tensor | None = None) -> Tensor:
        """[n] packed token ids -> [n, vocab] float32 logits, or only the `indices` rows of them, [w, vocab].

        The keys and values of all n tokens are written to the layout's cache.
        """


class FeatureModel(Model, Protocol):
    """A model that also returns its features: what its output layer reads, one row of `width` for each
    token."""

    @property
    def width(self) -> int: ...

    @property
    def output(self) -> Tensor:
        """The weight of the output layer, [vocab, width]."""

    def with_features(
        self, tokens: Tensor, layout: Layout, indices: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The logits of `forward`, and the features of all n tokens, [n, width]."""


@runtime_checkable
class LayeredModel(FeatureModel, Protocol):
    """A model whose layers the engine runs itself, so that it can stop after any of them."""

    def first(self, layers: int, adapter: Tensor | None = None) -> Model:
        """The same weights without the layers from `layers` on, and with the norm and output layer.

        adapter: [width, width]; the norm then reads x + adapter x.
        """
