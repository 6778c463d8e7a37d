"""Tree attention in one launch for a ragged batch, or in two where a sequence is split.

The same as scaled dot-product attention with a mask for each sequence, which is never built: the prefix
needs none, and the tree's is one 64-bit word a token for each 64 slots. Layouts are the engine's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton import JITFunction, cdiv, next_power_of_2

from specops_kernels.configuration import Configuration, padded, splits, tiles
from specops_kernels.device import Device, on
from specops_kernels.ragged import Ragged
from specops_kernels.tree_attention_kernel import attend, combine

LOG2E = 1 / math.log(2)

INTERPRETED = not isinstance(attend, JITFunction)
"""TRITON_INTERPRET=1 was set when this was imported: kernels run in numpy, on the CPU, for tests."""

PRODUCTS: dict[torch.dtype, Any] = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.float32 if INTERPRETED else tl.bfloat16,  # numpy would multiply bits as integers
    torch.float32: tl.float32,
}
"""The type in which matrices are multiplied, by the type of queries, keys and values."""


def tree_attention(
    q: Tensor,
    kv: Tensor,
    batch: Ragged,
    scale: float | None = None,
    *,
    tf32: bool = False,
    configuration: Configuration | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return what every token of `batch` gathers from the slots that it sees.

    q: [n, heads, head_dim], packed as batch.offsets says
    kv: one layer of the cache, keys before values: slotted, [rows, capacity, 2 * kv_heads, head_dim], or
        paged, [pages, page_size, 2 * kv_heads, head_dim] if batch.table has two dimensions. The new tokens'
        keys and values are in it already.
    scale: of the scores; None is 1 / sqrt(head_dim)
    tf32: multiply float32 with the 10 bits of tf32, which NVIDIA's tensor cores take
    configuration: None chooses
    returns [n, heads, head_dim] in q's type: `out`, if given

    The row of a token that sees nothing is 0.
    """
    _check(q, kv, batch, out)
    n, heads, dim = q.shape
    kv_heads = kv.shape[2] // 2
    group = heads // kv_heads
    chosen = configuration or configure(q, kv_heads, batch)
    tiles_m = cdiv(batch.most * group, chosen.block_m)
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    split = chosen.splits > 1
    partial = q.new_empty(chosen.splits, n, heads, dim, dtype=torch.float32) if split else out
    lse = q.new_empty(chosen.splits, n, heads, dtype=torch.float32) if split else out
    with on(q.device):
        attend[(batch.sequences * tiles_m, kv_heads, chosen.splits)](
            q,
            kv,
            partial,
            lse,
            batch.table,
            batch.offsets,
            batch.starts,
            batch.stops,
            batch.ancestors,
            LOG2E * (1 / math.sqrt(dim) if scale is None else scale),
            n,
            batch.table.shape[1] if batch.paged else 0,
            batch.ancestors.shape[1],
            tiles_m,
            q.stride(0),
            q.stride(1),
            kv.stride(0),
            kv.stride(1),
            kv.stride(2),
            GROUP=group,
            DIM=dim,
            BLOCK_D=padded(dim),
            BLOCK_M=chosen.block_m,
            BLOCK_N=chosen.block_n,
            PAGE=kv.shape[1] if batch.paged else 0,
            PARTIAL=split,
            PRODUCT=PRODUCTS[q.dtype],
            PRECISION="tf32" if tf32 else "ieee",
            num_warps=chosen.warps,
            num_stages=chosen.stages,
        )
        if split:
            combine[(n * heads,)](
                partial,
                lse,
                out,
                n * heads,
                chosen.splits,
                SPLITS=next_power_of_2(chosen.splits),
                DIM=dim,
                BLOCK_D=padded(dim),
                num_warps=1,
            )
    return out


def configure(q: Tensor, kv_heads: int, batch: Ragged) -> Configuration:
    """The configuration that `tree_attention` takes for this launch on q's device."""
    device = Device.of(q.device)
    rows = batch.most * (q.shape[1] // kv_heads)
    chosen = tiles(q.dtype, q.shape[2], rows, device.family)
    programs = batch.sequences * cdiv(rows, chosen.block_m) * kv_heads
    return replace(chosen, splits=splits(programs, batch.longest, device))


def _check(q: Tensor, kv: Tensor, batch: Ragged, out: Tensor | None) -> None:
    if q.dim() != 3 or kv.dim() != 4 or kv.shape[2] % 2 or kv.shape[3] != q.shape[2]:
        raise ValueError(
            f"queries {tuple(q.shape)} and a cache {tuple(kv.shape)} are not [n, heads, head_dim] and"
            " [rows or pages, slots, 2 * kv_heads, head_dim]"
        )
    if q.shape[1] % (kv.shape[2] // 2):
        raise ValueError(f"{q.shape[1]} query heads are no multiple of {kv.shape[2] // 2} KV heads")
    if len(q) != batch.tokens:
        raise ValueError(f"{len(q)} queries, but the batch feeds {batch.tokens} tokens")
    if q.dtype not in PRODUCTS or kv.dtype != q.dtype:
        raise ValueError(
            f"queries of {q.dtype} and a cache of {kv.dtype}, where both must be of one of"
            f" {', '.join(map(str, PRODUCTS))}"
        )
    if q.stride(2) != 1 or kv.stride(3) != 1:
        raise ValueError("the last dimension of queries and cache must be contiguous")
    room = kv.shape[1] * (batch.table.shape[1] if batch.paged else 1)
    if batch.longest > room:
        raise ValueError(f"a sequence of {batch.longest} slots, where one has room for {room}")
    if out is not None and (out.shape != q.shape or not out.is_contiguous()):
        raise ValueError(f"out must be contiguous and of the queries' shape, {tuple(q.shape)}")
    if not (q.device == kv.device == batch.table.device == batch.ancestors.device):
        raise ValueError("queries, cache and batch must be on one device")
    if not INTERPRETED and q.device.type == "cpu":
        raise ValueError("tensors on the CPU: there the kernels run with TRITON_INTERPRET=1 only, for tests")
