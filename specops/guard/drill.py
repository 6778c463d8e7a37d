"""A rehearsal on the live set-up: all traffic to the standard pool, and back, as the guard would do it.

It goes through the guard, as an override that ends by itself at the time limit: should the drill be killed,
the guard brings traffic back. What is measured is what an operator asks of it: how long until every target
says so, whether requests moved, and whether any was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from specops.errors import EndpointError, UsageError
from specops.guard.journal import Reading
from specops.guard.routers import Counts, answered, decided, grown
from specops.guard.status import Status
from specops.guard.switch import Switch
from specops.progress import Progress

PUBLISHED_S = 1.5
"""Until all workers of a router have shared what they decided before the switch: they do once a second."""
WATCH_S = 2.0
"""How long requests are counted then."""
BY, WHY = "drill", "a rehearsal of a fall-back and a return"


class Hands(Protocol):
    """What carries a person's override out: the guard that runs, or one made for the drill."""

    def stand(self) -> Status: ...

    def pin(self, minutes: float) -> Status: ...

    def hand_back(self) -> Status: ...


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Turned(_Kept):
    """One way of the rehearsal."""

    percent: int
    took_ms: float
    """Until the last target had been switched and read back."""

    unconfirmed: str | None
    targets: tuple[Reading, ...]
    began: Counts | None
    """Requests that began within `watched_s`, from shortly afterwards, by pool; None where no router counts
    them."""

    watched_s: float


class Rehearsal(_Kept):
    before: tuple[Reading, ...]
    there: Turned
    back: Turned
    answered: Counts | None
    """Requests that ended meanwhile: `well`, and `lost`."""

    took_s: float
    limit_s: float


def rehearse(
    hands: Hands, switch: Switch, routers: Sequence[str], *, limit_s: float, progress: Progress
) -> Rehearsal:
    """There and back. Raises UsageError where speculation is not on to begin with, EndpointError where that
    is not to be seen; whatever happens afterwards, Ctrl-C too, traffic is handed back."""
    before = _begin(hands.stand(), switch.read())
    progress.start("rehearsing a fall-back and a return", total=2)
    started = time.monotonic()
    ended = answered(routers) if routers else None
    # A thread of its own: Ctrl-C must not cut short what is being switched, and going back comes after it.
    with ThreadPoolExecutor(1) as thread:
        try:
            there = _turned(0, lambda: thread.submit(hands.pin, limit_s / 60).result(), switch, routers)
            progress.advance()
        finally:
            back = thread.submit(_turned, 100, hands.hand_back, switch, routers)
            returned = back.result()
    progress.advance()
    return Rehearsal(
        before=before,
        there=there,
        back=returned,
        answered=grown(ended, answered(routers)) if ended is not None else None,
        took_s=time.monotonic() - started,
        limit_s=limit_s,
    )


def _begin(stands: Status, before: tuple[Reading, ...]) -> tuple[Reading, ...]:
    state = stands.state
    if state.override is not None or state.mode != "on":
        now = f"{state.override.by} pinned {state.override.pool}" if state.override else f"it is {state.mode}"
        raise UsageError(
            f"a drill begins where the guard is on, and {now}", hint="specops guard status ROLLOUT"
        )
    if unread := [f"{one.name}: {one.error}" for one in before if one.error is not None]:
        raise EndpointError(
            f"a drill begins where all that is switched answers: {'; '.join(unread)}",
            hint="start it, or mend addresses.routers and guard.actions in the rollout file",
        )
    unlike = [f"{one.name} has {one.percent}%" for one in before if one.percent != stands.wanted]
    if unlike:
        raise UsageError(
            f"a drill begins where all have the {stands.wanted}% of the guard: {'; '.join(unlike)}",
            hint="fix that first, or hand it to the guard: specops guard override ROLLOUT none --why drill",
        )
    return before


def _turned(percent: int, turn: Callable[[], Status], switch: Switch, routers: Sequence[str]) -> Turned:
    stands = turn()
    done = stands.result.targets if stands.result is not None else ()
    targets = switch.read()
    counted = None
    if routers:
        time.sleep(PUBLISHED_S)
        counted = decided(routers)
        time.sleep(WATCH_S)
    return Turned(
        percent=percent,
        took_ms=max((target.took_ms for target in done), default=0.0),
        unconfirmed=stands.unconfirmed,
        targets=targets,
        began=grown(counted, decided(routers)) if counted is not None else None,
        watched_s=WATCH_S if counted is not None else 0.0,
    )
