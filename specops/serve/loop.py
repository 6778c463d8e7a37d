"""The event loop's side of the engine, and the only door to it.

Commands go to the worker, which answers once a step with everything that the step produced, so that the two
meet as seldom as possible.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

from specops.serve.generation import Generation, Job, Sequence
from specops.serve.metrics import ServerMetrics
from specops.serve.process import Worker
from specops.serve.refusal import Refusal
from specops.serve.worker import Cancel, Command, Failed, Refused, Submit, Turn


class EngineLoop:
    """Runs an engine for many requests at once."""

    def __init__(self, worker: Worker, metrics: ServerMetrics, capacity: int) -> None:
        """`capacity`: the most sequences that may run or wait at a time."""
        self._worker = worker
        self._metrics = metrics
        self.capacity = capacity
        self.failure: str | None = None  # what broke the engine; it takes no more work then
        self.failed = asyncio.Event()
        self._keys = count()
        self._active: dict[int, Sequence] = {}  # by key
        metrics.load = worker.ready.load

    @property
    def unavailable(self) -> str | None:
        """Why nothing can be generated at the moment; it may pass."""
        return self._metrics.load.unavailable

    def start(self) -> None:
        """Begin to listen to the worker, in the running event loop."""
        self._events = asyncio.get_running_loop()
        self._events.add_reader(self._worker.connection, self._hear)

    async def stop(self) -> None:
        """End the worker after the step that it is in. Once it has ended, there is nothing more to do."""
        if self._worker.connection.closed:
            return
        self._events.remove_reader(self._worker.connection)
        self._tell(None)
        await asyncio.to_thread(self._worker.join)
        self._worker.connection.close()

    @contextmanager
    def generation(self, jobs: list[Job]) -> Iterator[Generation]:
        """Generate `jobs` together. Leaving the block takes back whatever is unfinished.

        Raises Refusal: 429 when the queue is full, 503 when the engine has failed.
        """
        self._admit(len(jobs))
        generation = Generation(jobs, self._keys, arrived=time.perf_counter())
        self._active.update((sequence.key, sequence) for sequence in generation.sequences)
        asked = [(s.key, s.job.prompt, s.job.sampling) for s in generation.sequences]
        self._tell(Submit(asked))
        try:
            yield generation
        finally:
            for sequence in generation.sequences:
                if self._active.pop(sequence.key, None) is not None:
                    self._metrics.finished["abort"] += 1
                    self._tell(Cancel(sequence.key))

    def refuse_all(self, refusal: Refusal) -> int:
        """End every request with `refusal`; returns how many sequences that cut short."""
        cut = len(self._active)
        for generation in {sequence.generation for sequence in self._active.values()}:
            generation.refuse(refusal)
        return cut

    def refuse_more_than_fits(self, count: int) -> None:
        """Refuse a request of `count` sequences that could not be served even by an idle engine."""
        if count > self.capacity:
            raise Refusal(
                400, f"{count} sequences in one request; this server holds {self.capacity}", param="n"
            )

    def _admit(self, count: int) -> None:
        if self.failure is not None:
            raise Refusal(503, "the engine has failed; the server must be restarted", code="engine_failed")
        if self.unavailable is not None:
            raise Refusal(503, self.unavailable, code="unavailable", headers={"Retry-After": "5"})
        self.refuse_more_than_fits(count)
        if len(self._active) + count > self.capacity:
            raise Refusal(
                429,
                f"the queue is full: {len(self._active)} sequences of at most {self.capacity}",
                code="queue_full",
                headers={"Retry-After": "1"},
            )

    def _tell(self, command: Command) -> None:
        with suppress(OSError):  # a worker that has died is heard of by `_hear`
            self._worker.connection.send(command)

    def _hear(self) -> None:
        try:
            while self._worker.connection.poll():
                said = self._worker.connection.recv()
                if isinstance(said, Turn):
                    self._deliver(said)
                elif isinstance(said, Refused):
                    self._refuse(said)
                else:
                    self._fail(said)
        except (EOFError, OSError):
            self._fail(Failed("its process has ended"))

    def _deliver(self, turn: Turn) -> None:
        for key in turn.scheduled:
            if key in self._active:
                self._active[key].scheduled = turn.started
        self._metrics.turn(turn)
        for key, emission in turn.emissions:
            sequence = self._active.get(key)
            if sequence is None:  # cancelled while the engine was in this step
                continue
            if emission.error is not None:  # it is not active any more once its reader has heard
                sequence.generation.refuse(Refusal(503, emission.error, code="cut_off"))
                continue
            self._metrics.output(sequence, emission, turn.ended)
            if emission.finish_reason is not None:
                del self._active[key]
            sequence.generation.put(sequence.index, emission)

    def _refuse(self, refused: Refused) -> None:
        if sequence := self._active.get(refused.key):
            sequence.generation.refuse(Refusal(400, refused.message, param="prompt"))

    def _fail(self, failed: Failed) -> None:
        if self.failure is None:
            self._events.remove_reader(self._worker.connection)
            self.failure = failed.error
            self.failed.set()
            self.refuse_all(Refusal(500, "the engine failed while it generated", code="engine_failed"))
