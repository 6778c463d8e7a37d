"""The event loop's side of the engine: requests on their way, and the only connection to the worker.

Commands go to the worker, which answers once a step with everything that the step produced. So the two
processes exchange as few messages as possible.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count

from specops.engine.request import Emission, Sampling
from specops.serve.admission import Refusal
from specops.serve.engine_worker import Cancel, Command, Failed, RequestRefused, StepResult, Submit
from specops.serve.limits import DEFAULT, Limits
from specops.serve.metrics import ServerMetrics, Timeline
from specops.serve.worker_process import Worker


@dataclass(frozen=True)
class Job:
    """One sequence to generate."""

    prompt: list[int]  # token ids
    sampling: Sampling


@dataclass(eq=False)
class Sequence:
    """One sequence of a request."""

    generation: Generation
    key: int  # its name in the messages to and from the worker
    index: int  # the choice that it becomes
    job: Job
    timeline: Timeline


class Generation:
    """The sequences of one request. Lives in the event loop; one handler reads it."""

    def __init__(self, jobs: list[Job], keys: Iterator[int], arrived: float) -> None:
        """`keys` gives unused keys. `arrived`: seconds of time.perf_counter."""
        self.sequences = [
            Sequence(self, next(keys), index, job, Timeline(arrived)) for index, job in enumerate(jobs)
        ]
        self._unfinished = len(jobs)  # sequences whose last emission has not been read
        self._output: list[tuple[int, Emission]] = []
        self._refusal: Refusal | None = None
        self._news = asyncio.Event()

    @property
    def finished(self) -> bool:
        """Return whether every sequence's last emission has been read."""
        return self._unfinished == 0

    def put(self, index: int, emission: Emission) -> None:
        """Hand `emission` of choice `index` to the reader."""
        self._output.append((index, emission))
        self._news.set()

    def refuse(self, refusal: Refusal) -> None:
        """Raise `refusal` in the reader, after the output that was put before."""
        self._refusal = refusal
        self._news.set()

    async def next(self) -> list[tuple[int, Emission]]:
        """Wait for output and return all of it, as (choice index, emission).

        Raises the Refusal of `refuse` once no output is left before it.
        """
        await self._news.wait()
        if not self._output:
            assert self._refusal is not None
            raise self._refusal
        output, self._output = self._output, []
        self._unfinished -= sum(emission.finish_reason is not None for _, emission in output)
        if self._refusal is None:
            self._news.clear()
        return output


