"""The GPUs of this machine, read through NVML."""

from __future__ import annotations

import importlib
from typing import Any

GIB = 2**30


class NvmlUnavailable(Exception):
    """NVML cannot be read. The message says why."""


def open_nvml() -> Any:
    """Return the initialised module of nvidia-ml-py, whose functions raise its NVMLError. Raises
    NvmlUnavailable where it is not installed, or no driver answers."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        raise NvmlUnavailable("nvidia-ml-py is not installed, and NVML is read through it") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NvmlUnavailable(f"this machine has no NVIDIA driver that answers ({error})") from error
    return nvml


def devices(nvml: Any) -> list[Any]:
    """Return the handle of each GPU. Raises NVMLError."""
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
