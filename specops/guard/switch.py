"""All targets as one: what they have, and one percentage for all of them.

A target is read first, set if it differs, and read again; what failed is tried again after a wait. Where
there are routers, their own counters then say whether requests still begin on the speculative pool.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from specops.errors import EndpointError, EnvironmentFailure, SpecopsError
from specops.guard.actions.target import Target
from specops.guard.journal import Reading, Result, Switched
from specops.guard.routers import Counts, decided, grown
from specops.guard.together import each

WAIT_S = 0.2
"""Before the second try; twice as long before each further one."""
SETTLE_S = 0.5
"""Over which no request may begin on the speculative pool."""
STILL_S = 5.0
"""The longest that this is waited for: a router may read its flag once a second."""


class Switch:
    def __init__(self, targets: Sequence[Target], routers: Sequence[str] = ()) -> None:
        """`routers`: admin listeners whose counters say where requests go."""
        self.targets = tuple(targets)
        self._routers = tuple(routers)

    def read(self) -> tuple[Reading, ...]:
        """What each target has."""
        return tuple(each(_reading, self.targets))

    def to(self, percent: int, *, again: bool = False) -> Result:
        """Give every target `percent`. `again`: an earlier attempt may have been cut short."""
        switched = tuple(each(lambda target: _switched(target, percent, again), self.targets))
        if any(one.error is not None for one in switched):  # what traffic does now shows nothing
            return Result(outcome="failed", targets=switched)
        traffic, moved = self._traffic(percent)
        return Result(outcome="done" if moved else "failed", targets=switched, traffic=traffic)

    def _traffic(self, percent: int) -> tuple[str | None, bool]:
        """In words, and whether it is as it should be. Only all or nothing can be seen in a moment."""
        if not self._routers or percent:
            return None, True
        deadline = time.monotonic() + STILL_S
        try:
            while True:
                before = decided(self._routers)
                time.sleep(SETTLE_S)
                began = grown(before, decided(self._routers))
                if not began.get("speculative"):
                    return _said(began), True
                if time.monotonic() > deadline:
                    return f"requests still begin on the speculative pool: {_said(began)}", False
        except EndpointError as error:
            return error.message, False


def _reading(target: Target) -> Reading:
    try:
        return Reading(name=target.name, percent=target.read())
    except SpecopsError as error:
        return Reading(name=target.name, percent=None, error=error.message)


def _switched(target: Target, percent: int, again: bool) -> Switched:
    started = time.monotonic()
    first, tries, error = _reading(target), 0, None
    last = first
    while last.percent != percent and tries < target.tries and time.monotonic() - started < target.patience_s:
        if tries:
            time.sleep(WAIT_S * 2 ** (tries - 1))
        tries += 1
        error = _tried(target.set, percent)
        last = _reading(target)
    if again and not tries:
        error = _tried(lambda _: target.finish(), percent)
    elif last.percent == percent:
        error = None  # whatever the answer to setting it was
    else:
        error = error or last.error or f"it has {last.percent}%, and was set to {percent}%"
    took_ms = (time.monotonic() - started) * 1000
    return Switched(
        name=target.name, before=first.percent, after=last.percent, tries=tries, error=error, took_ms=took_ms
    )


def _tried(do: Callable[[int], None], percent: int) -> str | None:
    try:
        do(percent)
    except EnvironmentFailure as error:
        return f"{error.message} ({error.hint})" if error.hint else error.message
    return None


def _said(began: Counts) -> str:
    counts = ", ".join(f"{count:.0f} on {pool}" for pool, count in sorted(began.items()) if count)
    return f"{counts or 'no request'} began within {SETTLE_S:g} s"
