"""Progress on stderr: a bar with the time left on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from specops.progress import Progress, Silent

LINE_EVERY_S = 10.0
"""Where stderr is a log, a piece of work says at most this often how far it is."""


@contextmanager
def progress(quiet: bool = False) -> Iterator[Progress]:
    """What a command hands to a phase. The bar is gone when the block ends; notes stay."""
    if quiet:
        yield Silent()
    elif sys.stderr.isatty():
        with _Bar() as bar:
            yield bar
    else:
        yield _Lines()


class _Bar:
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        self._rich = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False, markup=False),
            transient=True,
        )
        self._task = self._rich.add_task("", total=None, visible=False)

    def __enter__(self) -> _Bar:
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rich.stop()

    def start(self, label: str, total: int) -> None:
        self._rich.remove_task(self._task)
        self._task = self._rich.add_task(label, total=total or None)

    def advance(self, done: int = 1) -> None:
        self._rich.advance(self._task, done)

    def note(self, text: str) -> None:
        self._rich.console.print(text)


class _Lines:
    def __init__(self) -> None:
        self._label = ""
        self._done = self._total = 0
        self._started = self._said = time.monotonic()

    def start(self, label: str, total: int) -> None:
        self._label, self._done, self._total = label, 0, total
        self._started = self._said = time.monotonic()
        self.note(label)

    def advance(self, done: int = 1) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._said < LINE_EVERY_S:
            return
        self._said = now
        left = (now - self._started) / self._done * max(self._total - self._done, 0)
        self.note(f"{self._label}: {self._done}/{self._total}, about {_duration(left)} left")

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
