"""KV compaction in one launch: what was accepted of each tree, behind its sequence, in all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from triton import cdiv

from specops_kernels.device import on
from specops_kernels.gather_kernel import gather
from specops_kernels.transfer import to_device

BLOCK = 1024
"""Elements of a slot that one program moves; more programs than that would not be busier."""


@dataclass(frozen=True)
class Moves:
    """Slots of B sequences to be moved, on the device. What is in place already is not among them."""

    table: Tensor  # [B] int32 rows of a slotted cache, or [B, p] int32 pages
    starts: Tensor  # [B] int32, the first slot moved to; the others follow
    offsets: Tensor  # [B + 1] int32: the slots of sequence b are sources[offsets[b]:offsets[b + 1]]
    sources: Tensor  # [moves] int32
    last: int  # slot that is read

    @staticmethod
    def of(table: Tensor, starts: Sequence[int], slots: Sequence[Sequence[int]]) -> Moves:
        """Return the moves that put slots[b], ascending, at starts[b], starts[b] + 1, …; on the table's
        device."""
        if not len(table) == len(starts) == len(slots):
            raise ValueError(
                f"{len(table)} rows of the table, {len(starts)} starts and {len(slots)} lists of slots"
                " are not of the same sequences"
            )
        begin, offsets, sources = [], [0], list[int]()
        for start, wanted in zip(starts, slots, strict=True):
            ascending = all(one < other for one, other in pairwise(wanted))
            if not ascending or (wanted and wanted[0] < start):
                raise ValueError(f"slots {list(wanted)} are not ascending from {start} on")
            placed = 0
            while placed < len(wanted) and wanted[placed] == start + placed:
                placed += 1
            begin.append(start + placed)
            sources += wanted[placed:]
            offsets.append(len(sources))
        on_device = to_device(table.device, begin, offsets, sources)
        return Moves(
            table=table.to(torch.int32).contiguous(),
            starts=on_device[0],
            offsets=on_device[1],
            sources=on_device[2],
            last=max(sources, default=-1),
        )

    @property
    def paged(self) -> bool:
        return self.table.dim() == 2


def compact(cache: Tensor, moves: Moves) -> None:
    """Move slots within `cache`, in place.

    cache: [layers, rows, capacity, 2 * kv_heads, head_dim], or [layers, pages, page_size, 2 * kv_heads,
        head_dim] if moves.table has two dimensions; a slot's elements lie side by side
    """
    if cache.dim() != 5 or cache.stride(4) != 1 or cache.stride(3) != cache.shape[4]:
        raise ValueError(
            f"a cache {tuple(cache.shape)} of strides {cache.stride()} is not [layers, rows or pages, slots,"
            " 2 * kv_heads, head_dim] with the elements of a slot side by side"
        )
    room = cache.shape[2] * (moves.table.shape[1] if moves.paged else 1)
    if moves.last >= room:
        raise ValueError(f"slot {moves.last} is to be moved, where a sequence has room for {room}")
    if not len(moves.sources):
        return
    width = cache.shape[3] * cache.shape[4]
    with on(cache.device):
        gather[(len(moves.starts), cache.shape[0], cdiv(width, BLOCK))](
            cache,
            moves.table,
            moves.starts,
            moves.offsets,
            moves.sources,
            moves.table.shape[1] if moves.paged else 0,
            cache.stride(0),
            cache.stride(1),
            cache.stride(2),
            width,
            PAGE=cache.shape[2] if moves.paged else 0,
            BLOCK=BLOCK,
        )
