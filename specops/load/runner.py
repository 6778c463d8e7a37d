"""Drives one cell of a measurement: every prompt once, at one level of load, in one window.

The turns of a session go out one after the other. A session is what a stream works through, and what arrives
in an open loop; a prompt by itself is a session of one turn.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle

from specops.load.answer import CountTokens, Failure
from specops.load.arrivals import Aborted, Level, Pace, Watch, offsets
from specops.load.client import Client
from specops.load.record import Cell
from specops.load.request_times import Exchange, Observation, Part
from specops.load.settings import MAX_IN_FLIGHT
from specops.load.workload import Prompt, sessions_of
from specops.progress import Progress

Session = Sequence[Prompt]


class Interrupted(asyncio.CancelledError):
    """The run was cancelled in the middle of a cell; `cell` is what it had measured."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell


class CellFailed(Exception):
    """A fault, its `__cause__`, ended the run in the middle of a cell; `cell` is what it had measured."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell


class _Window:
    """The exchanges of one cell; `watch` judges them together with those of the cells before."""

    def __init__(self, watch: Watch | None) -> None:
        self.exchanges: list[Exchange] = []
        self._watch = watch

    def add(self, exchange: Exchange) -> None:
        """Keep a finished exchange; raise Aborted where the watch says to stop."""
        self.exchanges.append(exchange)
        if self._watch:
            self._watch.add(exchange)

    async def carry_out(self, client: Client, exchange: Exchange, pace: Pace) -> None:
        """Have it sent and keep it, also where it is stopped on the way: a request that left counts."""
        if self._watch:
            self._watch.begin(exchange)
        try:
            await client.carry_out(exchange, pace)
        except BaseException as stop:
            if exchange.first_sent:
                cause = "the run was stopped" if isinstance(stop, asyncio.CancelledError) else repr(stop)
                exchange.failure = Failure("interrupted", f"{cause} before the answer was whole"[:300])
                self.exchanges.append(exchange)
            raise
        self.add(exchange)


async def run_cell(
    client: Client,
    prompts: Sequence[Prompt],
    level: Level,
    repeat: int,
    *,
    seed: int,
    pace: Pace,
    progress: Progress,
    watch: Watch | None = None,
    count_tokens: CountTokens | None = None,
    fillers: Sequence[Prompt] = (),
    think_time: float = 0.0,
    live_answers: bool = False,
) -> Cell:
    """Send every prompt once. Before a later turn of a session its stream waits `think_time` times as long as
    was recorded, and that is no load. What ends it early carries what was measured: `Interrupted` when it is
    cancelled, `CellFailed` from an exception that no endpoint is known to cause.

    With `fillers`, all streams of a closed loop are full while any prompt is answered: each begins with a
    filler, and goes on with fillers until the last prompt is answered. So a stream that idles at the end does
    not count as load, and no answer is left out because it is long.

    With `live_answers`, a later turn follows on the server's own answers, in place of recorded ones.

    The order and the arrivals depend on `seed` and `repeat` alone: every arm of a comparison gets the same.
    In a replay, each prompt has its own instant.
    """
    order = sessions_of(prompts)
    if not level.replay:
        random.Random(f"{seed}:{repeat}").shuffle(order)
    window = _Window(watch)
    aborted: str | None = None
    interrupted = False
    fault: Exception | None = None
    try:
        with _collector_off():
            if level.concurrency is not None:
                await _closed_loop(
                    client,
                    order,
                    level.concurrency,
                    window,
                    pace,
                    progress,
                    sessions_of(fillers),
                    think_time=think_time,
                    live_answers=live_answers,
                )
            else:
                await _open_loop(
                    client,
                    order,
                    level,
                    seed + repeat,
                    window,
                    pace,
                    progress,
                    think_time=think_time,
                    live_answers=live_answers,
                )
    except* Aborted as group:
        aborted = str(group.exceptions[0])
    except* asyncio.CancelledError:
        interrupted = True
    except* Exception as group:
        fault = group.exceptions[0]
    observations = tuple(exchange.observe(count_tokens) for exchange in window.exchanges)
    cell = Cell(level, repeat, observations, not (aborted or interrupted or fault), aborted)
    if interrupted:
        raise Interrupted(cell)
    if fault:
        raise CellFailed(cell) from fault
    return cell


async def warm_up(
    client: Client,
    prompts: Sequence[Prompt],
    count: int,
    level: Level,
    pace: Pace,
    count_tokens: CountTokens | None = None,
) -> tuple[Observation, ...]:
    """Send `count` requests at the level's concurrency: connections, caches, first shapes. Their times
    are not compared; that one fails or hangs counts."""
    window = _Window(None)
    order = [[prompts[i % len(prompts)]] for i in range(count)]
    if order:
        await _closed_loop(client, order, level.concurrency or 1, window, pace, None, part="warm-up")
    return tuple(exchange.observe(count_tokens) for exchange in window.exchanges)


async def _closed_loop(
    client: Client,
    order: Sequence[Session],
    workers: int,
    window: _Window,
    pace: Pace,
    progress: Progress | None,
    fillers: Sequence[Session] = (),
    part: Part = "counted",
    think_time: float = 0.0,
    live_answers: bool = False,
) -> None:
    queue, filling = iter(order), cycle(fillers)
    open_ = len(order)
    start = time.perf_counter()

    async def send(prompt: Prompt, due: float, part: Part) -> Exchange:
        exchange = Exchange(prompt, scheduled=due, part=part)
        await window.carry_out(client, exchange, pace)
        if progress and part == "counted":
            _report(progress, exchange)
        return exchange

    async def work() -> None:
        nonlocal open_
        free_since = (await send(next(filling)[0], start, "fill")).ended if fillers else start
        for session in queue:  # one iterator for all workers: each session goes to one of them
            free_since = await _converse(
                session, free_since, think_time, lambda prompt, due: send(prompt, due, part), live_answers
            )
            open_ -= 1
        while fillers and open_:
            for prompt in next(filling):  # turns with the recorded history: their times are not compared
                if open_:
                    free_since = (await send(prompt, free_since, "fill")).ended

    async with asyncio.TaskGroup() as group:
        for _ in range(workers if fillers else min(workers, len(order))):
            group.create_task(work())


async def _converse(
    session: Session,
    due: float,
    think_time: float,
    send: Callable[[Prompt, float], Awaitable[Exchange]],
    live_answers: bool,
) -> float:
    """Send the turns of a session, each when the answer before it has come and its user has thought; return
    when the last answer has come. Also a turn after one that failed: its history is recorded."""
    before: Prompt | None = None
    exchange: Exchange | None = None
    for turn in session:
        prompt = turn
        if live_answers and before is not None and exchange is not None:
            prompt = turn.continuing(before, exchange.prompt, _own_text(exchange))
            due = time.perf_counter()  # the time to read the answer is not the client's delay
        if think_time and turn.think_s:
            due += think_time * turn.think_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        before, exchange = turn, await send(prompt, due)
        due = exchange.ended
    return due


def _own_text(exchange: Exchange) -> str | None:
    """The text of an answer as a client puts it into the history, without its reasoning; None of a failed
    one."""
    answer = exchange.observe(None).answer
    return answer.text[answer.reasoning :] if answer.failure is None else None


async def _open_loop(
    client: Client,
    order: Sequence[Session],
    level: Level,
    seed: int,
    window: _Window,
    pace: Pace,
    progress: Progress,
    *,
    think_time: float,
    live_answers: bool,
) -> None:
    """Sessions arrive at such instants that their requests come at the level's rate, on average."""
    assert level.rate is not None
    in_flight = 0

    async def send(prompt: Prompt, scheduled: float) -> Exchange:
        exchange = Exchange(prompt, scheduled=scheduled, from_due=bool(level.replay))
        await window.carry_out(client, exchange, pace)
        _report(progress, exchange)
        return exchange

    async def hold(session: Session, scheduled: float) -> None:
        nonlocal in_flight
        in_flight += 1
        try:
            await _converse(session, scheduled, think_time, send, live_answers)
        finally:
            in_flight -= 1

    rate = level.rate * len(order) / max(1, sum(map(len, order)))
    if level.replay:
        instants = [session[0].due_s or 0.0 for session in order]
    else:
        instants = offsets(rate, len(order), burstiness=level.burstiness, seed=seed)
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for session, offset in zip(order, instants, strict=True):
            scheduled = start + offset
            await asyncio.sleep(max(0.0, scheduled - time.perf_counter()))
            if in_flight < MAX_IN_FLIGHT:
                group.create_task(hold(session, scheduled))
            else:
                for prompt in session:
                    window.add(_not_sent(prompt, scheduled))


def _report(progress: Progress, exchange: Exchange) -> None:
    """Report progress, for a display only: events are counted in the bytes, since nothing is parsed while
    requests run."""
    if exchange.failure is None:
        events = sum(content.count(b"data:") for _, content in exchange.reads)
        progress.request(exchange.ended - exchange.scheduled, events)
    progress.advance()


def _not_sent(prompt: Prompt, scheduled: float) -> Exchange:
    failure = Failure("overrun", f"not sent: {MAX_IN_FLIGHT} requests were in flight already")
    return Exchange(
        prompt, scheduled=scheduled, first_sent=scheduled, sent=scheduled, ended=scheduled, failure=failure
    )


@contextmanager
def _collector_off() -> Iterator[None]:
    """No garbage collection inside a measured window: a full pass would delay every stamp it overlaps.

    None before it either: a pass takes a tenth of a second, and more beside an engine, and a comparison has
    hundreds of windows. What a window leaves is collected after it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
