"""Where an engine computes, in which type, and with which attention; read from what people write."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from specops.errors import EnvironmentFailure, UsageError

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
ATTENTION = ("reference", "kernel")


@dataclass(frozen=True)
class Backend:
    device: torch.device
    dtype: torch.dtype
    kernel: bool
    graphs: bool = False
    """Passes of a few tokens as CUDA graphs."""


PLAIN = Backend(torch.device("cpu"), torch.float32, kernel=False)
"""What every machine has."""


def find_backend(device: str, dtype: str, attention: str, *, graphs: bool = True) -> Backend:
    """graphs: wherever there can be any, which is with the kernel on a GPU.

    UsageError for what there is not; EnvironmentFailure for what is not here.
    """
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not (number.isascii() and number.isdigit())):
        raise UsageError(f"there is no device {device!r}", hint="choose cpu, cuda or cuda:1")
    if dtype not in DTYPES or attention not in ATTENTION:
        raise UsageError(
            f"there is no engine in {dtype} with the attention {attention!r}",
            hint=f"choose one of {', '.join(DTYPES)}, and one of {', '.join(ATTENTION)}",
        )
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise EnvironmentFailure(
            f"could not use {device}: PyTorch sees {torch.cuda.device_count()} CUDA devices",
            hint="install a PyTorch build with CUDA where there is a GPU, or run on cpu",
        )
    kernel = attention == "kernel"
    if kernel and find_spec("triton") is None:
        raise EnvironmentFailure(
            "could not take the kernel for attention: triton is not installed",
            hint="install the kernels extra: pip install 'specops[kernels]'",
        )
    if kernel and kind == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise UsageError(
            "the kernel for attention runs on a GPU, not on a CPU",
            hint="take device cuda, or attention reference",
        )
    found = torch.device("cpu") if kind == "cpu" else torch.device("cuda", int(number or 0))
    return Backend(found, DTYPES[dtype], kernel, graphs=graphs and kernel and kind == "cuda")


def compute_with(threads: int) -> None:
    """Threads of torch's on a CPU, in this process."""
    torch.set_num_threads(threads)
