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


class Past:
    """Keys and values of all layers, of what was read."""

    def __init__(self, shape: Shape, batch: int, room: int) -> None:
        self.read = 0
        slots = batch, shape.kv_heads, room, shape.head_dim
        self._kept = [(torch.empty(slots), torch.empty(slots)) for _ in range(shape.layers)]

    def with_new(self, layer: int, k: Tensor, v: Tensor) -> list[Tensor]:
        """[batch, kv_heads, n, head_dim] of the tokens that are being read -> of all up to them."""
        stop = self.read + k.shape[2]
        for kept, new in zip(self._kept[layer], (k, v), strict=True):
            kept[:, :, self.read : stop] = new
        return [kept[:, :, :stop] for kept in self._kept[layer]]


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

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], past: Past | None = None, layer: int = 0
    ) -> Tensor:
        b, n, _ = x.shape
        a, d = self.self_attn, self.shape.head_dim
        h = self.input_layernorm(x)
        q, k, v = (a[p](h).view(b, n, -1, d).transpose(1, 2) for p in ("q_proj", "k_proj", "v_proj"))
        q, k = rotate(q, *rope).to(v.dtype), rotate(k, *rope).to(v.dtype)
        if past is not None:
            k, v = past.with_new(layer, k, v)
        if n == 1:  # the heads that share keys are as tokens that all see them
            q = q.view(b, self.shape.kv_heads, -1, d)
            y = F.scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype)).view(b, -1, 1, d)
        else:
            group = self.shape.heads // self.shape.kv_heads
            k, v = (part.to(q.dtype).repeat_interleave(group, 1) for part in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
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

    def forward(self, tokens: Tensor, past: Past | None = None) -> Tensor:
        """past: what was read before, if anything was, in one go; the tokens are among it afterwards."""
        start = past.read if past is not None else 0
        rope = tuple(t[start : start + tokens.shape[1]] for t in (self.cos, self.sin))
        x = self.embed_tokens(tokens)
        for index, layer in enumerate(self.layers):
            x = layer(x, rope, past, index)
        if past is not None:
            past.read += tokens.shape[1]
        return F.linear(self.norm(x), self.embed_tokens.weight).float()  # [batch, n, VOCAB]
