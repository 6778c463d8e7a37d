"""Peers in tree attention, each in the layout that it likes best; what prepares is not timed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specops_kernels.bench.contest import Absent
from specops_kernels.ragged import Ragged
from specops_kernels.tree_attention import tree_attention

if TYPE_CHECKING:
    from specops_kernels.bench.attention import Inputs

Work = Callable[[], Tensor]

PAGE = 16
"""Slots of FlashInfer's pages."""


def absent(module: str) -> Absent | None:
    return None if find_spec(module) else Absent(f"{module} is not installed")


def launches(made: Inputs) -> Work:
    """Our own kernel, launched for one sequence after the other: what SpecInfer's was compared with."""
    case, batch = made.case, made.batch
    single = [
        Ragged.of(batch.table[b : b + 1], [case.prefix], [words])
        for b, words in enumerate(torch.split(batch.ancestors.cpu(), case.nodes))
    ]
    queries = torch.split(made.q, case.nodes)
    out = torch.empty_like(made.q)
    outs = torch.split(out, case.nodes)

    def work() -> Tensor:
        for q, one, result in zip(queries, single, outs, strict=True):
            tree_attention(q, made.kv, one, out=result)
        return out

    return work


def sdpa(made: Inputs) -> Work:
    """PyTorch's, as the engine calls it without a kernel: the heads of a group as further queries, since with
    enable_gqa a mask leaves it only its slowest path; the mask added, [sequences, 1, rows, slots]."""
    case = made.case
    group = case.heads // case.kv_heads
    _, keys, values = _padded(made)
    queries = made.q.view(case.sequences, case.nodes, case.kv_heads, group, case.dim).permute(0, 2, 3, 1, 4)
    queries = queries.reshape(case.sequences, case.kv_heads, group * case.nodes, case.dim)
    mask = made.q.new_zeros(case.sequences, 1, case.nodes, case.prefix + case.nodes)
    mask[..., case.prefix :].masked_fill_(~made.sees[:, None], float("-inf"))
    mask = mask.repeat(1, 1, group, 1)

    def work() -> Tensor:
        found = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        found = found.view(case.sequences, case.kv_heads, group, case.nodes, case.dim)
        return found.permute(0, 3, 1, 2, 4).reshape(made.q.shape)

    return work


def flex(made: Inputs, compiled: bool = True) -> Work:
    """PyTorch's flex_attention, compiled, with a block mask: blocks of the prefix are known to be full."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    queries, keys, values = _padded(made)
    case, sees = made.case, made.sees

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j < case.prefix) | sees[b, i, torch.clamp(j - case.prefix, min=0)]

    mask = create_block_mask(
        visible, case.sequences, None, case.nodes, case.prefix + case.nodes, device=str(made.q.device)
    )
    attention: Any = torch.compile(flex_attention, dynamic=False) if compiled else flex_attention

    def work() -> Tensor:
        found: Tensor = attention(queries, keys, values, block_mask=mask, enable_gqa=True)
        return found

    return lambda: _packed(work())


def flashinfer(made: Inputs) -> Work:
    """Paged prefill with a custom mask, planned beforehand as a server does once for all layers."""
    library = import_module("flashinfer")
    case, device = made.case, made.q.device
    slots = case.prefix + case.nodes
    pages = -(-slots // PAGE)
    room = made.kv.new_zeros(case.sequences, pages * PAGE, *made.kv.shape[2:])
    room[:, :slots] = made.kv
    keys, values = (
        half.reshape(case.sequences * pages, PAGE, case.kv_heads, case.dim).contiguous()
        for half in room.chunk(2, dim=2)
    )
    mask = torch.ones(case.sequences, case.nodes, slots, dtype=torch.bool, device=device)
    mask[..., case.prefix :] = made.sees
    wrapper = library.BatchPrefillWithPagedKVCacheWrapper(
        torch.empty(512 * 2**20, dtype=torch.uint8, device=device), "NHD"
    )
    each = torch.arange(case.sequences + 1, dtype=torch.int32, device=device)
    wrapper.plan(
        each * case.nodes,
        each * pages,
        torch.arange(case.sequences * pages, dtype=torch.int32, device=device),
        torch.full((case.sequences,), slots - (pages - 1) * PAGE, dtype=torch.int32, device=device),
        case.heads,
        case.kv_heads,
        case.dim,
        PAGE,
        custom_mask=mask.flatten(),
        q_data_type=made.q.dtype,
        kv_data_type=made.kv.dtype,
    )

    def work() -> Tensor:
        found: Tensor = wrapper.run(made.q, (keys, values))
        return found

    return work


def _padded(made: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """[sequences, heads, nodes or slots, dim]: views of the cache, as the engine's own SDPA path has them."""
    case = made.case
    queries = made.q.view(case.sequences, case.nodes, case.heads, case.dim).transpose(1, 2)
    keys, values = made.kv.transpose(1, 2).chunk(2, dim=1)
    return queries, keys, values


def _packed(out: Tensor) -> Tensor:
    """[sequences, heads, nodes, dim] -> [n, heads, dim], a copy: what comes next needs it."""
    return out.transpose(1, 2).flatten(0, 1)
