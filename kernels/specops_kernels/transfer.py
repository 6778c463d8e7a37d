"""Small integers from the host to the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def to_device(device: torch.device | str, *parts: Sequence[int]) -> list[Tensor]:
    """Each part as int32, all of them in one copy.

    Each at an address that is a multiple of 16 bytes: Triton compiles a kernel anew for one that is not.
    """
    padded = [-(-len(part) // 4) * 4 for part in parts]
    numbers: list[int] = []
    for part, room in zip(parts, padded, strict=True):
        numbers += [*part, *[0] * (room - len(part))]
    whole = torch.tensor(numbers, dtype=torch.int32).to(device)
    return [found[: len(part)] for found, part in zip(torch.split(whole, padded), parts, strict=True)]
