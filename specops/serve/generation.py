"""A request on its way through the engine: its sequences, and what they have produced so far."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from specops.engine.request import Emission, Sampling
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
    key: int  # what the worker calls it
    index: int  # the choice that it becomes
    job: Job
    arrived: float
    scheduled: float | None = None
    first_output: float | None = None
    last_output: float | None = None
    generated: int = 0  # tokens


class Generation:
    """The sequences of one request. Lives in the event loop; one handler reads it."""

    def __init__(self, jobs: list[Job], keys: Iterator[int], arrived: float) -> None:
        """`keys`: gives one that is not in use."""
        self.sequences = [Sequence(self, next(keys), index, job, arrived) for index, job in enumerate(jobs)]
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
