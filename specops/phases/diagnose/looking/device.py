"""GPU memory of this machine, by NVML."""

from __future__ import annotations

import importlib

from specops.phases.diagnose.observations import Gpu

GIB = 2**30


def gpu() -> Gpu | str:
    """Of the fullest device. Only of use where the pool serves from this machine."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return "nvidia-ml-py is not installed, and NVML is read through it"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return f"this machine has no NVIDIA driver that answers ({error})"
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        memory = [nvml.nvmlDeviceGetMemoryInfo(handle) for handle in handles]
    except nvml.NVMLError as error:
        return f"NVML does not tell of the devices' memory ({error})"
    finally:
        nvml.nvmlShutdown()
    fullest = max(memory, key=lambda one: one.used / one.total, default=None)
    if fullest is None:
        return "this machine has no NVIDIA device"
    return Gpu(source="NVML", used_gib=fullest.used / GIB, total_gib=fullest.total / GIB)
