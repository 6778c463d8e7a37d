"""A lean forward pass for the Llama family on a CPU: the same arithmetic in a third of the operators.

What a step of a small model costs on a CPU is the number of operators, and how well each linear layer
reads its weights. So at loading time q, k and v become one matrix, gate and up another; each norm's weight
is folded into the matrix behind it; and the rows of q and k are reordered so that rotary embedding is one
complex product in place. Each matrix is kept in two forms, of which the number of tokens chooses one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specops.engine.attention import Layout, attend
from specops.engine.model import Shape

FAMILIES = {"LlamaForCausalLM", "Qwen2ForCausalLM", "MistralForCausalLM"}
STATIC_ROPE = {"default", "linear", "llama3"}  # frequencies that do not change with the length


class Linear:
    """y = x W^T + b, and residual + y where one is given.

    A few tokens read the weights once and little else happens, so their form is what costs least to read: a
    transposed copy, or, where the result may be `rounded`, int8. More tokens go through oneDNN's packed
    form: its call costs 9 us more, and then the time hardly grows up to six tokens.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, rounded: bool = False) -> None:
        self._bias = bias
        self._rounded = rounded
        self._packed_from = sys.maxsize  # tokens
        if rounded:
            self._scales = (weight.abs().amax(1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
            self._int8 = (weight / self._scales[:, None]).round().to(torch.int8)  # [out, in]
            self._scales = self._scales.bfloat16()
        else:
            self._transposed = weight.t().contiguous()  # [in, out]
        if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            self._packed_from = 13 if rounded else 3  # measured with AVX-512
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 8)
            self._plain = torch.ops.mkldnn._linear_pointwise.default
            self._adding = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        y: Tensor
        if x.size(0) >= self._packed_from:
            if residual is not None:
                y = self._adding(x, residual, self._packed, self._bias, "add")
            else:
                y = self._plain(x, self._packed, self._bias, "none", [], "")
            return y
        if self._rounded:
            y = torch._weight_int8pack_mm(x.bfloat16(), self._int8, self._scales)
            y = y.float() if residual is None else residual + y
        elif residual is None:
            if self._bias is not None:
                return torch.addmm(self._bias, x, self._transposed)
            return torch.mm(x, self._transposed)
        else:
            y = torch.addmm(residual, x, self._transposed)
        return y if self._bias is None else y.add_(self._bias)


class Norm:
    """x / sqrt(|x|^2 + hidden * eps): RMSNorm but for sqrt(hidden), which is folded with its weight."""

    def __init__(self, hidden: int, eps: float) -> None:
        self._root = hidden**0.5
        self._floor = torch.tensor((hidden * eps) ** 0.5)

    def folded(self, weight: Tensor) -> Tensor:
        """What the matrix behind is multiplied with: the norm's weight, [hidden], and sqrt(hidden)."""
        scaled: Tensor = weight * self._root
        return scaled

    def __call__(self, x: Tensor) -> Tensor:
        return x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), self._floor)


