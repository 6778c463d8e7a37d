"""Offloading: the weights of a model's layers come by, layer after layer, from disk or from host memory.

Two slots hold a layer each, in the form that runs. While the model computes with one, a thread fills the
other; after the last layer comes the first one again, so that reading also goes on while a draft is grown and
verified. A pass then takes about as long as its bytes take to come, whatever number of tokens it runs: what
FlexGen and SpecInfer (arXiv 2305.09781, figure 8) call offloading, and what large trees are for.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Generic, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from specops.engine.weights import Place, read
from specops.errors import UsageError


@dataclass(frozen=True)
class Offload:
    """Where the layers' weights stay, and how fast they may come."""

    source: Literal["disk", "host"]

    bandwidth: float | None = None
    """Bytes a second, which reading is then held to; None: as fast as they come. A benchmark declares it,
    since a file that fits the page cache is no disk."""

    def __post_init__(self) -> None:
        if self.source not in ("disk", "host"):
            raise UsageError(f"weights cannot be offloaded to {self.source!r}", hint="choose disk or host")
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise UsageError(f"a bandwidth must be above 0 bytes a second, not {self.bandwidth}")


class Throttle:
    """Lets bytes through at a rate: a bucket as deep as what comes in `SLACK`, so that late wake-ups of the
    sleeping thread are made up for and idle time is not saved up."""

    SLACK = 0.005  # seconds

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._paid = clock()  # until when the bytes so far have taken

    def __call__(self, count: int) -> None:
        """Return when `count` more bytes would have come."""
        now = self._clock()
        self._paid = max(self._paid, now - self.SLACK) + count / self._rate
        if self._paid > now:
            self._sleep(self._paid - now)


class Source(Protocol):
    def __call__(self, place: Place) -> Tensor:
        """The stored tensor, valid until the next call."""


def make_source(offload: Offload, streamed: list[Place], device: torch.device) -> Source:
    """`streamed`: all that will ever be asked for. For a GPU, the memory it copies from is pinned."""
    pay = None if offload.bandwidth is None else Throttle(offload.bandwidth)
    pinned = device.type == "cuda"
    if offload.source == "host":
        return _Host(streamed, pay, pinned)
    return _Disk(max(place.size for place in streamed), pay, pinned)


class _Disk:
    def __init__(self, largest: int, pay: Callable[[int], None] | None, pinned: bool) -> None:
        self._buffer, self._pay = torch.empty(largest, dtype=torch.uint8, pin_memory=pinned), pay

    def __call__(self, place: Place) -> Tensor:
        return read(place, self._buffer, self._pay)


class _Host:
    def __init__(self, streamed: list[Place], pay: Callable[[int], None] | None, pinned: bool) -> None:
        self._pay = pay
        self._held = {
            place: read(place, torch.empty(place.size, dtype=torch.uint8, pin_memory=pinned))
            for place in streamed
        }

    def __call__(self, place: Place) -> Tensor:
        if self._pay is not None:
            self._pay(place.size)
        return self._held[place]


class Slot(Protocol):
    """Room for one layer."""

    def fill(self, index: int) -> None:
        """Bring layer `index` here. It may wait for what still computes with the one before."""

    def used(self) -> None:
        """All that is to be computed with the layer has been asked for."""


S = TypeVar("S", bound=Slot)


class Stream(Generic[S]):
    """Gives the layers in turn, 0, 1, …, 0, 1, …, each read while the one before is computed with."""

    def __init__(self, layers: int, slots: Sequence[S]) -> None:
        """`slots`: two, or one more for each layer that is to be read further ahead."""
        self._free: queue.SimpleQueue[S | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[tuple[int, S] | Exception] = queue.SimpleQueue()
        self._held: S | None = None
        for slot in slots:
            self._free.put(slot)
        # The thread knows the queues alone, so that it ends when nobody holds the stream any more.
        weakref.finalize(self, self._free.put, None)
        threading.Thread(
            target=_read_on, args=(layers, self._free, self._ready), name="offload", daemon=True
        ).start()

    def take(self, wanted: int) -> S:
        """The slot with layer `wanted`, until `give_back` or the next `take`. Raises what reading raised."""
        self.give_back()  # of a pass that was broken off
        while True:
            found = self._ready.get()
            if isinstance(found, Exception):
                self._ready.put(found)  # nothing will come after it
                raise found
            index, self._held = found
            if index == wanted:
                return self._held
            self.give_back()

    def give_back(self) -> None:
        if self._held is not None:
            self._held.used()
            self._free.put(self._held)
            self._held = None


def _read_on(
    layers: int, free: queue.SimpleQueue[S | None], ready: queue.SimpleQueue[tuple[int, S] | Exception]
) -> None:
    for index in cycle(range(layers)):
        slot = free.get()
        if slot is None:
            return
        try:
            slot.fill(index)
        except Exception as error:  # whoever waits for the layer is to hear of it
            ready.put(error)
            return
        ready.put((index, slot))
