"""KV compaction slot by slot: what the kernel is held against."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def compact(cache: Tensor, table: Tensor, starts: Sequence[int], slots: Sequence[Sequence[int]]) -> Tensor:
    """A copy of `cache` in which slots[b] lie at starts[b], starts[b] + 1, …, in every layer."""
    found = cache.clone()
    for sequence, (start, wanted) in enumerate(zip(starts, slots, strict=True)):
        for target, source in enumerate(wanted, start=start):
            found[:, *_at(table, sequence, target, cache)] = cache[:, *_at(table, sequence, source, cache)]
    return found


def _at(table: Tensor, sequence: int, slot: int, cache: Tensor) -> tuple[int, int]:
    if table.dim() == 1:
        return int(table[sequence]), slot
    return int(table[sequence, slot // cache.shape[2]]), slot % cache.shape[2]
