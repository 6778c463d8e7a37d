"""The event loop's side of the engine: requests on their way, and the only connections to the workers.

Commands go to a worker, which answers once a step with everything that the step produced. So the two
processes exchange as few messages as possible. Several workers are data parallel: each has the whole model,
and a sequence is decoded by one of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from specops.engine.request import Emission, Sampling
from specops.errors import SpecopsError
from specops.serve.admission import Refusal
from specops.serve.engine_worker import Cancel, Command, Failed, RequestRefused, StepResult, Submit
from specops.serve.limits import DEFAULT, Limits
from specops.serve.metrics import ServerMetrics, Timeline
from specops.serve.placement import Placement
from specops.serve.worker_process import Starting, Worker

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """One sequence to generate."""

    prompt: list[int]  # token ids
    sampling: Sampling


@dataclass(eq=False)
class RequestSequence:
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
            RequestSequence(self, next(keys), index, job, Timeline(arrived)) for index, job in enumerate(jobs)
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


Restart = Callable[[], Starting]
"""Starts a worker's process."""


class WorkerLink:
    """The connection to one worker, and the sequences that it has."""

    def __init__(self, number: int, worker: Worker) -> None:
        self.number, self.worker = number, worker
        self.active: dict[int, RequestSequence] = {}  # by key
        self.heard = asyncio.Event()  # a message, since it was last cleared
        self._busy = False  # as far as is known here: it may be in a step for clients that have gone
        self._due_since: float | None = None  # something is to come, and nothing came since
        self._longest_step_s = 0.0

    def send(self, command: Command) -> None:
        self._busy |= isinstance(command, Submit) and bool(command.sequences)
        if self._due_since is None:
            self._due_since = time.perf_counter()
        with suppress(OSError):  # who reads notices a dead worker
            self.worker.connection.send(command)

    def receive(self) -> Iterator[StepResult | RequestRefused | Failed]:
        """All messages that are there, each to be handled before the next. Raises EOFError or OSError."""
        while self.worker.connection.poll():
            message = self.worker.connection.recv()
            yield message
            if isinstance(message, StepResult):
                self._longest_step_s = max(self._longest_step_s, message.ended - message.started)
                self._busy = message.load.running + message.load.waiting > 0
            self._due_since = time.perf_counter() if self._busy else None
            self.heard.set()

    async def answers(self, limits: Limits) -> bool:
        """Return whether the worker lives: it sends a message in time if it has work; else it answers a
        question."""
        if not self._busy:
            self.heard.clear()
            self.send(Submit([]))  # nothing to start: a step without work
            with suppress(TimeoutError):
                await asyncio.wait_for(self.heard.wait(), limits.idle_answer_s)
            return self.heard.is_set()
        limit_s = max(limits.step_s, 4 * self._longest_step_s)
        return self._due_since is None or time.perf_counter() - self._due_since < limit_s


