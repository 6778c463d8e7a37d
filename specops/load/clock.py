"""Instants of a measurement, of a clock that is never set."""

from __future__ import annotations

import time

_EPOCH = time.time() - time.monotonic()


def now() -> float:
    """Seconds since the epoch, by the wall clock as it was when this process began, and steady from there.

    The wall clock may be set during a measurement, by NTP or by hand. Two of these instants differ by the
    time between them nevertheless. `time.perf_counter` stamps what is within a request.
    """
    return _EPOCH + time.monotonic()
