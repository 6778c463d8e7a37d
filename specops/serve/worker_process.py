"""A worker in a process of its own: commands go to it over a connection, and results come back.

Computing gets a process because in one process the thread that writes to clients and the one that computes
take the interpreter from each other at every chunk. A test's engine, which exists already, gets a thread
with the same connection.
"""

from __future__ import annotations

import logging
import multiprocessing
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from socket import socket
from typing import Any, Protocol, TypeVar

from specops.errors import ServerError, SpecopsError

log = logging.getLogger(__name__)

_END_WITHIN_S = 15.0  # after that a process is killed; one with ranks of its own waits 10 for those
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Product = TypeVar("Product")


@dataclass(frozen=True)
class Worker:
    """A worker in another process or thread, ready for commands."""

    connection: Connection
    """Takes commands, None as the last; gives their results."""

    ready: Any
    """Its first message."""

    join: Callable[[], None]
    """Wait for its end, after the last command or after the connection was closed."""

    kill: Callable[[], None] = lambda: None
    """End it at once, if it is a process."""


class Channel(Protocol):
    """One end of a connection, in any encoding. Both methods raise OSError or EOFError if the other end is
    gone."""

    def send(self, message: Any, /) -> None: ...

    def recv(self) -> Any: ...


def in_thread(product: Product, work: Callable[[Product, Connection], None]) -> Worker:
    """Run `work` on `product` in a thread of this process."""
    parent_end, child_end = multiprocessing.Pipe()
    thread = threading.Thread(target=work, args=(product, child_end), name="engine", daemon=True)
    thread.start()
    return Worker(parent_end, parent_end.recv(), thread.join)


@contextmanager
def in_process(
    make: Callable[[], Product], work: Callable[[Product, Connection], None], inherited: list[socket]
) -> Iterator[Worker]:
    """Start a worker as `starting` does; return it once it is ready."""
    with starting(make, work, inherited) as wait:
        yield wait()


@contextmanager
def starting(
    make: Callable[[], Product], work: Callable[[Product, Connection], None], inherited: list[socket]
) -> Iterator[Callable[[], Worker]]:
    """Start a process that runs `work(make(), connection)`; gives a function that waits until it is ready.

    The function raises the error of `make`. What the caller does before it calls that function, such as its
    own imports, runs at the same time as `make`.
    It forks: call it in the main thread, before there are others.
    inherited: sockets that the process must close.
    """
    context = multiprocessing.get_context("fork")
    parent_end, child_end = context.Pipe()
    process = context.Process(
        target=_process, args=(make, work, child_end, [parent_end, *inherited]), name="engine"
    )
    ready = False
    before = signal.signal(signal.SIGTERM, _leave)  # its default would end this process and leave the other
    signal.pthread_sigmask(signal.SIG_BLOCK, _END_SIGNALS)  # until either process is ready to answer them
    try:
        process.start()
        child_end.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_SIGNALS)

        def wait() -> Worker:
            nonlocal ready
            first = _first_message(parent_end)
            ready = True
            return Worker(parent_end, first, partial(_end, process), process.kill)

        yield wait
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_SIGNALS)  # also where no process could be started
        parent_end.close()
        if process.pid is not None:
            if not ready:  # it notices a closed connection only after loading
                process.terminate()
            _end(process)
        signal.signal(signal.SIGTERM, before)


def _first_message(connection: Connection) -> Any:
    """A worker's first message. Raises the error of its `make`, and ServerError if it died."""
    try:
        first = connection.recv()
    except (EOFError, OSError) as error:
        raise ServerError(
            "could not load the engine: its process ended without a message; the kernel may have "
            "killed it for its memory",
            hint="dmesg | tail -n 20",
        ) from error
    if isinstance(first, Exception):
        raise first
    return first


class Starting:
    """A process that was started, and is not ready yet."""

    def __init__(self, process: BaseProcess, connection: Connection) -> None:
        self._process, self._connection = process, connection

    def wait(self) -> Worker:
        """Wait until it is ready. Raises the error of its `make`, and ServerError if it died."""
        try:
            first = _first_message(self._connection)
        except BaseException:
            self._connection.close()
            self.kill()
            raise
        return Worker(self._connection, first, partial(_end, self._process), self._process.kill)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.join()


@contextmanager
def starting_several(start: Callable[[], Starting], count: int) -> Iterator[Callable[[], list[Worker]]]:
    """Start `count` workers at the same time; gives a function that waits until all are ready.

    The function raises the error of the first that does not load. Leaving the block ends them.
    """
    begun: list[Starting] = []
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        begun += (start() for _ in range(count))
        yield lambda: [starting.wait() for starting in begun]
    finally:
        for starting in begun:
            starting.kill()
        signal.signal(signal.SIGTERM, before)


class Nursery:
    """Starts workers at any time, also from a process with threads, which must not fork.

    A process without threads forks them: multiprocessing's fork server. It imports `preload` once, so that
    its children need not. What it runs must be functions of modules, and their arguments be picklable.
    """

    def __init__(self, preload: list[str]) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(preload)

    def start(self, make: Callable[[], Product], work: Callable[[Product, Connection], None]) -> Starting:
        """Start a process that runs `work(make(), connection)`."""
        parent_end, child_end = self._context.Pipe()
        process = self._context.Process(target=_process, args=(make, work, child_end, []), name="engine")
        process.start()
        child_end.close()
        return Starting(process, parent_end)


def obey(
    channel: Channel, run: Callable[[queue.SimpleQueue[Any]], None], failed: Callable[[str], object]
) -> None:
    """Call `run` with a queue of the commands from `channel`, until it returns or the other end is gone.

    If it raises, the error is logged, and `failed(reason)` is sent as the last message.
    """
    commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, commands), name="commands", daemon=True).start()
    try:
        run(commands)
        return
    except (BrokenPipeError, ConnectionResetError):
        return  # the server is gone, and its clients with it
    except SpecopsError as error:  # a rank has ended, or a file of weights is gone
        log.error("the engine failed: %s", error.message)
        reason = error.message
    except Exception as error:  # the engine's state can no longer be trusted
        log.exception("the engine failed")
        reason = repr(error)
    with suppress(OSError):  # the server is gone as well
        channel.send(failed(reason))


def _listen(channel: Channel, commands: queue.SimpleQueue[Any]) -> None:
    """Read messages in a thread of its own, so that a sender never waits for a step."""
    while True:
        try:
            command = channel.recv()
        except (EOFError, OSError):
            command = None
        commands.put(command)
        if command is None:
            return


def _leave(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _end(process: BaseProcess) -> None:
    """Wait for a process that is to end, and kill it after `_END_WITHIN_S`."""
    process.join(_END_WITHIN_S)
    if process.is_alive():
        process.kill()
        process.join()


def _process(
    make: Callable[[], Product],
    work: Callable[[Product, Connection], None],
    connection: Connection,
    inherited: list[socket | Connection],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal, to all processes: the server decides
    signal.signal(signal.SIGTERM, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_SIGNALS)
    for inherited_end in inherited:
        inherited_end.close()
    try:
        product = make()
    except SpecopsError as error:
        connection.send(error)
        return
    except Exception as error:  # the command line reports it like its own
        fault = RuntimeError(f"{type(error).__name__}: {error}")
        fault.add_note(traceback.format_exc())
        connection.send(fault)
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent to the whole group: running requests may finish
    work(product, connection)
