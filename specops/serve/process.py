"""Work in a process of its own, over a connection: it is told what to do, and says what came of it.

Computing gets a process because in one process the thread that writes to clients and the one that computes
take the interpreter from each other at every chunk. What is there already is worked with from a thread, over
the same connection.
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

_PATIENCE = 15.0  # seconds that a process has to end in; one with ranks of its own gives those 10
_ENDING = (signal.SIGINT, signal.SIGTERM)

Made = TypeVar("Made")


@dataclass(frozen=True)
class Worker:
    """Someone at work somewhere else."""

    connection: Connection
    """Takes commands, None as the last; gives what came of them."""

    ready: Any
    """The first that it said."""

    join: Callable[[], None]
    """Wait for its end, once it was told to stop or the connection was closed."""


class Channel(Protocol):
    """One end of a connection, whatever its messages are packed in. Both raise OSError, and EOFError, where
    the other end is gone."""

    def send(self, said: Any, /) -> None: ...

    def recv(self) -> Any: ...


def in_thread(made: Made, work: Callable[[Made, Connection], None]) -> Worker:
    ours, theirs = multiprocessing.Pipe()
    thread = threading.Thread(target=work, args=(made, theirs), name="engine", daemon=True)
    thread.start()
    return Worker(ours, ours.recv(), thread.join)


@contextmanager
def in_process(
    make: Callable[[], Made], work: Callable[[Made, Connection], None], inherited: list[socket]
) -> Iterator[Worker]:
    """As `starting`, once it is ready."""
    with starting(make, work, inherited) as wait:
        yield wait()


@contextmanager
def starting(
    make: Callable[[], Made], work: Callable[[Made, Connection], None], inherited: list[socket]
) -> Iterator[Callable[[], Worker]]:
    """A process in which `make` loads what `work` works with, and a function that waits until it is ready.

    The function raises the error of `make`. What the caller does before it calls that function, such as its
    own imports, runs at the same time as `make`.
    It forks: call it in the main thread, before there are others.
    inherited: what that process is not to keep open.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_process, args=(make, work, theirs, [ours, *inherited]), name="engine")
    ready = False
    before = signal.signal(signal.SIGTERM, _leave)  # or this process would die of it, and that one load on
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # until either process is ready to answer them
    try:
        process.start()
        theirs.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)

        def wait() -> Worker:
            nonlocal ready
            try:
                first = ours.recv()
            except (EOFError, OSError) as error:
                raise ServerError(
                    "could not load the engine: its process ended without a word",
                    hint="was it killed for the memory it takes? The system's log would say so",
                ) from error
            if isinstance(first, Exception):
                raise first
            ready = True
            return Worker(ours, first, partial(_end, process))

        yield wait
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)  # also where no process could be started
        ours.close()
        if process.pid is not None:
            if not ready:  # it hears of a closed connection only when it has loaded
                process.terminate()
            _end(process)
        signal.signal(signal.SIGTERM, before)


def obey(
    channel: Channel, run: Callable[[queue.SimpleQueue[Any]], None], failed: Callable[[str], object]
) -> None:
    """`run` with the commands that come, until it returns or whoever commands is gone. Where it breaks,
    `failed` of the reason is the last that is said."""
    commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, commands), name="commands", daemon=True).start()
    try:
        run(commands)
        return
    except (BrokenPipeError, ConnectionResetError):
        return  # the server is gone, and with it everyone who asked
    except SpecopsError as error:  # what it stands on is gone: a rank, or a file of weights
        log.error("the engine failed: %s", error.message)
        reason = error.message
    except Exception as error:  # whatever it was, the engine's state can no longer be trusted
        log.exception("the engine failed")
        reason = repr(error)
    with suppress(OSError):  # the server is gone as well
        channel.send(failed(reason))


def _listen(channel: Channel, commands: queue.SimpleQueue[Any]) -> None:
    """By itself, so that whoever commands never waits for a step."""
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
    """Wait for a process that was told to end, or whose connection is closed, and no longer than that."""
    process.join(_PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()


def _process(
    make: Callable[[], Made],
    work: Callable[[Made, Connection], None],
    connection: Connection,
    others: list[socket | Connection],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's: the server says when
    signal.signal(signal.SIGTERM, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    for other in others:
        other.close()
    try:
        made = make()
    except SpecopsError as error:
        connection.send(error)
        return
    except Exception as error:  # whatever it is, the command line says it, as it does its own
        fault = RuntimeError(f"{type(error).__name__}: {error}")
        fault.add_note(traceback.format_exc())
        connection.send(fault)
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a group's: running requests may finish
    work(made, connection)
