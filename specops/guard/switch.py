"""All targets as one: what they have, and one percentage for all of them.

A target is read first, set if it differs, and read again; what failed is tried again after a wait. Where
there are routers, their own counters then say whether requests still begin on the speculative pool.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from specops.actions.action import Target
from specops.errors import EndpointError, EnvironmentFailure, SpecopsError
from specops.guard.journal import SwitchRecord, SwitchResult, TargetReading
from specops.router import Listener, RouterCounters

Counts = dict[str, float]
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def decided(routers: Sequence[Listener]) -> Counts:
    """Requests decided so far, by pool, over all routers. Raises EndpointError where one does not say."""
    return _summed(counters.decided for counters in _counters(routers))


def answered(routers: Sequence[Listener]) -> Counts:
    """Requests that ended so far: `lost`, where nothing served them or the answer was a 5xx, and `well`."""
    return _summed(counters.ended for counters in _counters(routers))


def _counters(routers: Sequence[Listener]) -> list[RouterCounters]:
    return in_parallel(lambda router: router.counters(), routers)


def grown(before: Counts, after: Counts) -> Counts:
    """Return what was added since. A router that started anew counts from nothing again, and is left out."""
    return {key: max(count - before.get(key, 0.0), 0.0) for key, count in after.items()}


def _summed(of_routers: Iterable[Mapping[str, float]]) -> Counts:
    sums: Counts = {}
    for counts in of_routers:
        for key, count in counts.items():
            sums[key] = sums.get(key, 0.0) + count
    return sums


WAIT_S = 0.2
"""Seconds before the second try; twice as long before each further one."""
SETTLE_S = 0.5
"""Seconds over which no request may begin on the speculative pool."""
STILL_S = 5.0
"""The longest that this is waited for: a router may read its flag once a second."""


class Switch:
    def __init__(self, targets: Sequence[Target], routers: Sequence[Listener] = ()) -> None:
        """`routers`: their counters say where requests go."""
        self.targets = tuple(targets)
        self.routers = tuple(routers)

    def read(self) -> tuple[TargetReading, ...]:
        """Return what each target has."""
        return tuple(in_parallel(_reading, self.targets))

    def to(self, percent: int, *, again: bool = False) -> SwitchResult:
        """Give every target `percent`. `again`: an earlier attempt may have been cut short."""
        switched = tuple(in_parallel(lambda target: _switched(target, percent, again), self.targets))
        if any(one.error is not None for one in switched):  # what traffic does now shows nothing
            return SwitchResult(outcome="failed", targets=switched)
        traffic, moved = self._traffic(percent)
        return SwitchResult(outcome="done" if moved else "failed", targets=switched, traffic=traffic)

    def _traffic(self, percent: int) -> tuple[str | None, bool]:
        """Return in words where traffic goes, and whether it is as it should be. Only all or nothing shows in
        a moment."""
        if not self.routers or percent:
            return None, True
        deadline = time.monotonic() + STILL_S
        try:
            while True:
                before = decided(self.routers)
                time.sleep(SETTLE_S)
                began = grown(before, decided(self.routers))
                if not began.get("speculative"):
                    return _said(began), True
                if time.monotonic() > deadline:
                    return f"requests still begin on the speculative pool: {_said(began)}", False
        except EndpointError as error:
            return error.message, False


def _reading(target: Target) -> TargetReading:
    try:
        return TargetReading(name=target.name, percent=target.read())
    except SpecopsError as error:
        return TargetReading(name=target.name, percent=None, error=error.message)


def _switched(target: Target, percent: int, again: bool) -> SwitchRecord:
    started = time.monotonic()
    first, tries, error = _reading(target), 0, None
    last = first
    while last.percent != percent and tries < target.tries:
        late = time.monotonic() - started >= target.patience_s
        if late and (tries or first.percent is None):  # slow to read is no reason to leave it as it is
            break
        if tries:
            time.sleep(WAIT_S * 2 ** (tries - 1))
        tries += 1
        error = _failure_of(target.set, percent)
        last = _reading(target)
    if again and not tries:
        error = _failure_of(lambda _: target.finish(), percent)
    elif last.percent == percent:
        error = None  # whatever the answer to setting it was
    else:
        error = error or last.error or f"it has {last.percent}%, and was set to {percent}%"
    took_ms = (time.monotonic() - started) * 1000
    return SwitchRecord(
        name=target.name, before=first.percent, after=last.percent, tries=tries, error=error, took_ms=took_ms
    )


def _failure_of(do: Callable[[int], None], percent: int) -> str | None:
    try:
        do(percent)
    except EnvironmentFailure as error:
        return f"{error.message} ({error.hint})" if error.hint else error.message
    return None


def _said(began: Counts) -> str:
    counts = ", ".join(f"{count:.0f} on {pool}" for pool, count in sorted(began.items()) if count)
    return f"{counts or 'no request'} began within {SETTLE_S:g} s"


def in_parallel(question: Callable[[_Item], _Answer], of: Sequence[_Item]) -> list[_Answer]:
    """The answers in order, all at once: one that hangs does not hold up the others."""
    if len(of) < 2:
        return [question(one) for one in of]
    with ThreadPoolExecutor(len(of)) as threads:
        return list(threads.map(question, of))
