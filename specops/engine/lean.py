"""A lean forward pass for the Llama family on a CPU: the same arithmetic in a third of the operators.

What a step of a small model costs on a CPU is the number of operators, and how well each linear layer
reads its weights. So at loading time q, k and v become one matrix, gate and up another; each norm's weight
is folded into the matrix behind it; and the rows of q and k are reordered so that rotary embedding is one
complex product in place. Each matrix is kept in two forms, of which the number of tokens chooses one.
"""

from __future__ import annotations

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

    One token is a matrix-vector product, which a transposed copy serves best. More go through oneDNN's
    packed form: its call costs 9 us more, and then the time hardly grows up to six tokens.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.bias = bias
        self.transposed = weight.t().contiguous()  # [in, out]
        self.packed: Tensor | None = None
        self.packed_from = 3  # tokens; measured with AVX-512
        if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 8)
            self._plain = torch.ops.mkldnn._linear_pointwise.default
            self._adding = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        y: Tensor
        if self.packed is not None and x.size(0) >= self.packed_from:
            if residual is not None:
                y = self._adding(x, residual, self.packed, self.bias, "add")
            else:
                y = self._plain(x, self.packed, self.bias, "none", [], "")
            return y
        if residual is None:
            return (
                torch.mm(x, self.transposed)
                if self.bias is None
                else torch.addmm(self.bias, x, self.transposed)
            )
        y = torch.addmm(residual, x, self.transposed)
        return y if self.bias is None else y.add_(self.bias)


@dataclass(frozen=True)
class Layer:
    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear


class LeanLlama:
    def __init__(self, source: Any) -> None:
        config, body = source.config, source.model
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.shape = Shape(
            layers=config.num_hidden_layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=dim,
            vocab=source.lm_head.weight.shape[0],
            max_positions=config.max_position_embeddings,
            dtype=source.dtype,
        )
        self._width = config.hidden_size**0.5
        self._floor = torch.tensor((config.hidden_size * config.rms_norm_eps) ** 0.5)
        self._embedding = body.embed_tokens.weight
        self._layers = [_layer(layer, heads, kv_heads, dim, self._width) for layer in body.layers]
        self._head = Linear(source.lm_head.weight * (body.norm.weight * self._width))
        rotary = body.rotary_emb
        positions = torch.arange(config.max_position_embeddings, dtype=torch.float32)
        angles = torch.outer(positions, rotary.inv_freq.float())  # [positions, dim / 2]
        scale = torch.full_like(angles, rotary.attention_scaling)
        self._rope = torch.polar(scale, angles)[:, None]  # [positions, 1, dim / 2] complex

    @staticmethod
    def of(source: Any) -> LeanLlama | None:
        """None where this forward would not be the model's own."""
        config = source.config
        if type(source).__name__ not in FAMILIES or source.dtype != torch.float32:
            return None
        if config.hidden_act != "silu" or source.model.rotary_emb.rope_type not in STATIC_ROPE:
            return None
        return LeanLlama(source)

    def _norm(self, x: Tensor) -> Tensor:
        """x / sqrt(|x|^2 + hidden * eps): RMSNorm but for a constant, which is folded with its weight."""
        return x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), self._floor)

    def forward(self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None) -> Tensor:
        shape, norm = self.shape, self._norm
        heads, turned = shape.heads, shape.heads + shape.kv_heads
        n = tokens.size(0)
        rope = self._rope[layout.positions]  # [n, 1, dim / 2]
        x = F.embedding(tokens, self._embedding)  # [n, hidden]
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(norm(x)).view(n, -1, shape.head_dim)
            pairs = torch.view_as_complex(qkv.view(n, -1, shape.head_dim // 2, 2)[:, :turned])
            pairs.mul_(rope)
            seen = attend(layout, index, qkv[:, :heads], qkv[:, heads:])
            x = layer.out(seen, x)
            gate, up = layer.gate_up(norm(x)).chunk(2, -1)
            x = layer.down(F.silu(gate).mul_(up), x)
        if wanted is not None:
            x = x[wanted]
        return self._head(norm(x))


def _layer(source: Any, heads: int, kv_heads: int, dim: int, width: float) -> Layer:
    attention, mlp = source.self_attn, source.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    weights = [p.weight * (source.input_layernorm.weight * width) for p in projections]
    biases = [p.bias for p in projections]
    for index, count in ((0, heads), (1, kv_heads)):
        weights[index] = _adjacent(weights[index], count, dim)
        if biases[index] is not None:
            biases[index] = _adjacent(biases[index][:, None], count, dim)[:, 0]
    gate_up = torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight))
    gate_up = gate_up * (source.post_attention_layernorm.weight * width)
    gate_up_bias = None if mlp.gate_proj.bias is None else torch.cat((mlp.gate_proj.bias, mlp.up_proj.bias))
    return Layer(
        qkv=Linear(torch.cat(weights), None if biases[0] is None else torch.cat(biases)),
        out=Linear(attention.o_proj.weight, attention.o_proj.bias),
        gate_up=Linear(gate_up, gate_up_bias),
        down=Linear(mlp.down_proj.weight, mlp.down_proj.bias),
    )


def _adjacent(weight: Tensor, heads: int, dim: int) -> Tensor:
    """Reorder rows so that the pairs (i, i + dim/2) that rotary embedding turns lie side by side.

    q and k are reordered alike, so their products, which is all that attention sees, stay the same.
    """
    return weight.view(heads, 2, dim // 2, -1).transpose(1, 2).reshape(heads * dim, -1)
