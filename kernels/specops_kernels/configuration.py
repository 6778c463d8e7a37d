"""Tiles, warps and splits of a tree attention launch: chosen here, in Python, by table and rule.

No autotuning: it would time kernels on the user's device at the first request, and choose differently from
one start to the next. What each configuration takes in registers and shared memory is in `budgets.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specops_kernels.device import Device, Family


@dataclass(frozen=True)
class Configuration:
    block_m: int  # rows of a tile: tokens times the query heads of a KV head
    block_n: int  # slots of a tile; at most 64
    warps: int
    stages: int  # of the software pipeline
    splits: int = 1  # programs that share a sequence's slots


@dataclass(frozen=True)
class _Limits:
    most_m: int
    block_n: int
    stages: int


_HALF: dict[Family, _Limits] = {
    "hopper": _Limits(most_m=128, block_n=64, stages=3),
    "ampere": _Limits(most_m=128, block_n=32, stages=3),  # 64 slots would spill
    "cdna": _Limits(most_m=128, block_n=32, stages=2),  # 64 KB of shared memory
}
"""float16 and bfloat16, heads of up to 128 dimensions."""

_HALF_WIDE: dict[Family, _Limits] = {
    "hopper": _Limits(most_m=64, block_n=32, stages=3),
    "ampere": _Limits(most_m=64, block_n=32, stages=2),
    "cdna": _Limits(most_m=64, block_n=32, stages=2),
}
"""float16 and bfloat16, wider heads."""

_SINGLE = _Limits(most_m=16, block_n=16, stages=2)
"""float32. NVIDIA's matrix instructions are tf32, which is another thing; without them a tile's operands lie
in registers. Heads of more than 128 dimensions spill some: they are for checking, not for speed."""

WIDEST = 256
"""Head dimension that one tile holds at most."""

LEAST_SPLIT = 256
"""Slots of a split at least: a start, and a part of the combination, must be worth it."""

MOST_SPLITS = 32


def padded(head_dim: int) -> int:
    """The power of two that a tile's width must be; 16 is the least that a matrix instruction takes."""
    if not 1 <= head_dim <= WIDEST:
        raise ValueError(f"a head of {head_dim} dimensions: the kernel takes 1 to {WIDEST}")
    return max(16, 1 << (head_dim - 1).bit_length())


def tiles(dtype: torch.dtype, head_dim: int, rows: int, family: Family) -> Configuration:
    """Return the tiles without splits. rows: tokens of the longest tree times the query heads of a KV
    head."""
    wide = padded(head_dim) > 128
    single = dtype == torch.float32
    limits = _SINGLE if single else (_HALF_WIDE if wide else _HALF)[family]
    block_m = min(max(16, 1 << (rows - 1).bit_length()), limits.most_m)
    eight = single or block_m == 128 or (block_m == 64 and wide)  # four warps would spill
    return Configuration(block_m, limits.block_n, 8 if eight else 4, limits.stages)


def splits(programs: int, longest: int, device: Device) -> int:
    """Into how many parts a sequence's slots are split: only as many as it takes to fill the device.

    programs: of a launch without splits
    longest: slots of one sequence, at most
    """
    wanted = max(1, device.processors // programs)
    fitting = max(1, longest // LEAST_SPLIT)
    return 1 << (min(wanted, fitting, MOST_SPLITS).bit_length() - 1)
