"""The guard itself, a turn at a time: look, decide, write it down, act, write down what came of it.

Every turn reads what the targets have. More than the guard wants is brought down at once. Less is left as it
is and told: somebody, or a router that lost its state, takes care already, and only a decision, or a person
who hands it back, raises anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from specops.actions import Message, Notification
from specops.errors import SpecopsError
from specops.guard.journal import (
    Entry,
    Evidence,
    Intent,
    Journal,
    Notified,
    Reading,
    Result,
    Standing,
    Switched,
)
from specops.guard.policy import Rules, decide, falls, pin, release
from specops.guard.signals.observation import Row
from specops.guard.state import Decision, Evaluation, Override, State
from specops.guard.switch import each

Look = Callable[[float, float | None, Row | None], Evaluation]
"""What is seen at an instant: since when what is served is what it is, as far as is known, and the row of bad
evaluations so far."""


@dataclass(frozen=True)
class Gate:
    """What the capacity gate says before all traffic is moved."""

    said: str
    floor: int = 0
    """The percentage that the standard pool cannot carry."""


class Switches(Protocol):
    def read(self) -> tuple[Reading, ...]: ...

    def to(self, percent: int, *, again: bool = False) -> Result: ...


@dataclass
class Tally:
    """Since this process began."""

    evaluations: dict[str, int] = field(default_factory=dict)
    actions: dict[tuple[str, str], int] = field(default_factory=dict)
    fallbacks: int = 0
    seconds: float = 0.0


class Guard:
    """Holds the lock and the journal of its run folder. One thread calls it."""

    def __init__(
        self,
        *,
        rules: Rules,
        look: Look,
        switch: Switches,
        journal: Journal,
        gate: Callable[[], Gate],
        dry_run: bool = False,
        rollout: str = "",
        notifications: Sequence[Notification] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.rules = rules
        self.dry_run = dry_run
        self.tally = Tally()
        self.found: tuple[Reading, ...] = ()
        self._look = look
        self._switch = switch
        self._journal = journal
        self._gate = gate
        self._rollout = rollout
        self._notifications = tuple(notifications)
        self._clock = clock
        action = journal.standing.last_action
        self._outcome = action.result.outcome if action is not None and action.result is not None else None

    @property
    def state(self) -> State:
        return self._journal.standing.state

    @property
    def standing(self) -> Standing:
        return self._journal.standing

    @property
    def evaluated_at(self) -> float | None:
        evaluation = self._journal.standing.evaluation
        return evaluation.ts if evaluation is not None else None

    @property
    def both_slow(self) -> bool:
        """Whether the last evaluation found both pools slow."""
        evaluation = self._journal.standing.evaluation
        return evaluation is not None and evaluation.both_slow

    @property
    def unconfirmed(self) -> str | None:
        """What is not as it was decided; None while all is."""
        confirmed, wanted = self._journal.standing.confirmed, self.state.wanted
        action = self._journal.standing.last_action
        if confirmed != wanted:
            failed = action.result.targets if action is not None and action.result is not None else ()
            errors = [f"{one.name}: {one.error}" for one in failed if one.error]
            traffic = action.result.traffic if action is not None and action.result is not None else None
            return "; ".join(errors) or traffic or f"{wanted}% is not confirmed yet"
        if self.dry_run:
            return None
        return _unlike(self.found, wanted)

    def resume(self) -> Entry | None:
        """Finish what a guard before this one had begun; None where there was nothing."""
        action = self._journal.standing.last_action
        if action is None or action.result is not None:
            return None
        return self._act(action, again=True)

    def turn(self, alerts: Sequence[str] = ()) -> Entry:
        """One evaluation. `alerts`: firing ones that Alertmanager told of; they are noted, no more."""
        now, state = self._clock(), self.state
        self._read()
        began = time.monotonic()
        evaluation = self._seen(now)
        self.tally.seconds += time.monotonic() - began
        self.tally.evaluations[evaluation.verdict] = self.tally.evaluations.get(evaluation.verdict, 0) + 1
        decision, said = decide(state, evaluation, now, self.rules), None
        if falls(state, decision.state):
            gate = self._asked()
            said = gate.said
            decision = decide(state, evaluation, now, self.rules.keeping(gate.floor))
        return self._carry_out(decision, now, evaluation, said, tuple(alerts))

    def pin(self, override: Override) -> Entry | None:
        """A person's override; None where exactly this one holds already, and is seen to."""
        now = self._clock()
        self._read()
        if (
            self.state.override == override
            and override.left_s is None
            and not self._must_act(self.state.wanted)
        ):
            return None
        said = self._asked().said if override.pool == "standard" else None  # told; a person decides
        return self._carry_out(pin(self.state, override, now, self.rules), now, capacity=said)

    def release(self, by: str, why: str) -> Entry:
        """A person hands it back."""
        now = self._clock()
        self._read()
        found = [reading.percent for reading in self.found if reading.percent is not None]
        decision = release(self.state, by, why, now, self.rules, min(found, default=None))
        return self._carry_out(decision, now)

    def _read(self) -> None:
        self.found = self._switch.read()

    def _seen(self, now: float) -> Evaluation:
        try:
            return self._look(now, self._unchanged_since(), self._row())
        except SpecopsError as error:
            return Evaluation(ts=now, verdict="unknown", reason=error.message)

    def _row(self) -> Row | None:
        began, last = self.state.row_began, self.state.row_last
        return Row(began, last) if began is not None and last is not None else None

    def _unchanged_since(self) -> float | None:
        """Since the last switch, or since this journal began: where there is little traffic, as at a canary
        step or by night, all of it since then counts."""
        standing = self._journal.standing
        return standing.last_action.ts if standing.last_action is not None else standing.began

    def _asked(self) -> Gate:
        try:
            return self._gate()
        except SpecopsError as error:
            return Gate(said=f"the capacity gate could not be evaluated: {error.message}")

    def _carry_out(
        self,
        decision: Decision,
        now: float,
        evaluation: Evaluation | None = None,
        capacity: str | None = None,
        alerts: tuple[str, ...] = (),
    ) -> Entry:
        last = self._journal.standing.last
        wanted = decision.state.wanted
        entry = Entry(
            ts=now,
            id=last.id + 1 if last else 1,
            verdict=evaluation.verdict if evaluation else None,
            evidence=Evidence(
                why=decision.why,
                events=decision.events,
                evaluation=evaluation,
                capacity=capacity,
                alerts=alerts,
                found=self.found,
            ),
            state=decision.state,
            action=Intent(percent=wanted) if self._must_act(wanted) else None,
        )
        self._journal.append(entry)
        self.tally.fallbacks += "fell_back" in decision.events
        return self._act(entry) if entry.action is not None else self._notify(entry)

    def _must_act(self, wanted: int) -> bool:
        if self._journal.standing.confirmed != wanted:
            return True
        above = any(reading.percent is not None and reading.percent > wanted for reading in self.found)
        return above and not self.dry_run

    def _act(self, entry: Entry, *, again: bool = False) -> Entry:
        assert entry.action is not None
        before = self._outcome
        if self.dry_run:
            result = Result(outcome="dry_run")
        else:
            result = self._switch.to(entry.action.percent, again=again)
            self._count(result)
        done = entry.model_copy(update={"result": result})
        self._journal.append(done)
        if not self.dry_run:
            self.found = tuple(_reading(one) for one in result.targets)
        self._outcome = result.outcome
        return self._notify(done, again=before not in (None, result.outcome))

    def _notify(self, entry: Entry, *, again: bool = False) -> Entry:
        """Sends what is new: a change, or that an earlier one has (`again`) been confirmed, or no longer is.

        It comes after the switch. What fails is recorded, and not sent a second time.
        """
        if self.dry_run or not self._notifications or not (entry.evidence.events or again):
            return entry
        result = entry.result
        message = Message(
            rollout=self._rollout,
            percent=entry.state.wanted,
            confirmed=result is None or result.outcome == "done",
            text=entry.evidence.why,
        )
        sent = each(lambda notification: _sent(notification, message), self._notifications)
        done = entry.model_copy(update={"notified": tuple(sent)})
        self._journal.append(done)
        return done

    def _count(self, result: Result) -> None:
        for one in result.targets:
            key = (one.name, "failed" if one.error else "done")
            self.tally.actions[key] = self.tally.actions.get(key, 0) + 1


