"""The process group of the ranks that run one engine.

Rank 0 schedules and verifies. All communication is torch.distributed's: tensors in the group of all (NCCL
between GPUs, gloo otherwise), small Python objects in `control`, and new work in `idle`, where followers may
wait without a limit. A rank that dies closes its connections, which the others notice at once. One that hangs
is given up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from specops.errors import EnvironmentFailure, UsageError
from specops.hints import with_value

Kind = Literal["tensor", "pipeline"]
PATIENCE = timedelta(minutes=5)
"""Longest wait for another rank within a step; ranks may finish loading a model minutes apart."""


LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True)
class Parallel:
    """Division of a target: each layer into `ranks` parts (tensor), or the layers among `ranks` stages
    (pipeline)."""

    kind: Kind
    ranks: int

    def __post_init__(self) -> None:
        if self.kind not in ("tensor", "pipeline") or self.ranks < 2:
            raise UsageError(
                f"a target cannot be parallel as {self.kind}:{self.ranks}: expected tensor:N or pipeline:N, "
                "with N of at least 2",
                hint=with_value(f"{self.kind}:{self.ranks}", "tensor:2"),
            )

    @staticmethod
    def parse(text: str) -> Parallel:
        """The division that `text` describes, such as tensor:2 or pipeline:2. Raises UsageError for other
        text."""
        kind, _, ranks = text.partition(":")
        return Parallel(kind, int(ranks) if ranks.isascii() and ranks.isdigit() else 0)  # type: ignore[arg-type]


def meeting(folder: Path, ranks: int) -> Any:
    """torch.distributed's store in a private folder. What arrives is unpickled, so no port that others reach
    is used."""
    return dist.FileStore(str(folder / "meeting"), ranks)  # type: ignore[attr-defined]


class Ranks:
    """The joined process groups. All ranks must call each collective in the same order."""

    def __init__(self, parallel: Parallel, rank: int, store: Any, patience: timedelta = PATIENCE) -> None:
        """store: where the ranks meet. patience: longest wait within a step. Raises EnvironmentFailure if
        they do not meet."""
        self.parallel, self.rank, self.size = parallel, rank, parallel.ranks
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)  # or it takes the one of the machine's name
        with reported("meet the other ranks"):
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=self.size, timeout=patience)
            self._control = dist.new_group(backend="gloo", timeout=patience)
            idle = patience if rank == 0 else timedelta(days=365)
            self._idle = dist.new_group(backend="gloo", timeout=idle)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def leave(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of all ranks' x, in place."""
        with reported("add up what the ranks computed"):
            dist.all_reduce(x)
        return x

    def concatenate(self, x: Tensor) -> Tensor:
        """All ranks' x, of equal shape, along the last dimension."""
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(self.size)]
        with reported("gather what the ranks computed"):
            dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, -1)

    def send(self, x: Tensor, to: int) -> None:
        with reported(f"send to rank {to}"):
            dist.send(x.contiguous(), to)

    def receive(self, x: Tensor, source: int) -> Tensor:
        """Fill x from another rank, and return it."""
        with reported(f"receive from rank {source}"):
            dist.recv(x, source)
        return x

    def broadcast_tensor(self, x: Tensor) -> Tensor:
        """Rank 0's x, on all ranks; the others' is overwritten."""
        with reported("broadcast what rank 0 computed"):
            dist.broadcast(x, 0)
        return x

    def broadcast_work(self, value: Any = None) -> Any:
        """Rank 0's object, on all ranks, as `broadcast`; a follower without work waits for it without a
        timeout."""
        return self._object_of_first(value, self._idle)

    def broadcast(self, value: Any = None) -> Any:
        """Rank 0's object, on all ranks."""
        return self._object_of_first(value, self._control)

    def _object_of_first(self, value: Any, group: dist.ProcessGroup | None) -> Any:
        box = [value]
        with reported("receive from rank 0"):
            dist.broadcast_object_list(box, 0, group=group)
        return box[0]

    def all_gather(self, value: Any) -> list[Any]:
        """The objects of all ranks, on all of them."""
        boxes: list[Any] = [None] * self.size
        with reported("receive from the other ranks"):
            dist.all_gather_object(boxes, value, group=self._control)
        return boxes

    def gather(self, value: Any) -> list[Any]:
        """The objects of all ranks, on rank 0; empty on the others."""
        boxes: list[Any] | None = [None] * self.size if self.first else None
        with reported("report to rank 0"):
            dist.gather_object(value, boxes, 0, group=self._control)
        return boxes or []


@contextmanager
def reported(action: str) -> Iterator[None]:
    """Turns an error of torch.distributed into EnvironmentFailure."""
    try:
        yield
    except RuntimeError as error:  # of a connection that broke, or of a time that ran out
        raise EnvironmentFailure(
            f"could not {action}: a rank has ended or no longer answers; its last output is above",
            hint="free -h  # then start the engine again",
        ) from error
