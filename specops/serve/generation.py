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
        self._unfinished = len(jobs)  # sequences whose last emission has not been read
        self._output: list[tuple[int, Emission]] = []
        self._refusal: Refusal | None = None
        self._news = asyncio.Event()

    @property
    def finished(self) -> bool:
        """Every sequence's last emission has been read."""
        return self._unfinished == 0

    def put(self, index: int, emission: Emission) -> None:
        """Hand `emission` of choice `index` to the reader."""
        self._output.append((index, emission))
        self._news.set()

    def refuse(self, refusal: Refusal) -> None:
        """Raise `refusal` in the reader, after what has been put before."""
        self._refusal = refusal
        self._news.set()

    async def next(self) -> list[tuple[int, Emission]]:
        """Wait for output -> all there is, as (choice index, emission). Raises what `refuse` was given."""
        await self._news.wait()
        if not self._output:
            assert self._refusal is not None
            raise self._refusal
        output, self._output = self._output, []
        self._unfinished -= sum(emission.finish_reason is not None for _, emission in output)
        if self._refusal is None:
            self._news.clear()
        return output
