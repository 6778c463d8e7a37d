"""The decoder that target and draft are, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB, CONTEXT = 2048, 512


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama decoder with tied embeddings."""

    hidden: int
    layers: int
    inter: int
    heads: int
    kv_heads: int

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


TARGET = Shape(hidden=256, layers=8, inter=688, heads=4, kv_heads=2)
DRAFT = Shape(hidden=256, layers=1, inter=688, heads=4, kv_heads=2)


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        kv = shape.kv_heads * shape.head_dim
        self.shape = shape
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=1e-6)
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(shape.hidden, shape.hidden, bias=False),
                "k_proj": nn.Linear(shape.hidden, kv, bias=False),
                "v_proj": nn.Linear(shape.hidden, kv, bias=False),
                "o_proj": nn.Linear(shape.hidden, shape.hidden, bias=False),
            }
        )
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=1e-6)
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(shape.hidden, shape.inter, bias=False),
                "up_proj": nn.Linear(shape.hidden, shape.inter, bias=False),
                "down_proj": nn.Linear(shape.inter, shape.hidden, bias=False),
            }
        )

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], past: list[Tensor] | None) -> Tensor:
        b, n, _ = x.shape
        a, d = self.self_attn, self.shape.head_dim
        h = self.input_layernorm(x)
        q, k, v = (a[p](h).view(b, n, -1, d).transpose(1, 2) for p in ("q_proj", "k_proj", "v_proj"))
        q, k = rotate(q, *rope).to(v.dtype), rotate(k, *rope).to(v.dtype)
        if past is not None:
            if past:
                k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
            past[:] = k, v
        group = self.shape.heads // self.shape.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=n > 1)
        x = x + a["o_proj"](y.transpose(1, 2).reshape(b, n, -1))
        h = self.post_attention_layernorm(x)
        m = self.mlp
        return x + m["down_proj"](F.silu(m["gate_proj"](h)) * m["up_proj"](h))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Llama(nn.Module):
    """Parameter names are those of transformers' Llama, so that exporting is a save."""

    def __init__(self, shape: Shape, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.shape = shape
        self.embed_tokens = nn.Embedding(VOCAB, shape.hidden)
        self.layers = nn.ModuleList([Block(shape) for _ in range(shape.layers)])
        self.norm = nn.RMSNorm(shape.hidden, eps=1e-6)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        frequency = 10000.0 ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        angle = torch.arange(CONTEXT)[:, None] * frequency  # [CONTEXT, head_dim / 2]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens: Tensor, past: list[list[Tensor]] | None = None) -> Tensor:
        start = past[0][0].shape[2] if past and past[0] else 0
        rope = tuple(t[start : start + tokens.shape[1]] for t in (self.cos, self.sin))
        x = self.embed_tokens(tokens)
        for index, layer in enumerate(self.layers):
            x = layer(x, rope, past[index] if past is not None else None)
        return F.linear(self.norm(x), self.embed_tokens.weight).float()  # [batch, n, VOCAB]
