"""A TCP relay on loopback with the delay, bandwidth and failures of a real path, for measurements and tests.

Every chunk is stamped on arrival and leaves when its time has come, so that a delay changes neither
throughput nor order. TCP's own slow start over a long path is not simulated.
"""

from __future__ import annotations

import asyncio
import random
import select
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

_CHUNK = 2**16
_AHEAD = 256  # chunks under way in one direction; who sends more waits, as on a full path

_UnderWay: TypeAlias = "asyncio.Queue[tuple[float, bytes]]"
"""Departure time of each chunk, and the chunk; an empty one is the end."""


class Relay:
    """A running relay. Changed settings apply to chunks that arrive afterwards."""

    def __init__(self, target_port: int, delay_s: float, jitter_s: float, bandwidth: float | None) -> None:
        self.target_port = target_port
        self.delay_s = delay_s  # each way
        self.jitter_s = jitter_s  # up to so much on top, drawn for each chunk
        self.bandwidth = bandwidth  # bytes a second, each way of each connection; None: no limit
        self.refusing = False  # connections end as soon as they are made
        self.port = 0
        self.connections = 0  # made so far
        self.forwarded = 0  # bytes
        self._random = random.Random(0)
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()  # one a connection

    def cut(self) -> None:
        """Break every connection, and return once all are broken. Data under way is lost."""
        done = threading.Event()
        self._call(self._break)
        self._call(done.set)
        done.wait()

    def _break(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    def _call(self, callback: Callable[[], object]) -> None:
        self._events.call_soon_threadsafe(callback)

    async def serve(self, ready: threading.Event) -> None:
        """Listen until `stop`."""
        self._events, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._over.wait()
        server.close()
        while self._tasks:
            self._break()
            await asyncio.wait(self._tasks, timeout=0.1)  # some may just have begun to connect

    def stop(self) -> None:
        self._call(self._over.set)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            if self.refusing:
                raise ConnectionRefusedError
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, far_writer}
        self._open |= pair
        for end in pair:
            end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._way(reader, far_writer))
                ways.create_task(self._way(far_reader, writer))
        except* OSError:
            pass  # cut, or broken by one of the ends: so are both
        finally:
            self._open -= pair
            for end in pair:
                end.transport.abort()

    async def _way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction until it ends. Raises OSError if it breaks."""
        under_way: _UnderWay = asyncio.Queue(_AHEAD)
        async with asyncio.TaskGroup() as halves:
            halves.create_task(self._take(reader, under_way))
            halves.create_task(self._give(under_way, writer))

    async def _take(self, reader: asyncio.StreamReader, under_way: _UnderWay) -> None:
        free = leaves = 0.0  # when the path can take more; when the last chunk leaves
        data = b"-"
        while data:
            data = await reader.read(_CHUNK)
            free = max(free, self._events.time())
            if self.bandwidth is not None:
                free += len(data) / self.bandwidth
            leaves = max(leaves, free + self.delay_s + self._random.uniform(0, self.jitter_s))
            await under_way.put((leaves, data))

    async def _give(self, under_way: _UnderWay, writer: asyncio.StreamWriter) -> None:
        data = b"-"
        while data:
            leaves, data = await under_way.get()
            if (left := leaves - self._events.time()) > 0:
                await asyncio.sleep(left)
            writer.write(data)
            self.forwarded += len(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()  # this way is over; the other one may go on


class _Precise(selectors.DefaultSelector):
    """A selector with microsecond timeouts: epoll itself rounds up to milliseconds, but its descriptor can
    be waited for precisely."""

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout > 0:
            select.select((self.fileno(),), (), (), timeout)
            timeout = 0
        return super().select(timeout)


@contextmanager
def relay(
    target_port: int, delay_s: float = 0.0075, jitter_s: float = 0.0, bandwidth: float | None = None
) -> Iterator[Relay]:
    """Run a relay on a free port of 127.0.0.1, in a thread, that forwards to `target_port` there.

    delay_s: delay in each direction; the default makes a round trip of 15 ms. bandwidth: None for no limit.
    """
    path, ready = Relay(target_port, delay_s, jitter_s, bandwidth), threading.Event()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_Precise())) as runner:
            runner.run(path.serve(ready))

    thread = threading.Thread(target=run, name="relay", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield path
    finally:
        path.stop()
        thread.join()
