"""The engine's side of the server: the loop that computes, and its messages over the connection."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from socket import socket

from specops.engine.request import Counters, Emission, Sampling, Streaming
from specops.errors import UsageError
from specops.serve import worker_process
from specops.serve.worker_process import Nursery, Starting, Worker, obey


@dataclass(frozen=True)
class Submit:
    """Start the sequences of a request: all of them, or none if the engine refuses one."""

    sequences: list[tuple[int, list[int], Sampling]]  # key, prompt, sampling


@dataclass(frozen=True)
class Cancel:
    """Stop a sequence. One that has ended, or was never submitted, is ignored."""

    key: int


Command = Submit | Cancel | None
"""None: stop."""


@dataclass(frozen=True)
class EngineLoad:
    """The load of the engine, and its counters since it started."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0  # 0 to 1
    counters: Counters = field(default_factory=Counters)
    unavailable: str | None = None  # why nothing can be generated
    extra: object = None  # counters that only this kind of engine has


@dataclass(frozen=True)
class Ready:
    """The first message: the engine is loaded."""

    max_length: int  # prompt and output tokens of one sequence
    load: EngineLoad
    model: str | None = None  # where only the engine knows


@dataclass(frozen=True)
class StepResult:
    """The result of a step, all read at one instant, so that it is consistent."""

    started: float  # seconds of time.perf_counter, which all processes of a machine share
    ended: float
    tokens: int  # prompt tokens read and tokens generated
    scheduled: list[int]  # keys of sequences that began to run
    emissions: list[tuple[int, Emission]]  # by key
    load: EngineLoad


@dataclass(frozen=True)
class RequestRefused:
    """The engine refuses a request, named by the key of its first sequence."""

    key: int
    message: str


@dataclass(frozen=True)
class Failed:
    """The engine is broken; the last message."""

    error: str


def in_thread(engine: Streaming) -> Worker:
    """A worker whose connection takes commands and gives StepResult and RequestRefused, and Failed if the
    engine breaks. Its `ready` is a Ready."""
    return worker_process.in_thread(engine, _work)


def in_process(make: Callable[[], Streaming], inherited: list[socket]) -> AbstractContextManager[Worker]:
    """Return a worker as `in_thread` does, with an engine that `make` loads in a process of its own
    (worker_process.py)."""
    return worker_process.in_process(make, _work, inherited)


def starting(
    make: Callable[[], Streaming], inherited: list[socket]
) -> AbstractContextManager[Callable[[], Worker]]:
    """Start a worker as `in_process` does, but return a function that waits for it (worker_process.py)."""
    return worker_process.starting(make, _work, inherited)


def start_in(nursery: Nursery, make: Callable[[], Streaming]) -> Starting:
    """Start a worker, with an engine that the picklable `make` loads, in a process of its own."""
    return nursery.start(make, _work)


def _work(engine: Streaming, connection: Connection) -> None:
    obey(connection, _Working(engine, connection).run, Failed)


class _Working:
    def __init__(self, engine: Streaming, connection: Connection) -> None:
        self._engine = engine
        self._connection = connection
        self._keys: dict[int, int] = {}  # by the engine's id: of what waits or runs
        self._ids: dict[int, int] = {}  # by key
        self._queued: deque[int] = deque()  # keys given to the engine, which starts them in this order

    def run(self, commands: queue.SimpleQueue[Command]) -> None:
        self._connection.send(Ready(self._engine.max_length, self._load(), self._engine.model))
        while self._obey(commands):
            self._connection.send(self._turn())

    def _obey(self, commands: queue.SimpleQueue[Command]) -> bool:
        """Carry out all commands; wait for one if there is nothing to compute. False: stop."""
        wait = self._engine.idle
        while True:
            try:
                command = commands.get(block=wait, timeout=self._engine.looks_up)
            except queue.Empty:
                return True
            if command is None:
                return False
            if isinstance(command, Submit):
                self._submit(command)
            else:
                self._cancel(command.key)
            wait = False

    def _turn(self) -> StepResult:
        before = self._engine.counters.computed_tokens
        started = time.perf_counter()
        emissions = self._engine.step()
        ended = time.perf_counter()
        load = self._load()
        scheduled = [self._queued.popleft() for _ in range(len(self._queued) - load.waiting)]
        by_key = []
        for emission in emissions:
            key = self._keys[emission.sequence_id]
            by_key.append((key, emission))
            if emission.finish_reason is not None:
                del self._keys[emission.sequence_id], self._ids[key]
        tokens = load.counters.computed_tokens - before
        return StepResult(started, ended, tokens, scheduled, by_key, load)

    def _load(self) -> EngineLoad:
        engine = self._engine
        return EngineLoad(
            engine.running, engine.waiting, engine.kv_usage, engine.counters, engine.unavailable, engine.extra
        )

    def _submit(self, request: Submit) -> None:
        for key, prompt, sampling in request.sequences:
            try:
                identity = self._engine.submit(prompt, sampling)
            except UsageError as error:
                for submitted, *_ in request.sequences:
                    self._cancel(submitted)
                self._connection.send(RequestRefused(request.sequences[0][0], error.message))
                return
            self._keys[identity], self._ids[key] = key, identity
            self._queued.append(key)

    def _cancel(self, key: int) -> None:
        identity = self._ids.pop(key, None)
        if identity is not None:
            del self._keys[identity]
            self._engine.cancel(identity)
            if key in self._queued:
                self._queued.remove(key)
