"""What a server takes while it is measured: of its devices by NVML, and of the host by /proc.

Read between cells only: nothing of this runs while a request is stamped.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from specops.phases.sweep.records import Memory

GIB = 2**30
PROC = Path("/proc")
VISIBLE = "CUDA_VISIBLE_DEVICES"
RESET_PEAK = "5"
"""Written to a process's clear_refs: its VmHWM begins anew (proc(5))."""


class Footprint:
    """Of the server whose processes are in `group`; of nothing where that is None."""

    def __init__(self, group: int | None) -> None:
        self._group = group
        self._nvml = _nvml() if group is not None else None
        self._gpu_bytes: int | None = None

    def reset(self) -> None:
        """From here on."""
        for process in self._processes():
            with suppress(OSError):  # it ended, or the kernel does not let us: then since its start
                (process / "clear_refs").write_text(RESET_PEAK)
        gpu = self._gpu()
        self._gpu_bytes = gpu[0] if gpu else None

    def most(self) -> Memory:
        """The most since `reset`: each process's peak resident memory, summed, pages that several share
        counted for each; and the larger of what the devices had in use then and now. Serving engines keep
        what they once took of a device, so that the two ends show what was taken between them."""
        if self._group is None:
            return Memory()
        gpu = self._gpu()
        peaks = [peak for process in self._processes() if (peak := _peak_bytes(process)) is not None]
        return Memory(
            gpu_gib=_gib(max(gpu[0], self._gpu_bytes or 0)) if gpu else None,
            gpu_total_gib=_gib(gpu[1]) if gpu else None,
            resident_gib=_gib(sum(peaks)) if peaks else None,
        )

    def _processes(self) -> Iterator[Path]:
        if self._group is None or not PROC.is_dir():
            return
        for process in PROC.glob("[0-9]*"):
            if _group_of(process) == self._group:
                yield process

    def _gpu(self) -> tuple[int, int] | None:
        """In use and in all, in bytes, of the devices on which the group's processes run; where NVML names
        none of them (in a container it has other process ids), of those that the server may see."""
        if self._nvml is None:
            return None
        ours = {int(process.name) for process in self._processes()}
        try:
            handles = [
                self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(self._nvml.nvmlDeviceGetCount())
            ]
            mine = [handle for handle in handles if ours & self._pids(handle)] or self._visible(handles)
            memory = [self._nvml.nvmlDeviceGetMemoryInfo(handle) for handle in mine]
        except self._nvml.NVMLError:
            return None
        if not memory:
            return None
        return sum(int(one.used) for one in memory), sum(int(one.total) for one in memory)

    def _pids(self, handle: Any) -> set[int]:
        assert self._nvml is not None
        return {int(process.pid) for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)}

    def _visible(self, handles: list[Any]) -> list[Any]:
        """By CUDA_VISIBLE_DEVICES of the group's leader, which names indices, or beginnings of ids."""
        assert self._nvml is not None
        named = _variable(PROC / str(self._group), VISIBLE)
        if named is None:
            return handles
        ids = [str(self._nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        return [
            handle
            for index, (handle, name) in enumerate(zip(handles, ids, strict=True))
            if any(part == str(index) or (part and name.startswith(part)) for part in named.split(","))
        ]


def _nvml() -> Any | None:
    """The package nvidia-ml-py, where it is installed and finds a driver."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def _group_of(process: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        return int((process / "stat").read_text().rpartition(")")[2].split()[2])
    return None


def _variable(process: Path, name: str) -> str | None:
    with suppress(OSError):
        for setting in (process / "environ").read_text(errors="replace").split("\0"):
            if setting.startswith(f"{name}="):
                return setting.partition("=")[2]
    return None


def _peak_bytes(process: Path) -> int | None:
    with suppress(OSError, ValueError):
        for line in (process / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return None


def _gib(count: int) -> float:
    return round(count / GIB, 3)