def _sent(notification: Notification, message: Message) -> Notified:
    try:
        notification.send(message)
    except SpecopsError as error:
        return Notified(name=notification.name, error=error.message)
    return Notified(name=notification.name)


def _reading(one: Switched) -> Reading:
    """What a target had at last when it was switched: a router that hangs is not asked once more."""
    return Reading(name=one.name, percent=one.after, error=one.error if one.after is None else None)


def _unlike(found: Sequence[Reading], wanted: int) -> str | None:
    said = []
    for reading in found:
        if reading.percent is None:
            said.append(reading.error or f"{reading.name} could not be read")
        elif reading.percent < wanted:
            said.append(
                f"{reading.name} has {reading.percent}%, less than the {wanted}% of the guard: it was"
                " changed outside the guard, and stays until specops guard override ROLLOUT none --why WHY"
            )
        elif reading.percent > wanted:
            said.append(f"{reading.name} has {reading.percent}%, more than the {wanted}% of the guard")
    return "; ".join(said) or None


class Status(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    running: int | None
    """Its pid; None where no guard runs, and all this is from its journal."""

    dry_run: bool = False
    state: State
    wanted: int
    """The percentage that all targets should have."""

    unconfirmed: str | None
    """What is not so, or not known to be."""

    decided_at: float | None
    """Seconds since the epoch; None where nothing was decided yet."""

    why: str
    capacity: str | None
    """What the capacity gate said to that, where it was asked."""

    evaluation: Evaluation | None
    """The last one."""

    result: Result | None
    """Of the last action."""


def status(
    standing: Standing,
    *,
    running: int | None = None,
    unconfirmed: str | None = None,
    dry_run: bool = False,
) -> Status:
    last, action, wanted = standing.last, standing.last_action, standing.state.wanted
    if unconfirmed is None and standing.confirmed != wanted:
        unconfirmed = f"{wanted}% was decided, and is not confirmed"
    return Status(
        running=running,
        dry_run=dry_run,
        state=standing.state,
        wanted=wanted,
        unconfirmed=unconfirmed,
        decided_at=last.ts if last else None,
        why=last.evidence.why if last else "nothing was decided yet: the journal is empty",
        capacity=last.evidence.capacity if last else None,
        evaluation=standing.evaluation,
        result=action.result if action is not None else None,
    )


class Asked(BaseModel):
    """The body of POST /override."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pool: Literal["standard", "speculative", "none"]
    """Where traffic is pinned; none hands it back."""

    by: str = Field(min_length=1, max_length=200)
    why: str = Field(min_length=1, max_length=2000)
    minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)


def carry_out(guard: Guard, asked: Asked) -> Entry | None:
    """None where it holds already."""
    if asked.pool == "none":
        return guard.release(asked.by, asked.why)
    left_s = None if asked.minutes is None else asked.minutes * 60
    return guard.pin(Override(pool=asked.pool, by=asked.by, why=asked.why, left_s=left_s))
