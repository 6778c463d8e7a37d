"""When what was measured is stored: within a share of the time, and where the measurement stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from specops.errors import FileError

STORING_SHARE, STORING_S = 0.05, 1.0
"""Most of the time that storing takes, beyond a second in all. Each time everything is written, so that after
each of many short windows it would take longer than the windows, and the servers would rest."""


class Storing:
    """Calls `store`, which writes everything that was measured."""

    def __init__(self, store: Callable[[], None]) -> None:
        self._store = store
        self._began, self._took_s = time.perf_counter(), 0.0

    def measured(self) -> None:
        """Store what was measured just now, unless storing took too much of the time so far."""
        before = time.perf_counter()
        if self._took_s <= STORING_S + STORING_SHARE * (before - self._began):
            self._store()
            self._took_s += time.perf_counter() - before

    @contextmanager
    def at_a_stop(self) -> Iterator[None]:
        """Store everything where an exception ends the measurement, such as Ctrl-C. What could not be written
        a moment ago was saved elsewhere then."""
        try:
            yield
        except FileError:
            raise
        except BaseException:
            self._store()
            raise
