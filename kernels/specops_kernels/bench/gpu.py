"""The GPU that is here: found, timed, and its ceilings measured."""

from __future__ import annotations

from collections.abc import Callable

import torch

from specops.errors import EnvironmentFailure
from specops_kernels.bench.contest import Ceilings, Timer

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

COPIED = 2**30
"""Bytes: many times any cache."""

SQUARE = 8192
"""Of the matrices whose product is the ceiling of mathematics."""


def first() -> torch.device:
    """This machine's first GPU, or an error that says what is missing."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    built = torch.version.cuda or torch.version.hip
    raise EnvironmentFailure(
        f"could not measure the kernels: {'torch sees no GPU' if built else 'this torch is built for CPUs'}",
        hint="specops doctor  # run this on a machine with a GPU; tests need none",
    )


def name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def median(work: Callable[[], object]) -> float:
    """Seconds. Triton's do_bench: warmed up, and with a cold L2 cache each time.

    As a CUDA graph where that is possible, as the engine runs it: at small sizes the launches of a few
    kernels take longer than the kernels. Work that waits for the device on the host is timed as it is.
    """
    return launched(_recorded(work))


def launched(work: Callable[[], object]) -> float:
    """Seconds, launched from Python: as `median`, never as a graph."""
    from triton.testing import do_bench

    return float(do_bench(work, warmup=50, rep=200, return_mode="median")) / 1000


def _recorded(work: Callable[[], object]) -> Callable[[], object]:
    work()  # compiles
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
    except RuntimeError:  # it waits for the device
        return work
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return graph.replay


def ceilings(dtype: torch.dtype, device: torch.device, timer: Timer = launched) -> Ceilings:
    """What the device can do. Not as graphs: on an H200 a graph copied 2.7 TB/s, and a launched copy 4.2."""
    return Ceilings(_copied(device, timer), _multiplied(dtype, device, timer))


def _copied(device: torch.device, timer: Timer) -> float:
    source = torch.empty(COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * COPIED / timer(lambda: target.copy_(source))


def _multiplied(dtype: torch.dtype, device: torch.device, timer: Timer) -> float:
    one = torch.randn(SQUARE, SQUARE, device=device).to(dtype)
    other = torch.randn(SQUARE, SQUARE, device=device).to(dtype)
    return 2 * SQUARE**3 / timer(lambda: one @ other)
