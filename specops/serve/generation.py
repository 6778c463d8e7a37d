"""A request on its way through the engine: its sequences, and what they have produced so far."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from specops.engine.request import Counters, Emission, Sampling
from specops.serve.refusal import Refusal


@dataclass(frozen=True)
class Job:
    """One sequence to generate."""

    prompt: list[int]
    sampling: Sampling


@dataclass(eq=False)
class Sequence:
    """One sequence of a request, with the instants of its life in seconds of time.perf_counter."""

    generation: Generation
    index: int  # the choice that it becomes
    job: Job
    arrived: float
    id: int | None = None  # the engine's name for it; the engine's thread alone reads and sets it
    scheduled: float | None = None
    first_output: float | None = None
    last_output: float | None = None
    generated: int = 0  # tokens
    ended: bool = False  # finished, cancelled or failed


@dataclass(frozen=True)
class Step:
    """What the engine's thread reports after each turn: taken at one instant, so that it is consistent."""

    started: float
    ended: float
    tokens: int  # prompt tokens read and tokens generated
    scheduled: list[Sequence]
    emissions: list[tuple[Sequence, Emission]]
    load: Load


@dataclass(frozen=True)
class Load:
    """How full the engine is, and its totals."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0  # 0 to 1
    counters: Counters = field(default_factory=Counters)


class Generation:
    """The sequences of one request. Lives in the event loop; one handler reads it."""

    def __init__(self, jobs: list[Job], arrived: float) -> None:
        self.sequences = [Sequence(self, index, job, arrived) for index, job in enumerate(jobs)]
        self._events: asyncio.Queue[tuple[int, Emission] | Refusal] = asyncio.Queue()
        self._unread = len(jobs)  # sequences whose last emission has not been read

    @property
    def finished(self) -> bool:
        """Every sequence's last emission has been read."""
        return self._unread == 0

    def put(self, event: tuple[int, Emission] | Refusal) -> None:
        self._events.put_nowait(event)

    async def next(self) -> list[tuple[int, Emission]]:
        """Wait for output; returns all there is, as (choice index, emission). Raises a Refusal put here."""
        batch: list[tuple[int, Emission]] = []
        event = await self._events.get()
        while True:
            if isinstance(event, Refusal):
                raise event
            batch.append(event)
            self._unread -= event[1].finish_reason is not None
            if self._events.empty():
                return batch
            event = self._events.get_nowait()
