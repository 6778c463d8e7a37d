"""Phase 6, the drill: a fallback and a return rehearsed on the live set-up, for the checklist."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Protocol

from specops import results
from specops.config import Rollout
from specops.errors import EndpointError, UsageError
from specops.guard.guard import Guard, OverrideRequest, Status, carry_out, status
from specops.guard.journal import TargetReading
from specops.guard.lock import Holder, holder
from specops.guard.state import Record
from specops.guard.switch import Counts, Switch, answered, decided, grown
from specops.phases.commands import Commands
from specops.phases.guard import GUARD, blind, guarding, standing, switch_of, through
from specops.progress import Progress
from specops.results import Result, Verdict
from specops.router import Listener

PUBLISHED_S = 1.5
"""Seconds until all workers of a router have shared what they decided before the switch: they do once a
second."""
WATCH_S = 2.0
"""How long requests are counted then."""
BY, WHY = "drill", "a rehearsal of a fallback and a return"


class Operator(Protocol):
    """The process that carries a person's override out: the guard that runs, or one made for the drill."""

    def stand(self) -> Status: ...

    def pin(self, minutes: float) -> Status: ...

    def hand_back(self) -> Status: ...


class DrillSwitch(Record):
    """One switch of the rehearsal."""

    OLDER: ClassVar = {"began": "begun"}

    percent: int
    took_ms: float
    """Milliseconds until the last target had been switched and read back."""

    unconfirmed: str | None
    targets: tuple[TargetReading, ...]
    begun: Counts | None
    """Requests that began within `watched_s`, from shortly afterwards, by pool; None where no router counts
    them."""

    watched_s: float


class Rehearsal(Record):
    OLDER: ClassVar = {
        "there": "fallback",
        "fall_back": "fallback",
        "back": "restoration",
        "answered": "ended",
    }

    before: tuple[TargetReading, ...]
    fallback: DrillSwitch
    restoration: DrillSwitch
    ended: Counts | None
    """Requests that ended meanwhile: `well`, and `lost`."""

    took_s: float
    limit_s: float


def rehearse(
    operator: Operator, switch: Switch, routers: Sequence[Listener], *, limit_s: float, progress: Progress
) -> Rehearsal:
    """There and back. Raises UsageError where speculation is not on to begin with, EndpointError where that
    is not observed; whatever happens afterwards, Ctrl-C too, traffic is handed back."""
    before = _begin(operator.stand(), switch.read())
    progress.start("rehearsing a fallback and a return", total=2)
    started = time.monotonic()
    ended = answered(routers) if routers else None
    # A thread of its own: Ctrl-C must not cut short what is being switched, and going back comes after it.
    with ThreadPoolExecutor(1) as thread:
        try:
            fallback = _leg(0, lambda: thread.submit(operator.pin, limit_s / 60).result(), switch, routers)
            progress.advance()
        finally:
            back = thread.submit(_leg, 100, operator.hand_back, switch, routers)
            returned = back.result()
    progress.advance()
    return Rehearsal(
        before=before,
        fallback=fallback,
        restoration=returned,
        ended=grown(ended, answered(routers)) if ended is not None else None,
        took_s=time.monotonic() - started,
        limit_s=limit_s,
    )


def _begin(stands: Status, before: tuple[TargetReading, ...]) -> tuple[TargetReading, ...]:
    state = stands.state
    if state.override is not None or state.mode != "on":
        now = f"{state.override.by} pinned {state.override.pool}" if state.override else f"it is {state.mode}"
        raise UsageError(f"a drill needs the guard to be on, but {now}", hint="specops guard status ROLLOUT")
    if unread := [f"{reading.name}: {reading.error}" for reading in before if reading.error is not None]:
        raise EndpointError(
            f"a drill needs every target to answer: {'; '.join(unread)}",
            hint="specops guard status ROLLOUT",
        )
    unlike = [
        f"{reading.name} has {reading.percent}%"
        for reading in before
        if reading.percent != stands.target_percent
    ]
    if unlike:
        raise UsageError(
            f"a drill begins where all have the {stands.target_percent}% of the guard: {'; '.join(unlike)}",
            hint="specops guard override ROLLOUT none --why drill",
        )
    return before