class EngineLoop:
    """Runs the workers of an engine for many requests at once."""

    def __init__(
        self,
        workers: list[Worker],
        metrics: ServerMetrics,
        capacity: int,
        limits: Limits = DEFAULT,
        *,
        places: int = 1,
        restart: Restart | None = None,
    ) -> None:
        """capacity: the most sequences that may run or wait at a time. places: those that one worker runs at
        a time. restart: starts a worker in place of one that died; without it, the engine has failed then."""
        self._metrics = metrics
        self._limits = limits
        self._restart = restart
        self.capacity = capacity
        self.failure: str | None = None  # what broke the engine; it takes no more work then
        self.failed = asyncio.Event()
        self._keys = count()
        self._placement = Placement(places)
        self._links: list[WorkerLink | None] = [
            WorkerLink(number, worker) for number, worker in enumerate(workers)
        ]
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting: dict[int, Starting] = {}  # by worker
        for link in self._live:
            metrics.begin(link.number, link.worker.ready.load)
        if restart is not None:
            metrics.restarts = 0

    @property
    def _live(self) -> list[WorkerLink]:
        return [link for link in self._links if link is not None]

    @property
    def _active(self) -> int:
        return sum(len(link.active) for link in self._live)

    @property
    def unavailable(self) -> str | None:
        """Return why nothing can be generated at the moment; the reason may pass."""
        if not self._live and self.failure is None:
            return "no engine process is there; one is being started"
        return self._metrics.load.unavailable

    def start(self) -> None:
        """Begin to listen to the workers, in the running event loop."""
        self._events = asyncio.get_running_loop()
        for link in self._live:
            self._events.add_reader(link.worker.connection, self._read, link)
        if self._restart is not None:
            self._run(self._watch())

    async def stop(self) -> None:
        """End the workers after their current step. A second call does nothing."""
        self._restart = None
        for task in self._tasks:
            task.cancel()
        for starting in self._starting.values():
            starting.kill()
        links, self._links = self._live, []
        for link in links:
            self._events.remove_reader(link.worker.connection)
            link.send(None)
        for link in links:
            await asyncio.to_thread(link.worker.join)
            link.worker.connection.close()

    @contextmanager
    def generation(self, jobs: list[Job]) -> Iterator[Generation]:
        """Generate `jobs` together. Leaving the block cancels what is unfinished.

        Raises Refusal: 429 if the queue is full, 503 if the engine has failed or is unavailable.
        """
        self._admit(len(jobs))
        generation = Generation(jobs, self._keys, arrived=time.perf_counter())
        placed: dict[WorkerLink, list[RequestSequence]] = {}
        for sequence in generation.sequences:
            link = self._place(sequence.job.prompt)
            link.active[sequence.key] = sequence
            placed.setdefault(link, []).append(sequence)
        for link, sequences in placed.items():
            link.send(Submit([(s.key, s.job.prompt, s.job.sampling) for s in sequences]))
        limit_s = self._limits.queue_s
        ends = asyncio.get_running_loop().call_later(limit_s, self._end_if_waiting, generation, limit_s)
        try:
            yield generation
        finally:
            ends.cancel()
            for link, sequences in placed.items():
                for sequence in sequences:
                    if link.active.pop(sequence.key, None) is not None:
                        self._metrics.finished["abort"] += 1
                        link.send(Cancel(sequence.key))

    def _place(self, prompt: list[int]) -> WorkerLink:
        loads = [None if link is None else len(link.active) for link in self._links]
        link = self._links[self._placement.place(prompt, loads) if len(loads) > 1 else 0]
        assert link is not None
        return link

    @staticmethod
    def _end_if_waiting(generation: Generation, limit_s: float) -> None:
        if all(sequence.timeline.scheduled is None for sequence in generation.sequences):
            message = f"the request waited for {limit_s:g} s without a place in the batch"
            generation.refuse(Refusal(503, message, code="queue_timeout", headers={"Retry-After": "5"}))

    async def answers(self) -> bool:
        """Return whether a worker lives."""
        return any(await asyncio.gather(*(link.answers(self._limits) for link in self._live)))

    def refuse_all(self, refusal: Refusal) -> int:
        """End every request with `refusal`; returns the number of unfinished sequences."""
        return sum(self._refuse_active(link, refusal) for link in self._live)

    @staticmethod
    def _refuse_active(link: WorkerLink, refusal: Refusal) -> int:
        for generation in {sequence.generation for sequence in link.active.values()}:
            generation.refuse(refusal)
        return len(link.active)

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
        if self._active + count > self.capacity:
            raise Refusal(
                429,
                f"the queue is full: {self._active} sequences of at most {self.capacity}",
                code="queue_full",
                headers={"Retry-After": "1"},
            )

    # --- messages of workers ----------------------------------------------------------------------

    def _read(self, link: WorkerLink) -> None:
        try:
            for message in link.receive():
                if isinstance(message, StepResult):
                    self._deliver(link, message)
                elif isinstance(message, RequestRefused):
                    if sequence := link.active.get(message.key):
                        sequence.generation.refuse(Refusal(400, message.message, param="prompt"))
                else:
                    self._lose(link, message)
                    return
        except (EOFError, OSError):
            self._lose(link, Failed("its process has ended"))

    def _deliver(self, link: WorkerLink, turn: StepResult) -> None:
        active = link.active
        for key in turn.scheduled:
            if key in active:
                active[key].timeline.scheduled = turn.started
        self._metrics.turn(link.number, turn)
        for key, emission in turn.emissions:
            sequence = active.get(key)
            if sequence is None:  # cancelled while the engine was in this step
                continue
            if emission.finish_reason == "error":
                del active[key]
                self._metrics.finished["error"] += 1
                sequence.generation.refuse(Refusal(500, f"{emission.error}", code="not_finite"))
                continue
            if emission.error is not None:  # stays active until its reader has got the refusal
                sequence.generation.refuse(Refusal(503, emission.error, code="cut_off"))
                continue
            self._metrics.output(sequence.timeline, emission, turn.ended)
            if emission.finish_reason is not None:
                del active[key]
            sequence.generation.put(sequence.index, emission)

    # --- workers that die ---------------------------------------------------------------------------

    def _lose(self, link: WorkerLink, failed: Failed) -> None:
        """Fail the requests of a worker that is gone. It is started again, or the engine has failed."""
        if self._restart is None and self.failure is not None:
            return
        self._events.remove_reader(link.worker.connection)
        self._refuse_active(link, Refusal(500, "the engine failed while it generated", code="engine_failed"))
        if self._restart is None:
            self.failure = failed.error
            self.failed.set()
            return
        log.error("worker %d is gone: %s; it is started again", link.number, failed.error)
        self._links[link.number] = None
        self._metrics.end(link.number)
        self._run(self._replace(link))

    async def _replace(self, link: WorkerLink) -> None:
        link.worker.kill()
        await asyncio.to_thread(link.worker.join)
        link.worker.connection.close()
        pause_s = FIRST_PAUSE_S
        while (restart := self._restart) is not None:
            starting = self._starting[link.number] = restart()
            try:
                worker = await asyncio.to_thread(starting.wait)
            except (SpecopsError, RuntimeError) as error:
                log.error("worker %d could not be started again: %s", link.number, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            finally:
                del self._starting[link.number]
            self._links[link.number] = new = WorkerLink(link.number, worker)
            self._metrics.begin(new.number, worker.ready.load)
            self._metrics.restarts = (self._metrics.restarts or 0) + 1
            self._events.add_reader(worker.connection, self._read, new)
            log.info("worker %d serves again", new.number)
            return

    async def _watch(self) -> None:
        """Kill workers that do not answer, so that they are started again."""
        while True:
            await asyncio.sleep(WATCH_S)
            for link in self._live:
                if not await link.answers(self._limits) and link in self._links:
                    log.error("worker %d does not answer", link.number)
                    link.worker.kill()  # its connection ends

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._events.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


WATCH_S = 5.0
"""Seconds between two looks at the workers."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Seconds before a worker that could not be started is tried again; twice as long each time."""
