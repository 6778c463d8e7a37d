"""The contests that `benchmarks/gpu_kernels.py` holds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch

from specops_kernels.bench import attention, compaction, sampling, verification
from specops_kernels.bench.contest import Contest


def programme(dtype: torch.dtype, quick: bool, device: torch.device) -> tuple[int, Iterator[Contest]]:
    """Return how many contests there are; and each as it is reached, since together their tensors would fill
    the device."""
    attentions = attention.QUICK if quick else attention.CASES
    compactions = compaction.QUICK if quick else compaction.CASES
    greedy = verification.QUICK if quick else verification.CASES
    sampled = sampling.QUICK if quick else sampling.CASES
    held = chain(
        attention.contests(attentions, dtype, device),
        compaction.contests(compactions, dtype, device),
        verification.contests(greedy, dtype, device),
        sampling.contests(sampled, dtype, device),
    )
    return len(attentions) + len(compactions) + len(greedy) + 2 * len(sampled), held
