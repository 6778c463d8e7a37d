"""Facts about the device that a launch runs on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch

Family = Literal["hopper", "ampere", "cdna"]
"""Matrix instructions of a whole warp group (NVIDIA 9.x and 10.x), of a warp (other NVIDIA), AMD's."""


@dataclass(frozen=True)
class Device:
    processors: int  # multiprocessors, or compute units
    family: Family

    @staticmethod
    @cache
    def of(device: torch.device) -> Device:
        if device.type == "cpu":  # the interpreter: one program at a time
            return Device(1, "ampere")
        found = torch.cuda.get_device_properties(device)
        if torch.version.hip is not None:
            return Device(found.multi_processor_count, "cdna")
        return Device(found.multi_processor_count, "hopper" if found.major in (9, 10) else "ampere")


def on(device: torch.device) -> AbstractContextManager[object]:
    """Make `device` the current one: Triton takes the current device, not its arguments'."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