class EngineLoop:
    """Runs an engine for many requests at once."""

    def __init__(
        self, worker: Worker, metrics: ServerMetrics, capacity: int, limits: Limits = DEFAULT
    ) -> None:
        """`capacity`: the most sequences that may run or wait at a time."""
        self._worker = worker
        self._metrics = metrics
        self._limits = limits
        self.capacity = capacity
        self._heard = asyncio.Event()  # a message of the worker, since the last `answers`
        self._due_since: float | None = None  # something was sent, and nothing was heard since
        self._longest_step_s = 0.0
        self.failure: str | None = None  # what broke the engine; it takes no more work then
        self.failed = asyncio.Event()
        self._keys = count()
        self._active: dict[int, Sequence] = {}  # by key
        metrics.load = worker.ready.load

    @property
    def unavailable(self) -> str | None:
        """Return why nothing can be generated at the moment; the reason may pass."""
        return self._metrics.load.unavailable

    def start(self) -> None:
        """Begin to listen to the worker, in the running event loop."""
        self._events = asyncio.get_running_loop()
        self._events.add_reader(self._worker.connection, self._read)

    async def stop(self) -> None:
        """End the worker after its current step. A second call does nothing."""
        if self._worker.connection.closed:
            return
        self._events.remove_reader(self._worker.connection)
        self._send(None)
        await asyncio.to_thread(self._worker.join)
        self._worker.connection.close()

    @contextmanager
    def generation(self, jobs: list[Job]) -> Iterator[Generation]:
        """Generate `jobs` together. Leaving the block cancels what is unfinished.

        Raises Refusal: 429 if the queue is full, 503 if the engine has failed or is unavailable.
        """
        self._admit(len(jobs))
        generation = Generation(jobs, self._keys, arrived=time.perf_counter())
        self._active.update((sequence.key, sequence) for sequence in generation.sequences)
        self._send(Submit([(s.key, s.job.prompt, s.job.sampling) for s in generation.sequences]))
        limit_s = self._limits.queue_s
        ends = asyncio.get_running_loop().call_later(limit_s, self._end_if_waiting, generation, limit_s)
        try:
            yield generation
        finally:
            ends.cancel()
            for sequence in generation.sequences:
                if self._active.pop(sequence.key, None) is not None:
                    self._metrics.finished["abort"] += 1
                    self._send(Cancel(sequence.key))

    @staticmethod
    def _end_if_waiting(generation: Generation, limit_s: float) -> None:
        if all(sequence.timeline.scheduled is None for sequence in generation.sequences):
            message = f"the request waited for {limit_s:g} s without a place in the batch"
            generation.refuse(Refusal(503, message, code="queue_timeout", headers={"Retry-After": "5"}))

    async def answers(self) -> bool:
        """Return whether the worker lives: it sends a message in time if it has work; else it answers a
        question."""
        if not self._active:
            self._heard.clear()
            self._send(Submit([]))  # nothing to start: a step without work
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heard.wait(), self._limits.idle_answer_s)
            return self._heard.is_set()
        limit_s = max(self._limits.step_s, 4 * self._longest_step_s)
        return self._due_since is None or time.perf_counter() - self._due_since < limit_s

    def refuse_all(self, refusal: Refusal) -> int:
        """End every request with `refusal`; returns the number of unfinished sequences."""
        cut = len(self._active)
        for generation in {sequence.generation for sequence in self._active.values()}:
            generation.refuse(refusal)
        return cut

    def refuse_more_than_fits(self, count: int) -> None:
        """Raise Refusal (400) if even an idle engine could not hold a request of `count` sequences."""
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

    def _send(self, command: Command) -> None:
        if self._due_since is None:
            self._due_since = time.perf_counter()
        with suppress(OSError):  # `_read` notices a dead worker
            self._worker.connection.send(command)

    def _read(self) -> None:
        try:
            while self._worker.connection.poll():
                message = self._worker.connection.recv()
                if isinstance(message, StepResult):
                    self._deliver(message)
                elif isinstance(message, RequestRefused):
                    self._refuse(message)
                else:
                    self._fail(message)
                self._due_since = time.perf_counter() if self._active else None
                self._heard.set()
        except (EOFError, OSError):
            self._fail(Failed("its process has ended"))

    def _deliver(self, turn: StepResult) -> None:
        self._longest_step_s = max(self._longest_step_s, turn.ended - turn.started)
        for key in turn.scheduled:
            if key in self._active:
                self._active[key].timeline.scheduled = turn.started
        self._metrics.turn(turn)
        for key, emission in turn.emissions:
            sequence = self._active.get(key)
            if sequence is None:  # cancelled while the engine was in this step
                continue
            if emission.finish_reason == "error":
                del self._active[key]
                self._metrics.finished["error"] += 1
                sequence.generation.refuse(Refusal(500, f"{emission.error}", code="not_finite"))
                continue
            if emission.error is not None:  # stays active until its reader has got the refusal
                sequence.generation.refuse(Refusal(503, emission.error, code="cut_off"))
                continue
            self._metrics.output(sequence.timeline, emission, turn.ended)
            if emission.finish_reason is not None:
                del self._active[key]
            sequence.generation.put(sequence.index, emission)

    def _refuse(self, refused: RequestRefused) -> None:
        if sequence := self._active.get(refused.key):
            sequence.generation.refuse(Refusal(400, refused.message, param="prompt"))

    def _fail(self, failed: Failed) -> None:
        if self.failure is None:
            self._events.remove_reader(self._worker.connection)
            self.failure = failed.error
            self.failed.set()
            self.refuse_all(Refusal(500, "the engine failed while it generated", code="engine_failed"))
