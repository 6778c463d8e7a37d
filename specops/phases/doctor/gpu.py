"""The GPUs and their driver, by NVML where nvidia-ml-py is installed, else by nvidia-smi."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Iterator
from typing import Any

from specops.phases.doctor.check import ANSWER_S, Check

QUERY = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
FULL = 0.9
"""A share of memory in use that leaves a server no room to start."""
DRIVER = "reload or install the driver that fits the kernel"


def gpus() -> Iterator[Check]:
    """A line for each GPU; one where there is none, or it cannot be asked."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        yield _by_nvidia_smi()
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver, or one that fails: nvidia-smi tells these apart
        yield _by_nvidia_smi()
        return
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        yield from (_gpu(nvml, index, driver) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError as error:
        yield Check(name="gpu", status="warn", found=f"NVML is here and fails: {error}", fix=DRIVER)
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int, driver: str) -> Check:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    used, total = int(memory.used), int(memory.total)
    parts = [
        f"{_text(nvml.nvmlDeviceGetName(handle))}, {total / 2**30:.0f} GiB, {used / 2**30:.1f} in use",
        f"driver {driver}",
    ]
    if _partitioned(nvml, handle):
        parts.append("MIG is on: servers see its instances, not the whole GPU")
    return Check(
        name="gpu",
        status="warn" if used > FULL * total else "ok",
        found="; ".join(parts),
        fix="stop what holds its memory before a server is started here: nvidia-smi lists processes",
    )


def _partitioned(nvml: Any, handle: Any) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:  # a GPU that has no MIG
        return False
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _by_nvidia_smi() -> Check:
    try:
        answer = subprocess.run(QUERY, capture_output=True, text=True, timeout=ANSWER_S, check=True)
    except FileNotFoundError:
        return Check(name="gpu", status="ok", found="none; the embedded engine runs on the CPU")
    except (subprocess.SubprocessError, OSError) as error:
        return Check(name="gpu", status="warn", found=f"nvidia-smi is here and fails: {error}", fix=DRIVER)
    return Check(name="gpu", status="ok", found="; ".join(answer.stdout.strip().splitlines()))
