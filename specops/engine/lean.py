"""A lean forward pass for the Llama family on a CPU: the same arithmetic in a third of the operators.

What a step of a small model costs on a CPU is the number of operators, and how many bytes of weights it
reads. So at loading time q, k and v become one matrix, gate and up another; the rows of q and k are
reordered so that rotary embedding is one complex product in place; and the matrices are kept in the form
that reads fastest (linear.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specops.engine.attention import Layout, attend
from specops.engine.linear import Linear
from specops.engine.model import Shape

FAMILIES = {"LlamaForCausalLM", "Qwen2ForCausalLM", "MistralForCausalLM"}
STATIC_ROPE = {"default", "linear", "llama3"}  # frequencies that do not change with the length


class Norm:
    """RMSNorm, x / sqrt(mean(x^2) + eps) * weight. F.rms_norm takes twice as long as these four operators."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        hidden = len(weight)
        self._weight = weight * hidden**0.5
        self._floor = torch.tensor((hidden * eps) ** 0.5)

    def __call__(self, x: Tensor) -> Tensor:
        y = x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), self._floor)
        return y.mul_(self._weight)


@dataclass(frozen=True)
class Layer:
    before_attention: Norm | None
    qkv: Linear
    out: Linear
    before_mlp: Norm
    gate_up: Linear
    down: Linear

    def __call__(self, x: Tensor, rope: Tensor, layout: Layout, index: int, shape: Shape) -> Tensor:
        """x: [n, hidden]"""
        n, heads, turned = x.size(0), shape.heads, shape.heads + shape.kv_heads
        read = x if self.before_attention is None else self.before_attention(x)
        qkv = self.qkv(read).view(n, -1, shape.head_dim)
        pairs = torch.view_as_complex(qkv.view(n, -1, shape.head_dim // 2, 2)[:, :turned])
        pairs.mul_(rope)
        x = self.out(attend(layout, index, qkv[:, :heads], qkv[:, heads:]), x)
        gate, up = self.gate_up(self.before_mlp(x)).chunk(2, -1)
        return self.down(F.silu(gate).mul_(up), x)


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

    def forward(self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None) -> Tensor:
        x = self._body(tokens, layout)
        if wanted is not None:
            x = x[wanted]
        return self._logits(self._norm(x))

    def with_features(
        self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        features = self._norm(self._body(tokens, layout))
        return self._logits(features if wanted is None else features[wanted]), features

    def _body(self, tokens: Tensor, layout: Layout) -> Tensor:
        rope = self._rope[layout.positions]  # [n, 1, dim / 2]
        x = F.embedding(tokens, self._embedding)  # [n, hidden]
        for index, layer in enumerate(self._layers):
            x = layer(x, rope, layout, index, self.shape)
        return x


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
        weights[index] = _adjacent(weights[index], count, shape.head_dim)
        if biases[index] is not None:
            biases[index] = _adjacent(biases[index][:, None], count, shape.head_dim)[:, 0]
    gate_up_bias = None if mlp.gate_proj.bias is None else torch.cat((mlp.gate_proj.bias, mlp.up_proj.bias))
    return Layer(
        before_attention,
        qkv=Linear(torch.cat(weights), None if biases[0] is None else torch.cat(biases)),
        out=Linear(attention.o_proj.weight, attention.o_proj.bias),
        before_mlp=before_mlp,
        gate_up=Linear(torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)), gate_up_bias),
        down=Linear(mlp.down_proj.weight, mlp.down_proj.bias),
    )


def _adjacent(weight: Tensor, heads: int, dim: int) -> Tensor:
    """Reorder rows so that the pairs (i, i + dim/2) that rotary embedding turns lie side by side.

    q and k are reordered alike, so their products, which is all that attention sees, stay the same.
    """
    return weight.view(heads, 2, dim // 2, -1).transpose(1, 2).reshape(heads * dim, -1)
