"""Tree attention, token by token in float64: what the kernel is held against."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specops_kernels.ragged import WORD, Ragged


def tree_attention(q: Tensor, kv: Tensor, batch: Ragged, scale: float | None = None) -> Tensor:
    """Attend as `specops_kernels.tree_attention.tree_attention` does, in float64: [n, heads, head_dim]."""
    heads, dim = q.shape[1:]
    group = 2 * heads // kv.shape[2]
    scale = 1 / math.sqrt(dim) if scale is None else scale
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    offsets, starts = batch.offsets.tolist(), batch.starts.tolist()
    stops, ancestors = batch.stops.tolist(), batch.ancestors.tolist()
    for sequence in range(batch.sequences):
        start, stop = starts[sequence], stops[sequence]
        past = slots_of(kv, batch.table, sequence, stop).to(torch.float64)  # [stop, 2 * kv_heads, dim]
        keys, values = past.repeat_interleave(group, dim=1).chunk(2, dim=1)
        for token in range(offsets[sequence], offsets[sequence + 1]):
            words = ancestors[token]
            visible = [start + j for j in range(stop - start) if words[j // WORD] >> (j % WORD) & 1]
            slots = [*range(start), *visible]
            scores = torch.einsum("shd,hd->hs", keys[slots], q[token].to(torch.float64)) * scale
            out[token] = torch.einsum("hs,shd->hd", scores.softmax(1), values[slots])
    return out


def slots_of(kv: Tensor, table: Tensor, sequence: int, stop: int) -> Tensor:
    """The first `stop` slots of a sequence, in order: [stop, 2 * kv_heads, head_dim]."""
    if table.dim() == 1:
        return kv[table[sequence], :stop]
    pages = table[sequence, : -(-stop // kv.shape[1])]
    return kv[pages].flatten(0, 1)[:stop]
