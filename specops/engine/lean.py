"""A lean forward pass for the Llama family on a CPU: the same arithmetic in a sixth of the operators.

What a step of a small model costs on a CPU is the number of operators, and how many bytes of weights it
reads. So at loading time q, k and v become one matrix, gate and up another; the rows of q and k are
reordered so that rotary embedding turns adjacent pairs; the matrices are kept in the form that reads
fastest (linear.py); and what lies between two of them is one compiled call (compiled.py).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specops.engine import compiled
from specops.engine.attention import Layout, attend_rotated
from specops.engine.linear import Linear
from specops.engine.model import Shape

FAMILIES = {"LlamaForCausalLM", "Qwen2ForCausalLM", "MistralForCausalLM"}
STATIC_ROPE = {"default", "linear", "llama3"}  # frequencies that do not change with the length


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
    before_attention: Norm | None
    qkv: Linear
    out: Linear
    before_mlp: Norm
    gate_up: Linear
    down: Linear

    def __call__(
        self, x: Tensor, due: Due | None, rope: Tensor, layout: Layout, index: int, shape: Shape
    ) -> Due:
        """x: [n, hidden], which is overwritten; without a norm before the attention nothing may be due."""
        h = x if self.before_attention is None else self.before_attention(x, due)
        qkv = self.qkv.product(h).view(x.size(0), -1, shape.head_dim)
        seen = attend_rotated(layout, index, qkv, self.qkv.scale, rope)
        h = self.before_mlp(x, (self.out.product(seen), self.out.scale))
        h = compiled.gate(self.gate_up.product(h), self.gate_up.scale)
        return self.down.product(h), self.down.scale


class LeanLlama:
    def __init__(self, source: Any) -> None:
        config, body = source.config, source.model
        self.shape = Shape(
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            vocab=source.lm_head.weight.shape[0],
            max_positions=config.max_position_embeddings,
            dtype=source.dtype,
        )
        self.width = config.hidden_size
        self._embedding = body.embed_tokens.weight
        eps = config.rms_norm_eps
        self._layers = [
            lean_layer(
                layer.self_attn,
                layer.mlp,
                self.shape,
                Norm(layer.input_layernorm.weight, eps),
                Norm(layer.post_attention_layernorm.weight, eps),
            )
            for layer in body.layers
        ]
        self._adapter: Linear | None = None
        self._norm = Norm(body.norm.weight, eps)
        self.output = source.lm_head.weight
        self._logits = Linear(self.output)
        rotary = body.rotary_emb
        self._rope = rotations(rotary.inv_freq, config.max_position_embeddings, rotary.attention_scaling)

    @staticmethod
    def of(source: Any) -> LeanLlama | None:
        """None where this forward would not be the model's own."""
        config = source.config
        if type(source).__name__ not in FAMILIES or source.dtype != torch.float32:
            return None
        if config.hidden_act != "silu" or source.model.rotary_emb.rope_type not in STATIC_ROPE:
            return None
        return LeanLlama(source)

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


def rotations(frequencies: Tensor, positions: int, scaling: float = 1.0) -> Tensor:
    """[positions, 1, dim / 2] complex: what a position turns each pair of a query or key by."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies.float())
    return torch.polar(torch.full_like(angles, scaling), angles)[:, None]


def lean_layer(
    attention: Any, mlp: Any, shape: Shape, before_attention: Norm | None, before_mlp: Norm
) -> Layer:
    """From transformers' modules."""
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    weights, biases = [p.weight for p in projections], [p.bias for p in projections]
    for index, count in ((0, shape.heads), (1, shape.kv_heads)):
        weights[index] = adjacent(weights[index], count, shape.head_dim)
        if biases[index] is not None:
            biases[index] = adjacent(biases[index][:, None], count, shape.head_dim)[:, 0]
    gate_up_bias = None if mlp.gate_proj.bias is None else torch.cat((mlp.gate_proj.bias, mlp.up_proj.bias))
    return Layer(
        before_attention,
        qkv=Linear(torch.cat(weights), None if biases[0] is None else torch.cat(biases)),
        out=Linear(attention.o_proj.weight, attention.o_proj.bias),
        before_mlp=before_mlp,
        gate_up=Linear(torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)), gate_up_bias),
        down=Linear(mlp.down_proj.weight, mlp.down_proj.bias),
    )


def adjacent(weight: Tensor, heads: int, dim: int) -> Tensor:
    """Reorder rows so that the pairs (i, i + dim/2) that rotary embedding turns lie side by side.

    q and k are reordered alike, so their products, which is all that attention sees, stay the same.
    """
    return weight.view(heads, 2, dim // 2, -1).transpose(1, 2).reshape(heads * dim, -1)
