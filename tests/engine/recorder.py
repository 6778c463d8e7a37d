"""A CUDA graph's stand-in on a CPU: the operations that a function ran, to be run again on the same tensors.

As with a graph, a replay runs no Python of the function's: what it read from anything but tensors is as it
was when it was recorded, and every result lands in the memory that the recorded one had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

WAITING = ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::item", "aten::equal")
"""Operations whose results the host reads: under a capture CUDA refuses them."""


class Recorder(TorchDispatchMode):
    """While it is entered it records; called with a function it captures it, as CudaCapture does."""

    active: Recorder | None = None

    def __init__(self) -> None:
        super().__init__()
        self.captured = 0
        self.replayed = 0
        self._ran: list[Callable[[], None]] = []

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        run()  # to warm up
        self._ran = ran = []
        Recorder.active = self
        try:
            with self:
                run()
        finally:
            Recorder.active = None
        self.captured += 1

        def replay() -> None:
            self.replayed += 1
            for again in ran:
                again()

        return replay

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func._schema.name in WAITING:
            raise RuntimeError(f"{func._schema.name} waits for the device")
        found = func(*args, **kwargs)
        given = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        results = [t if isinstance(t, Tensor) else None for t in tree_leaves(found)]
        fresh = [t is not None and t.untyped_storage().data_ptr() not in given for t in results]

        def again() -> None:
            new = tree_leaves(func(*args, **kwargs))
            for room, one, is_fresh in zip(results, new, fresh, strict=True):
                if is_fresh:  # a view, or what was written in place, lies where it did
                    assert room is not None
                    room.copy_(one)

        self._ran.append(again)
        return found

    def once(self, launch: Callable[[], None]) -> None:
        """One operation that is not PyTorch's: run now, with what it calls not recorded, and replayed."""
        with _disable_current_modes():
            launch()
        self._ran.append(launch)


def recorded(attention: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Tree attention as one operation."""

    def attend(q: Tensor, kv: Tensor, batch: Any, scale: float | None = None) -> Tensor:
        if Recorder.active is None:
            return attention(q, kv, batch, scale).to(q.dtype)
        out = torch.empty_like(q)

        def launch() -> None:
            out.copy_(attention(q, kv, batch, scale))

        Recorder.active.once(launch)
        return out

    return attend
