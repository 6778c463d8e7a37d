"""The same work done by several, and what came of it: data, and the loop that makes it.

Nothing is timed before it was right. What measures the time is given, so that all but the time is tested
without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Timer = Callable[[Callable[[], object]], float]
"""Runs something again and again; the median in seconds."""

OURS = "specops"


@dataclass(frozen=True)
class Absent:
    """An arm that does not take part, and why."""

    reason: str


Arm = Callable[[], Callable[[], Tensor]]
"""Prepares (compiles, plans, copies to the layout that it likes best); what it returns does the work, as
often as it is called. May raise; the reason is reported."""


@dataclass(frozen=True)
class Contest:
    name: str
    bytes: int  # that must cross the memory bus
    operations: int  # floating point, of matrix products
    reference: Callable[[], Tensor]
    tolerance: float  # absolute, of float64 outputs
    arms: Mapping[str, Arm | Absent]  # OURS is one of them


@dataclass(frozen=True)
class Ceilings:
    """Ceilings of this device, measured."""

    copied: float  # bytes/s read and written by a copy
    multiplied: float  # operations/s of a matrix product in the type of the contests; 0: not measured


@dataclass(frozen=True)
class Entry:
    """One arm of one contest."""

    arm: str
    error: float | None  # largest, against the reference
    seconds: float | None
    reason: str | None = None  # why there is no time


@dataclass(frozen=True)
class Outcome:
    contest: str
    bytes: int
    floor_seconds: float
    """The longer of what the bytes and the operations take at the ceilings."""

    bound: str  # "memory" or "math": which of the two that is
    entries: tuple[Entry, ...]

    def __getitem__(self, arm: str) -> Entry:
        return next(entry for entry in self.entries if entry.arm == arm)

    @property
    def right(self) -> bool:
        return self[OURS].seconds is not None

    @property
    def share(self) -> float | None:
        """The floor over our time: 1 is all that the device can do."""
        taken = self[OURS].seconds
        return None if taken is None else self.floor_seconds / taken

    @property
    def moved(self) -> float | None:
        """Bytes/s that we move, of those that must be."""
        taken = self[OURS].seconds
        return None if taken is None else self.bytes / taken

    def ratio(self, arm: str) -> float | None:
        """Return how many times as long as ours another arm takes."""
        ours, others = self[OURS].seconds, self[arm].seconds
        return None if ours is None or others is None else others / ours


def held(contests: Iterator[Contest], ceilings: Ceilings, timer: Timer) -> Iterator[Outcome]:
    """One outcome after the other, as soon as it is there."""
    for contest in contests:
        expected = contest.reference()
        entries = tuple(_entered(contest, name, arm, expected, timer) for name, arm in contest.arms.items())
        memory = contest.bytes / ceilings.copied
        math = contest.operations / ceilings.multiplied if ceilings.multiplied else 0.0
        bound = "math" if math > memory else "memory"
        yield Outcome(contest.name, contest.bytes, max(memory, math), bound, entries)


def _entered(contest: Contest, name: str, arm: Arm | Absent, expected: Tensor, timer: Timer) -> Entry:
    if isinstance(arm, Absent):
        return Entry(name, None, None, arm.reason)
    try:
        work = arm()
        found = work()
        error = float((found.to(torch.float64) - expected).abs().max())
        # NaN is not within any tolerance.
        if not error <= contest.tolerance:
            return Entry(name, error, None, f"wrong by {error:.3g}, {contest.tolerance:g} allowed")
        return Entry(name, error, timer(work))
    except Exception as failure:  # another's library may raise anything
        if name == OURS:
            raise
        return Entry(name, None, None, f"{type(failure).__name__}: {_first_line(str(failure))}")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:200]