def _leg(
    percent: int, turn: Callable[[], Status], switch: Switch, routers: Sequence[Listener]
) -> DrillSwitch:
    stands = turn()
    done = stands.result.targets if stands.result is not None else ()
    targets = switch.read()
    counted = None
    if routers:
        time.sleep(PUBLISHED_S)
        counted = decided(routers)
        time.sleep(WATCH_S)
    return DrillSwitch(
        percent=percent,
        took_ms=max((target.took_ms for target in done), default=0.0),
        unconfirmed=stands.unconfirmed,
        targets=targets,
        begun=grown(counted, decided(routers)) if counted is not None else None,
        watched_s=WATCH_S if counted is not None else 0.0,
    )


FILE = "guard-drill.json"
PIN = OverrideRequest(pool="standard", by=BY, why=WHY)
BACK = OverrideRequest(pool="none", by=BY, why=WHY)


def drill(commands: Commands, progress: Progress, *, limit_s: float) -> Result:
    """Rehearse through the guard that runs, or alone where none does. Leaves traffic as it was."""
    rollout = commands.rollout
    switch = switch_of(rollout, commands.folder)
    with _operator(commands) as operator:
        rehearsal = rehearse(operator, switch, switch.routers, limit_s=limit_s, progress=progress)
    verdict, reason = judged(rehearsal)
    settings = {
        "guard": rollout.guard.model_dump(mode="json"),
        "addresses": rollout.addresses.model_dump(mode="json"),
        "limit_s": limit_s,
    }
    return Result(
        phase="guard-drill",
        inputs={"settings": results.sha256(settings)},
        settings=settings,
        environment=results.environment(),
        verdict=verdict,
        reason=reason,
        summary={
            "switched_ms": rehearsal.fallback.took_ms,
            "returned_ms": rehearsal.restoration.took_ms,
            "lost": rehearsal.ended.get("lost", 0.0) if rehearsal.ended is not None else None,
        },
        data=rehearsal.model_dump(mode="json"),
    )


def judged(rehearsal: Rehearsal) -> tuple[Verdict, str]:
    """Return the verdict and its reason. No: a switch was not confirmed, took too long, or lost requests.
    Undecided: too little traffic to observe the switch."""
    for leg, leg_name in ((rehearsal.fallback, "the fallback"), (rehearsal.restoration, "the return")):
        if leg.unconfirmed is not None:
            return "no", f"{leg_name} was not confirmed: {leg.unconfirmed}"
    if rehearsal.took_s > rehearsal.limit_s:
        return "no", f"the drill took {rehearsal.took_s:.0f} s (limit {rehearsal.limit_s:.0f} s)"
    fallback_begun, return_begun = rehearsal.fallback.begun, rehearsal.restoration.begun
    if fallback_begun is None or return_begun is None or rehearsal.ended is None:
        return (
            "undecided",
            "all targets were switched and read back; without a router, traffic was not observed",
        )
    if fallback_begun.get("speculative"):
        return (
            "no",
            f"{fallback_begun['speculative']:.0f} requests began on the speculative pool after the fallback",
        )
    if lost := rehearsal.ended.get("lost"):
        return "no", f"{lost:.0f} of {sum(rehearsal.ended.values()):.0f} requests were lost during the drill"
    if not fallback_begun.get("standard") or not return_begun.get("speculative"):
        return (
            "undecided",
            "all targets were switched and read back; too few eligible requests, or a random window without"
            " speculation, to observe that traffic moved",
        )
    return (
        "yes",
        f"traffic moved and came back; 0 of {sum(rehearsal.ended.values()):.0f} requests lost",
    )


class _Running:
    """The guard that runs, over HTTP."""

    def __init__(self, rollout: Rollout, folder: Path, running: Holder) -> None:
        self._rollout = rollout
        self._folder = folder
        self._running = running

    def stand(self) -> Status:
        return standing(self._folder)

    def pin(self, minutes: float) -> Status:
        return through(self._rollout, self._running, PIN.model_copy(update={"minutes": minutes}))

    def hand_back(self) -> Status:
        return through(self._rollout, self._running, BACK)


class _Own:
    """A guard for the drill alone."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def stand(self) -> Status:
        return status(self._guard.standing, unconfirmed=self._guard.unconfirmed)

    def pin(self, minutes: float) -> Status:
        carry_out(self._guard, PIN.model_copy(update={"minutes": minutes}))
        return self.stand()

    def hand_back(self) -> Status:
        carry_out(self._guard, BACK)
        return self.stand()


@contextmanager
def _operator(commands: Commands) -> Iterator[Operator]:
    running = holder(commands.folder / GUARD)
    if running is not None and running.url is not None:
        yield _Running(commands.rollout, commands.folder, running)
        return
    with guarding(commands, blind) as (guard, _):
        guard.resume()
        yield _Own(guard)
