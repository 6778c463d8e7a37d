"""Phase 6, the drill: a fall-back and a return rehearsed on the live set-up, for the checklist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specops import results
from specops.config import Rollout
from specops.guard.actions.made import counting, targets
from specops.guard.asked import Asked, carry_out
from specops.guard.drill import BY, WHY, Hands, Rehearsal, rehearse
from specops.guard.guard import Guard
from specops.guard.lock import Holder, holder
from specops.guard.status import Status, status
from specops.guard.switch import Switch
from specops.phases.guard import GUARD, blind, guarding, standing, through
from specops.progress import Progress
from specops.results import Result, Verdict

FILE = "guard-drill.json"
PIN = Asked(pool="standard", by=BY, why=WHY)
BACK = Asked(pool="none", by=BY, why=WHY)


def drill(rollout: Rollout, folder: Path, progress: Progress, *, limit_s: float) -> Result:
    """Through the guard that runs, or by itself where none does. Leaves traffic as it was."""
    routers = counting(rollout)
    switch = Switch(targets(rollout, folder / GUARD), routers)
    with _hands(rollout, folder) as hands:
        seen = rehearse(hands, switch, routers, limit_s=limit_s, progress=progress)
    verdict, reason = judged(seen)
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
            "switched_ms": seen.there.took_ms,
            "returned_ms": seen.back.took_ms,
            "lost": seen.answered.get("lost", 0.0) if seen.answered is not None else None,
        },
        data=seen.model_dump(mode="json"),
    )


def judged(seen: Rehearsal) -> tuple[Verdict, str]:
    """No, where something was not as it was to be; undecided, where there was no traffic to see it by."""
    for turned, what in ((seen.there, "the fall-back"), (seen.back, "the return")):
        if turned.unconfirmed is not None:
            return "no", f"{what} was not confirmed: {turned.unconfirmed}"
    if seen.took_s > seen.limit_s:
        return "no", f"it took {seen.took_s:.0f} s, and the limit is {seen.limit_s:.0f} s"
    there, back = seen.there.began, seen.back.began
    if there is None or back is None or seen.answered is None:
        return (
            "undecided",
            "all was switched and read back; no router counts requests, so none was seen to move",
        )
    if there.get("speculative"):
        return "no", f"{there['speculative']:.0f} requests began on the speculative pool after the fall-back"
    if lost := seen.answered.get("lost"):
        return "no", f"{lost:.0f} of {sum(seen.answered.values()):.0f} requests were lost meanwhile"
    if not there.get("standard") or not back.get("speculative"):
        return "undecided", "all was switched and read back; there was too little traffic to see it move"
    return "yes", f"traffic moved and came back; none of {sum(seen.answered.values()):.0f} requests was lost"


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
def _hands(rollout: Rollout, folder: Path) -> Iterator[Hands]:
    running = holder(folder / GUARD)
    if running is not None and running.url is not None:
        yield _Running(rollout, folder, running)
        return
    with guarding(rollout, folder, blind) as (guard, _):
        guard.resume()
        yield _Own(guard)
