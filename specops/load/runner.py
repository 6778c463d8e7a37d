"""Drives one cell of a measurement: every prompt once, at one level of load, in one window."""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from specops.load.answer import CountTokens, Failure
from specops.load.arrivals import Level, offsets
from specops.load.client import Client
from specops.load.endpoint import MAX_IN_FLIGHT
from specops.load.observation import Exchange, Observation
from specops.load.workload import Prompt
from specops.progress import Progress


@dataclass(frozen=True)
class AbortRule:
    """When to leave an endpoint in peace: judged over the last `window` requests of a cell."""

    error_share: float = 0.5
    e2e_s: float | None = None
    """Bound of the median end-to-end latency."""

    window: int = 20


@dataclass(frozen=True)
class Cell:
    level: Level
    repeat: int
    observations: tuple[Observation, ...]
    complete: bool
    """False when it was aborted or interrupted: then some prompts have no observation."""

    aborted: str | None = None

    @property
    def started(self) -> float:
        return min((o.first_sent for o in self.observations), default=0.0)

    @property
    def wall_s(self) -> float:
        """First request sent to last answer ended."""
        return max((o.ended for o in self.observations), default=0.0) - self.started


class Interrupted(asyncio.CancelledError):
    """The run was cancelled in the middle of a cell; `cell` is what it had measured."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell


class _Aborted(Exception):
    pass


class Pace:
    """Keeps requests at least 1/`max_rps` seconds apart, whoever sends them."""

    def __init__(self, max_rps: float | None) -> None:
        self._gap = 1 / max_rps if max_rps else 0.0
        self._next = 0.0

    async def turn(self) -> None:
        now = time.perf_counter()
        at = max(now, self._next)
        self._next = at + self._gap
        if at > now:
            await asyncio.sleep(at - now)


@dataclass
class _Window:
    rule: AbortRule | None
    exchanges: list[Exchange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._last: deque[Exchange] = deque(maxlen=self.rule.window if self.rule else 1)

    def add(self, exchange: Exchange) -> None:
        """Keep a finished exchange; raise once the rule says to stop."""
        self.exchanges.append(exchange)
        self._last.append(exchange)
        if self.rule is None or len(self._last) < self.rule.window:
            return
        failed = sum(e.failure is not None for e in self._last)
        if failed > self.rule.error_share * self.rule.window:
            raise _Aborted(f"{failed} of the last {self.rule.window} requests failed")
        latency = statistics.median(e.ended - e.sent for e in self._last)
        if self.rule.e2e_s is not None and latency > self.rule.e2e_s:
            raise _Aborted(
                f"the median latency of the last {self.rule.window} requests was {latency:.2f} s, "
                f"above the bound of {self.rule.e2e_s:g} s"
            )


async def run_cell(
    client: Client,
    prompts: Sequence[Prompt],
    level: Level,
    repeat: int,
    *,
    seed: int,
    pace: Pace,
    progress: Progress,
    abort: AbortRule | None = None,
    count_tokens: CountTokens | None = None,
) -> Cell:
    """Send every prompt once. Raises `Interrupted` with what was measured when it is cancelled.

    The order and the arrivals depend on `seed` and `repeat` alone: every arm of a comparison gets the same.
    """
    order = list(prompts)
    random.Random(f"{seed}:{repeat}").shuffle(order)
    window = _Window(abort)
    aborted: str | None = None
    interrupted = False
    try:
        with _collector_off():
            if level.concurrency is not None:
                await _closed_loop(client, order, level.concurrency, window, pace, progress)
            else:
                await _open_loop(client, order, level, seed + repeat, window, pace, progress)
    except* _Aborted as group:
        aborted = str(group.exceptions[0])
    except* asyncio.CancelledError:
        interrupted = True
    observations = tuple(exchange.observe(count_tokens) for exchange in window.exchanges)
    cell = Cell(level, repeat, observations, not (aborted or interrupted), aborted)
    if interrupted:
        raise Interrupted(cell)
    return cell


async def warm_up(client: Client, prompts: Sequence[Prompt], count: int, level: Level, pace: Pace) -> None:
    """Send `count` requests at the level's concurrency and forget them: connections, caches, first shapes."""
    if count:
        order = [prompts[i % len(prompts)] for i in range(count)]
        await _closed_loop(client, order, level.concurrency or 1, _Window(None), pace, None)


async def _closed_loop(
    client: Client,
    order: Sequence[Prompt],
    workers: int,
    window: _Window,
    pace: Pace,
    progress: Progress | None,
) -> None:
    queue = iter(order)

    async def work() -> None:
        for prompt in queue:  # one iterator for all workers: each prompt goes to one of them
            await pace.turn()
            window.add(await client.send(prompt))
            if progress:
                progress.advance()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(workers, len(order))):
            group.create_task(work())


async def _open_loop(
    client: Client,
    order: Sequence[Prompt],
    level: Level,
    seed: int,
    window: _Window,
    pace: Pace,
    progress: Progress,
) -> None:
    assert level.rate is not None
    in_flight = 0

    async def send(prompt: Prompt, at: float) -> None:
        nonlocal in_flight
        in_flight += 1
        try:
            window.add(await client.send(prompt, scheduled=at))
        finally:
            in_flight -= 1
        progress.advance()

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for prompt, offset in zip(
            order, offsets(level.rate, len(order), burstiness=level.burstiness, seed=seed), strict=True
        ):
            at = start + offset
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            await pace.turn()
            if in_flight < MAX_IN_FLIGHT:
                group.create_task(send(prompt, at))
            else:
                window.add(_not_sent(prompt, at))


def _not_sent(prompt: Prompt, at: float) -> Exchange:
    failure = Failure("overrun", f"not sent: {MAX_IN_FLIGHT} requests were in flight already")
    return Exchange(prompt, scheduled=at, first_sent=at, sent=at, ended=at, failure=failure)


@contextmanager
def _collector_off() -> Iterator[None]:
    """No garbage collection inside a measured window: a full pass would delay every stamp it overlaps."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()
