"""Ctrl-C and SIGTERM end every command in the same way: servers stop, partial results stay, one line says how
to resume."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import typer

from specops.cli.output import print_message
from specops.errors import Stopped

_received: list[signal.Signals] = []
"""The signals that end this command."""


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Let SIGTERM do within the block what Ctrl-C does at that moment. Nothing changes outside the main
    thread, where Python does not handle signals.

    Whatever handles SIGINT is called, since asyncio replaces it while a loop runs. Where SIGINT is ignored,
    as in a shell's background job, SIGTERM still ends the command.
    """
    _received.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    _received.append(signal.Signals(number))
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)
    else:
        raise KeyboardInterrupt


@contextmanager
def resume_hint() -> Iterator[None]:
    """Print, where a command is interrupted, one line that says how to go on with it."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        by = _received[0] if _received else signal.SIGINT
        print_message(message(by, sys.argv[1:], stopped))
        raise typer.Exit(128 + by) from None


def message(by: signal.Signals, words: Sequence[str], stopped: KeyboardInterrupt) -> str:
    """Return what stopped the command, where its partial results are, and the command that goes on.

    --fresh would discard the partial results, so it is left out where there are some.
    """
    name = "Ctrl-C" if by == signal.SIGINT else by.name
    if not isinstance(stopped, Stopped):
        return f"stopped by {name}; no partial results\nstart again with: {shlex.join(['specops', *words])}"
    if stopped.printed:
        where = f"above and in {stopped.path}" if stopped.path else "above"
        anew = shlex.join(["specops", *words])
        return f"stopped by {name}; partial results are {where}\nstart again with: {anew}"
    saved = [f"partial results are in {stopped.path}"] if stopped.path else []
    if stopped.finished:
        saved.append(f"results of {', '.join(stopped.finished)} are in {stopped.folder}")
    again = shlex.join(["specops", *(word for word in words if word != "--fresh")])
    return f"stopped by {name}; {'; '.join(saved)}\nresume with: {again}"
