"""The KV cache: one tensor, one row a sequence, rows kept dense so that a batch is a view."""

from __future__ import annotations

from collections.abc import Sequence

import torch

CPU = torch.device("cpu")


class KVCache:
    """[layers, rows, capacity, 2 * kv_heads, head_dim]; keys before values.

    `rows` sequences of up to `capacity` slots, which must leave room for a tree behind the longest
    sequence. The cache does not know how much of a row is in use: its owner does.
    """

    def __init__(
        self,
        layers: int,
        rows: int,
        capacity: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device = CPU,
        *,
        kernel: bool = False,
    ) -> None:
        """kernel: attention over it is the Triton kernel's (attention.py)."""
        self.capacity, self.kernel = capacity, kernel
        self.data = torch.zeros(layers, rows, capacity, 2 * kv_heads, head_dim, dtype=dtype, device=device)
        self.layers = self.data.unbind()

    def compact(self, row: int, start: int, slots: Sequence[int]) -> None:
        """Move `slots` (ascending, each >= its destination) to `start`, start + 1, …: commit by gather."""
        first = 0
        while first < len(slots) and slots[first] == start + first:
            first += 1  # already in place: all of a chain, and the first children of a tree
        if first < len(slots):
            kept = self.data[:, row, list(slots[first:])]
            self.data[:, row, start + first : start + len(slots)] = kept

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` slots of a row over another row."""
        self.data[:, target, :length] = self.data[:, source, :length]