@dataclass(frozen=True)
class Layer:
    """A decoder layer. `read`, [n, hidden], is what its matrices see, mostly `x` after a norm."""

    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear

    def attention(
        self, read: Tensor, x: Tensor, rope: Tensor, layout: Layout, index: int, shape: Shape
    ) -> Tensor:
        n, heads, turned = read.size(0), shape.heads, shape.heads + shape.kv_heads
        qkv = self.qkv(read).view(n, -1, shape.head_dim)
        pairs = torch.view_as_complex(qkv.view(n, -1, shape.head_dim // 2, 2)[:, :turned])
        pairs.mul_(rope)
        return self.out(attend(layout, index, qkv[:, :heads], qkv[:, heads:]), x)

    def mlp(self, read: Tensor, x: Tensor) -> Tensor:
        gate, up = self.gate_up(read).chunk(2, -1)
        return self.down(F.silu(gate).mul_(up), x)


class LeanLlama:
    def __init__(self, source: Any, *, rounded: bool) -> None:
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
        self._norm = Norm(self.width, config.rms_norm_eps)
        self._embedding = body.embed_tokens.weight
        folded = self._norm.folded
        self._layers = [
            lean_layer(
                layer.self_attn,
                layer.mlp,
                self.shape,
                folded(layer.input_layernorm.weight),
                folded(layer.post_attention_layernorm.weight),
                rounded=rounded,
            )
            for layer in body.layers
        ]
        self._last_norm = folded(body.norm.weight)
        self.output = source.lm_head.weight
        self._logits = Linear(self.output, rounded=rounded)
        rotary = body.rotary_emb
        self._rope = rotations(rotary.inv_freq, config.max_position_embeddings, rotary.attention_scaling)

    @staticmethod
    def of(source: Any, *, rounded: bool = False) -> LeanLlama | None:
        """None where this forward would not be the model's own, but for rounding where that is allowed."""
        config = source.config
        if type(source).__name__ not in FAMILIES or source.dtype != torch.float32:
            return None
        if config.hidden_act != "silu" or source.model.rotary_emb.rope_type not in STATIC_ROPE:
            return None
        return LeanLlama(source, rounded=rounded)

    def forward(self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None) -> Tensor:
        x = self._body(tokens, layout)
        if wanted is not None:
            x = x[wanted]
        return self._logits(self._norm(x).mul_(self._last_norm))

    def with_features(
        self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        features = self._norm(self._body(tokens, layout)).mul_(self._last_norm)
        return self._logits(features if wanted is None else features[wanted]), features

    def _body(self, tokens: Tensor, layout: Layout) -> Tensor:
        rope = self._rope[layout.positions]  # [n, 1, dim / 2]
        x = F.embedding(tokens, self._embedding)  # [n, hidden]
        for index, layer in enumerate(self._layers):
            x = layer.attention(self._norm(x), x, rope, layout, index, self.shape)
            x = layer.mlp(self._norm(x), x)
        return x


def rotations(frequencies: Tensor, positions: int, scaling: float = 1.0) -> Tensor:
    """[positions, 1, dim / 2] complex: what a position turns each pair of a query or key by."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies.float())
    return torch.polar(torch.full_like(angles, scaling), angles)[:, None]


def lean_layer(
    attention: Any,
    mlp: Any,
    shape: Shape,
    attention_norm: Tensor | None,
    mlp_norm: Tensor,
    *,
    rounded: bool,
) -> Layer:
    """From transformers' modules; the norms' weights, [hidden], are folded into the matrices behind them."""
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    weights = [p.weight if attention_norm is None else p.weight * attention_norm for p in projections]
    biases = [p.bias for p in projections]
    for index, count in ((0, shape.heads), (1, shape.kv_heads)):
        weights[index] = _adjacent(weights[index], count, shape.head_dim)
        if biases[index] is not None:
            biases[index] = _adjacent(biases[index][:, None], count, shape.head_dim)[:, 0]
    gate_up = torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)) * mlp_norm
    gate_up_bias = None if mlp.gate_proj.bias is None else torch.cat((mlp.gate_proj.bias, mlp.up_proj.bias))
    return Layer(
        qkv=Linear(torch.cat(weights), None if biases[0] is None else torch.cat(biases), rounded=rounded),
        out=Linear(attention.o_proj.weight, attention.o_proj.bias, rounded=rounded),
        gate_up=Linear(gate_up, gate_up_bias, rounded=rounded),
        down=Linear(mlp.down_proj.weight, mlp.down_proj.bias, rounded=rounded),
    )


def _adjacent(weight: Tensor, heads: int, dim: int) -> Tensor:
    """Reorder rows so that the pairs (i, i + dim/2) that rotary embedding turns lie side by side.

    q and k are reordered alike, so their products, which is all that attention sees, stay the same.
    """
    return weight.view(heads, 2, dim // 2, -1).transpose(1, 2).reshape(heads * dim, -1)
