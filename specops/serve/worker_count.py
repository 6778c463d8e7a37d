"""The number of workers of a server: `--workers N`, or auto."""

from __future__ import annotations

import os
from pathlib import Path

from specops.errors import UsageError
from specops.hints import with_options

AUTO = "auto"

BYTES_OF_WEIGHTS = 3
"""Memory of a worker for each byte of its weights' files, which are mostly of half precision and are partly
held as float32. An estimate: the program, its libraries and caches are on top."""

SHARE = 0.5
"""Of the available memory, for the workers of auto."""


def worker_count(
    workers: str, *, threads: int | None, device: str, divided: bool, folders: list[Path], cache_mb: int
) -> int:
    """The number of workers that `workers` asks for.

    threads: of each worker; None: one. divided: whether the target is laid on several devices. folders: of
    the weights that each worker loads. cache_mb: of each worker's prefix cache, in MB. auto is as many as
    CPUs and memory allow; one on other devices. Raises UsageError for a number that is not a positive
    integer, and for several workers on one device other than a CPU.
    """
    alone = device != "cpu" or divided
    if workers == AUTO:
        if alone:
            return 1
        files = {path for folder in folders for path in folder.glob("*.safetensors")}
        needed = BYTES_OF_WEIGHTS * sum(path.stat().st_size for path in files) + cache_mb * 10**6
        most = available_memory() * SHARE / needed if needed else 1.0
        return max(1, min(usable_cpus() // (threads or 1), int(most)))
    count = int(workers) if workers.isascii() and workers.isdecimal() else 0
    if count < 1:
        raise UsageError(
            f"invalid number of workers {workers!r}: expected a number from 1 on, or {AUTO}",
            hint=with_options({"--workers": AUTO}),
        )
    if count > 1 and alone:
        raise UsageError(
            "several workers need CPUs: each loads the whole model; expected --device cpu, without "
            "--parallel",
            hint=with_options({"--workers": "1"}),
        )
    return count


def usable_cpus() -> int:
    """CPUs that this process may use: those of its affinity, and the quota of its control group."""
    able = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(able, int(quota) // int(period)))
    except (OSError, ValueError):  # no control group, or no quota
        return able


def available_memory() -> float:
    """Bytes of memory that are available without swapping; infinite where it is not known."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    except OSError:
        pass
    return float("inf")
