"""Tiles into which the verification kernels cut a vocabulary."""

from __future__ import annotations

from triton import next_power_of_2


def tile_of(vocabulary: int, most: int) -> int:
    """Columns that a program reads at once: a power of two, and no more than the vocabulary fills."""
    whole: int = next_power_of_2(vocabulary)
    return min(most, whole)


def warps(tile: int, most: int = 8) -> int:
    """Return the number of warps; None with fewer than eight columns a thread."""
    return min(most, max(1, tile // 256))
