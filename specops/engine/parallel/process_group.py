"""This process among several that run one engine: what they say to each other, and who is who.

Rank 0 schedules and verifies. Everything goes through torch.distributed: tensors over the group of all (NCCL
between GPUs, gloo otherwise), small Python objects over `control`, and news of work over `idle`, where
followers may wait as long as they like. A rank that dies closes its connections, which the others notice at
once; one that hangs is given up after a time.
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

Kind = Literal["tensor", "pipeline"]
PATIENCE = timedelta(minutes=5)
"""Of a rank for another in the middle of a step; loading a model may take them minutes apart."""


LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True)
class Parallel:
    """How a target lies on several devices: each layer cut into as many parts, or the layers dealt out."""

    kind: Kind
    ranks: int

    def __post_init__(self) -> None:
        if self.kind not in ("tensor", "pipeline") or self.ranks < 2:
            raise UsageError(
                f"a target cannot be parallel as {self.kind}:{self.ranks}",
                hint="write tensor:2 or pipeline:2, with at least 2 ranks",
            )

    @staticmethod
    def parse(text: str) -> Parallel:
        kind, _, ranks = text.partition(":")
        return Parallel(kind, int(ranks) if ranks.isascii() and ranks.isdigit() else 0)  # type: ignore[arg-type]


def meeting(folder: Path, ranks: int) -> Any:
    """torch.distributed's store in a folder that nobody else may read: what comes over connections is
    unpickled, so nothing listens that a stranger could speak to."""
    return dist.FileStore(str(folder / "meeting"), ranks)  # type: ignore[attr-defined]


class Ranks:
    """The process groups, joined. Every collective is to be called by all ranks in the same order."""

    def __init__(self, parallel: Parallel, rank: int, store: Any, patience: timedelta = PATIENCE) -> None:
        """`store`: torch.distributed's, where the ranks meet. Raises EnvironmentFailure where they do not."""
        self.parallel, self.rank, self.size = parallel, rank, parallel.ranks
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)  # or it takes the one of the machine's name
        with said("meet the other ranks"):
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

    def sum(self, x: Tensor) -> Tensor:
        """Of all ranks' x; in place."""
        with said("add up what the ranks computed"):
            dist.all_reduce(x)
        return x

    def joined(self, x: Tensor) -> Tensor:
        """All ranks' x, equal in shape, side by side: along the last dimension."""
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(self.size)]
        with said("gather what the ranks computed"):
            dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, -1)

    def send(self, x: Tensor, to: int) -> None:
        with said(f"send to rank {to}"):
            dist.send(x.contiguous(), to)

    def receive(self, x: Tensor, source: int) -> Tensor:
        """x, filled."""
        with said(f"receive from rank {source}"):
            dist.recv(x, source)
        return x

    def from_first(self, x: Tensor) -> Tensor:
        """Rank 0's x; the others' is filled with it."""
        with said("hand round what rank 0 computed"):
            dist.broadcast(x, 0)
        return x

    def news(self, what: Any = None) -> Any:
        """As `told`, for a follower without work, who waits for it."""
        return self._object_of_first(what, self._idle)

    def told(self, what: Any = None) -> Any:
        """An object of rank 0's; what the others give is not looked at."""
        return self._object_of_first(what, self._control)

    def _object_of_first(self, what: Any, group: dist.ProcessGroup | None) -> Any:
        box = [what]
        with said("hear from rank 0"):
            dist.broadcast_object_list(box, 0, group=group)
        return box[0]

    def gathered(self, what: Any) -> list[Any]:
        """An object of each rank's, on all of them."""
        boxes: list[Any] = [None] * self.size
        with said("hear from the other ranks"):
            dist.all_gather_object(boxes, what, group=self._control)
        return boxes

    def gathered_first(self, what: Any) -> list[Any]:
        """An object of each rank's, on rank 0; nothing on the others."""
        boxes: list[Any] | None = [None] * self.size if self.first else None
        with said("report to rank 0"):
            dist.gather_object(what, boxes, 0, group=self._control)
        return boxes or []


@contextmanager
def said(doing: str) -> Iterator[None]:
    """What torch.distributed raises, in a sentence."""
    try:
        yield
    except RuntimeError as error:  # of a connection that broke, or of a time that ran out
        raise EnvironmentFailure(
            f"could not {doing}: a rank has ended or no longer answers",
            hint="look for what that rank said last, and start the engine again",
        ) from error
