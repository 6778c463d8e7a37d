"""A lean forward pass for the Llama family on a CPU: the same arithmetic in a sixth of the operators.

It is made of a config and named weights alone (family.py): transformers' code for models takes seconds to
import, and none of it would be run.

What a step of a small model costs on a CPU is the number of operators, and how many bytes of weights it
reads. So at loading time q, k and v become one matrix, gate and up another; the rows of q and k are
reordered so that rotary embedding turns adjacent pairs; the matrices are kept in the form that reads
fastest (linear.py); and what lies between two of them is one compiled call (compiled.py).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specops.engine import compiled
from specops.engine.attention import Layout, attend_rotated
from specops.engine.family import Weights, head_dim, rotation
from specops.engine.linear import Linear
from specops.engine.model import Shape

Due = tuple[Tensor, float]
"""y and a factor: factor * y is to be added to the residual stream still. The norm that follows does both."""


class Norm:
    """RMSNorm."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight, self.eps = weight.contiguous(), eps

    def __call__(self, x: Tensor, due: Due | None = None) -> Tensor:
        """Of x, to which what is due is added first, in place."""
        if due is None:
            return compiled.norm(x, self.weight, self.eps)
        return compiled.add_norm(x, *due, self.weight, self.eps)


@dataclass(frozen=True)
class Layer:
    before_attention: Norm
    qkv: Linear
    out: Linear
    before_mlp: Norm
    gate_up: Linear
    down: Linear

    def __call__(
        self, x: Tensor, due: Due | None, rope: Tensor, layout: Layout, index: int, shape: Shape
    ) -> Due:
        """x: [n, hidden], which is overwritten."""
        h = self.before_attention(x, due)
        qkv = self.qkv.product(h).view(x.size(0), -1, shape.head_dim)
        seen = attend_rotated(layout, index, qkv, self.qkv.scale, rope)
        h = self.before_mlp(x, (self.out.product(seen), self.out.scale))
        h = compiled.gate(self.gate_up.product(h), self.gate_up.scale)
        return self.down.product(h), self.down.scale


class LeanLlama:
    def __init__(self, config: Any, weights: Mapping[str, Tensor]) -> None:
        """`weights`: all of family.py's `shapes`, float32."""
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._embedding = weights["model.embed_tokens.weight"]
        self.output = self._embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.shape = Shape(
            layers=config.num_hidden_layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim(config),
            vocab=len(self.output),
            max_positions=config.max_position_embeddings,
            dtype=torch.float32,
        )
        self.width = config.hidden_size
        named = Weights(weights)
        self._layers = [
            _layer(named.below(f"model.layers.{index}."), self.shape, config.rms_norm_eps)
            for index in range(self.shape.layers)
        ]
        self._adapter: Linear | None = None
        self._norm = Norm(weights["model.norm.weight"], config.rms_norm_eps)
        self._logits = Linear(self.output)
        self._rope = rotations(*rotation(config), positions=config.max_position_embeddings)

    def first(self, layers: int, adapter: Tensor | None = None) -> LeanLlama:
        """The same weights without the layers from `layers` on; with an `adapter`, [width, width], the norm
        reads x + adapter x."""
        part = copy.copy(self)
        part.shape = replace(self.shape, layers=layers)
        part._layers = self._layers[:layers]
        part._adapter = None if adapter is None else Linear(adapter)
        return part

    def forward(self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None) -> Tensor:
        return self.with_features(tokens, layout, wanted)[0]

    def with_features(
        self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        x = F.embedding(tokens, self._embedding)  # [n, hidden]
        due: Due | None = None
        for index, layer in enumerate(self._layers):
            due = layer(x, due, self._rope, layout, index, self.shape)
        if self._adapter is not None and due is not None:
            x.add_(due[0], alpha=due[1])
            due = self._adapter.product(x), self._adapter.scale
        features = self._norm(x, due)
        return self._logits(features if wanted is None else features[wanted]), features


def rotations(frequencies: Tensor, scaling: float, positions: int) -> Tensor:
    """[positions, 1, dim / 2] complex: what a position turns each pair of a query or key by."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies.float())
    return torch.polar(torch.full_like(angles, scaling), angles)[:, None]


def _layer(weights: Weights, shape: Shape, eps: float) -> Layer:
    return Layer(
        Norm(weights["input_layernorm.weight"], eps),
        qkv=Linear(*queries_keys_values(weights, shape)),
        out=Linear(*weights.joined("self_attn.o_proj")),
        before_mlp=Norm(weights["post_attention_layernorm.weight"], eps),
        gate_up=Linear(*weights.joined("mlp.gate_proj", "mlp.up_proj")),
        down=Linear(*weights.joined("mlp.down_proj")),
    )


def queries_keys_values(weights: Weights, shape: Shape) -> tuple[Tensor, Tensor | None]:
    """A layer's three projections as one, [queries + keys + values, hidden] and its bias.

    The rows of queries and keys are reordered so that the pairs (i, i + dim/2) that rotary embedding turns
    lie side by side. Both are reordered alike: their products, all that attention sees, stay the same.
    """
    weight, bias = weights.joined("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    turned = shape.heads + shape.kv_heads
    place = torch.arange(turned * shape.head_dim).view(turned, 2, -1).transpose(1, 2).flatten()
    place = torch.cat((place, torch.arange(len(place), len(weight))))
    return weight[place], None if bias is None else bias[place]
