"""Memory of GPUs in MiB, as `nvidia-smi --query-gpu=memory.total` shows it: often less than the name says."""

from __future__ import annotations

from specops.errors import UsageError

GIB = 2**30
MIB = {
    "a10g-24": 23_028,
    "a100-40": 40_960,
    "a100-80": 81_920,
    "b200-180": 183_359,
    "h100-80": 81_559,
    "h200-141": 143_771,
    "l4-24": 23_034,
    "l40s-48": 46_068,
    "rtx4090-24": 24_564,
    "t4-16": 15_360,
}


def memory_of(gpu: str) -> int:
    """Bytes of a GPU by its name, or of a number of GiB. UsageError for anything else."""
    if gpu.lower() in MIB:
        return MIB[gpu.lower()] * 2**20
    try:
        size = float(gpu)
        if not 0 < size < 10_000:
            raise ValueError
    except ValueError:
        raise UsageError(
            f"--gpu does not know {gpu!r}", hint=f"give GiB, such as 79.6, or one of {', '.join(MIB)}"
        ) from None
    return int(size * GIB)
