"""The engine's thread, and the only door to it.

The engine is single-threaded and a step takes milliseconds, so it runs in one thread of its own. The event
loop asks through a queue of commands; the thread answers once a step with everything that the step
produced, so that the two meet as seldom as possible.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from specops.engine import Engine
from specops.errors import UsageError
from specops.serve.generation import Generation, Job, Load, Sequence, Step
from specops.serve.metrics import ServerMetrics
from specops.serve.refusal import Refusal

log = logging.getLogger(__name__)


class EngineLoop:
    """Runs an engine for many requests at once. All public methods are for the event loop's thread."""

    def __init__(self, engine: Engine, metrics: ServerMetrics, capacity: int) -> None:
        """`capacity`: the most sequences that may run or wait at a time."""
        self._engine = engine
        self._metrics = metrics
        self.capacity = capacity
        self.failure: Exception | None = None  # what broke the engine; it takes no more work then
        self._active: set[Sequence] = set()
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._queued: deque[Sequence] = deque()  # given to the engine, which starts them in this order
        self._running: dict[int, Sequence] = {}  # by the engine's id; includes the queued ones

    def start(self) -> None:
        """Begin to work; results go to the running event loop."""
        self._events = asyncio.get_running_loop()
        self._metrics.load = self._load()
        self._thread.start()

    async def stop(self) -> None:
        """End the thread after the step that it is in."""
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)

    @contextmanager
    def generation(self, jobs: list[Job]) -> Iterator[Generation]:
        """Generate `jobs` together. Leaving the block takes back whatever is unfinished.

        Raises Refusal: 429 when the queue is full, 503 when the engine has failed.
        """
        self._admit(len(jobs))
        generation = Generation(jobs, arrived=time.perf_counter())
        self._active.update(generation.sequences)
        self._commands.put(partial(self._submit, generation))
        try:
            yield generation
        finally:
            for sequence in generation.sequences:
                if not sequence.ended:
                    self._end(sequence)
                    self._metrics.finished["abort"] += 1
                    self._commands.put(partial(self._cancel, sequence))

    def refuse_all(self, refusal: Refusal) -> int:
        """End every request with `refusal`; returns how many sequences that cut short."""
        cut = len(self._active)
        for generation in {sequence.generation for sequence in self._active}:
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
        self.refuse_more_than_fits(count)
        if len(self._active) + count > self.capacity:
            raise Refusal(
                429,
                f"the queue is full: {len(self._active)} sequences of at most {self.capacity}",
                code="queue_full",
                headers={"Retry-After": "1"},
            )

    def _end(self, sequence: Sequence) -> None:
        sequence.ended = True
        self._active.discard(sequence)

    def _deliver(self, step: Step) -> None:
        for sequence in step.scheduled:
            sequence.scheduled = step.started
        self._metrics.turn(step)
        for sequence, emission in step.emissions:
            if sequence.ended:  # cancelled while the engine was in this step
                continue
            self._metrics.output(sequence, emission, step.ended)
            if emission.finish_reason is not None:
                self._end(sequence)
            sequence.generation.put(sequence.index, emission)

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self.refuse_all(Refusal(500, "the engine failed while it generated", code="engine_failed"))

    # What follows runs in the engine's thread.

    def _run(self) -> None:
        try:
            while self._obey():
                self._events.call_soon_threadsafe(self._deliver, self._turn())
        except Exception as error:  # whatever it was, the engine's state can no longer be trusted
            log.exception("the engine failed")
            self._events.call_soon_threadsafe(self._fail, error)

    def _obey(self) -> bool:
        """Carry out what has been asked, waiting for it when there is nothing to compute. False: stop."""
        wait = self._engine.idle
        while True:
            try:
                command = self._commands.get(block=wait)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()
            wait = False

    def _turn(self) -> Step:
        before = self._engine.counters.prompt_tokens + self._engine.counters.generated_tokens
        started = time.perf_counter()
        emissions = self._engine.step()
        ended = time.perf_counter()
        load = self._load()
        scheduled = [self._queued.popleft() for _ in range(len(self._queued) - load.waiting)]
        owned = []
        for emission in emissions:
            owned.append((self._running[emission.sequence_id], emission))
            if emission.finish_reason is not None:
                del self._running[emission.sequence_id]
        tokens = load.counters.prompt_tokens + load.counters.generated_tokens - before
        return Step(started, ended, tokens, scheduled, owned, load)

    def _load(self) -> Load:
        engine = self._engine
        counters = replace(engine.counters, accepted_per_position=list(engine.counters.accepted_per_position))
        return Load(engine.running, engine.waiting, engine.kv_usage, counters)

    def _submit(self, generation: Generation) -> None:
        """All sequences of a request, or none: a prompt that the engine refuses refuses the request."""
        for sequence in generation.sequences:
            try:
                sequence.id = self._engine.submit(sequence.job.prompt, sequence.job.sampling)
            except UsageError as error:
                for submitted in generation.sequences:
                    self._cancel(submitted)
                refusal = Refusal(400, error.message, param="prompt")
                self._events.call_soon_threadsafe(generation.refuse, refusal)
                return
            self._running[sequence.id] = sequence
            self._queued.append(sequence)

    def _cancel(self, sequence: Sequence) -> None:
        if sequence.id is not None and self._running.pop(sequence.id, None) is not None:
            self._engine.cancel(sequence.id)
            if sequence in self._queued:
                self._queued.remove(sequence)
