"""Plain definitions of the functions of ops.py, in PyTorch and float64. The tests compare the two.

Each definition has the name and the arguments of its compiled function, and returns float64. In-place effects
are the same, on float64 copies that the caller passes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from specops.engine.cpu.ops import EagleInput, EaglePasses, Quantised, SpanRow, SpanTable
from specops.errors import NotFinite


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x = x.double()
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()


def add_norm(x: Tensor, y: Tensor, scale: float, weight: Tensor, eps: float) -> Tensor:
    x += scale * y.double()
    return norm(x, weight, eps)


def gate(y: Tensor, scale: float) -> Tensor:
    first, second = (scale * y.double()).chunk(2, -1)
    return F.silu(first) * second


def store(
    qkv: Tensor, scale: float, rope: Tensor, positions: Tensor, cache: Tensor, spans: SpanTable
) -> None:
    kv_heads = cache.size(2) // 2
    turned = qkv.size(1) - kv_heads
    qkv[:, :turned] = rotated(scale * qkv[:, :turned].double(), rope, positions)
    kv = torch.cat((qkv[:, turned - kv_heads : turned], scale * qkv[:, turned:]), 1)
    first = 0
    for span in spans.rows:
        cache[span.row, span.start : span.start + span.count] = kv[first : first + span.count]
        first += span.count


def rotated(x: Tensor, rope: Tensor, positions: Tensor) -> Tensor:
    """Adjacent pairs of x, [n, heads, dim], turned by `rope` at the n positions."""
    pairs = torch.view_as_complex(x.double().reshape(*x.shape[:2], -1, 2).clone())
    return torch.view_as_real(pairs * rope[positions].to(torch.complex128)).flatten(-2)


def attend(q: Tensor, heads: int, cache: Tensor, spans: SpanTable, scale: float) -> Tensor:
    attended, first = [], 0
    for span in spans.rows:
        queries = q[first : first + span.count, :heads]
        attended.append(_attend(queries, cache[span.row], span, scale))
        first += span.count
    return torch.cat(attended)


def _attend(q: Tensor, cache: Tensor, span: SpanRow, scale: float) -> Tensor:
    """q: [count, heads, dim], cache: [capacity, 2 * kv_heads, dim] -> [count, heads * dim]."""
    stop, m = span.start + span.count, span.sees.size(1)
    keys, values = cache[:stop].double().chunk(2, 1)
    tile = q.size(1) // keys.size(1)
    keys, values = keys.repeat_interleave(tile, 1), values.repeat_interleave(tile, 1)
    sees = torch.cat((torch.ones(span.count, stop - m, dtype=torch.bool), span.sees), 1)
    scores = torch.einsum("nhd,shd->nhs", q.double(), keys) * scale
    shares = scores.masked_fill(~sees[:, None], float("-inf")).softmax(-1)
    return torch.einsum("nhs,shd->nhd", shares, values).flatten(1)


def all_finite(values: Tensor) -> bool:
    return bool(values.isfinite().all())


def are_distributions(logits: Tensor) -> bool:
    return bool(logits.softmax(-1).isfinite().all())


def sample(weights: Tensor, chance: float) -> int:
    sums = weights.double().cumsum(0)
    if not 0 < sums[-1] < float("inf"):
        raise NotFinite("no sum")
    index = int(torch.searchsorted(sums, chance * sums[-1], right=True))
    return min(index, int(weights.nonzero()[-1]))


def draws_are_sound(
    nodes: tuple[int, ...],
    sizes: tuple[int, ...],
    support: bytes,
    weights: bytes,
    tokens: tuple[int, ...],
    parents: tuple[int, ...],
    *,
    vocabulary: int,
    most: int,
) -> bool:
    total = sum(sizes)
    if len(support) != 4 * total or len(weights) != 2 * total or len(sizes) != len(nodes):
        return False
    if len(set(nodes)) < len(nodes) or set(nodes) != set(parents):
        return False
    ids, shares = struct.unpack(f"<{total}I", support), struct.unpack(f"<{total}H", weights)
    drawn_from, start = {}, 0
    for node, size in zip(nodes, sizes, strict=True):
        its = ids[start : start + size]
        if not 1 <= size <= most or list(its) != sorted(set(its)) or its[-1] >= vocabulary:
            return False
        drawn_from[node], start = its, start + size
    return 0 not in shares and all(
        token in drawn_from[parent] for token, parent in zip(tokens, parents, strict=True)
    )


def recurrent(state: Tensor, token: Tensor, weights: Quantised) -> tuple[Tensor, Tensor]:
    r, d, output = weights.plain()
    width, inter = d.shape
    x, gate_up = torch.split(state.double() @ r.T + token.double(), [width, 2 * inter], 1)
    after = x + gate(gate_up, 1.0) @ d.T
    return after, after @ output.T


def guess(passes: EaglePasses, fed: EagleInput) -> tuple[Tensor, Tensor]:
    """EaglePasses.guess. It writes the keys and values of all fed tokens to the cache."""
    to_queries, to_keys, out, gate_up, down, output = passes.weights.plain()
    n, queries = fed.sees.size(0), passes.heads * passes.head_dim
    keys = passes.kv_heads * passes.head_dim
    y = fed.entered.double() + fed.features.double() @ torch.cat((to_queries, to_keys)).T
    x, q, k, v = torch.split(y, [passes.width, queries, keys, keys], 1)
    q, k = (rotated(states.view(n, -1, passes.head_dim), passes.rope, fed.positions) for states in (q, k))
    fed.cache[fed.start : fed.start + n] = torch.cat((k, v.reshape(n, -1, passes.head_dim)), 1)
    span = SpanRow(0, fed.start, n, fed.sees)
    attended = _attend(q, fed.cache, span, passes.head_dim**-0.5)[-1:]
    hidden = x[-1:] + attended @ out.T
    hidden = hidden + gate(norm(hidden, passes.norm, passes.eps) @ gate_up.T, 1.0) @ down.T
    return hidden, hidden @ output.T


def chain(
    passes: EaglePasses,
    fed: EagleInput,
    dice: list[float],
    *,
    temperature: float,
    worth: float,
    guess: Callable[[EagleInput], tuple[Tensor, Tensor]],
) -> tuple[list[int], Tensor]:
    """EaglePasses.chain, pass after pass by `guess`: `passes.guess`, or the definition above."""
    assert passes.table is not None
    tokens: list[int] = []
    drawn, odds = [], 1.0
    position, start = int(fed.positions[-1]), fed.start + len(fed.sees)
    for chance in dice:
        feature, logits = guess(fed)
        q = (logits[0] / (temperature or 1.0)).softmax(-1)
        tokens.append(int(q.argmax()) if temperature == 0 else sample(q, chance))
        drawn.append(q)
        odds *= float(q.amax()) ** 0.5 if temperature == 0 else (1 + float(q.dot(q))) / 2
        if odds < worth:
            break
        position = min(position + 1, len(passes.rope) - 1)
        sees = torch.cat((fed.sees[-1:], torch.ones(1, 1, dtype=torch.bool)), 1)
        entered = passes.table[tokens[-1:]]
        fed = EagleInput(entered, feature, torch.tensor([position]), fed.cache, start, sees)
        start += 1
    return tokens, torch.stack(drawn)
