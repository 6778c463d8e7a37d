"""One turn of the guard: evaluate, decide, write it down, act, write down the result, notify. Overrides,
status.

Every turn reads the targets. A target above the decided percentage is lowered at once. One below it was
changed outside the guard: it is reported and left alone until a decision, or a person who hands it back,
raises it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from pydantic import Field

from specops.actions import Message, Notification
from specops.errors import SpecopsError
from specops.guard.journal import (
    Entry,
    EntryEvidence,
    Intent,
    Journal,
    JournalState,
    NotificationRecord,
    SwitchRecord,
    SwitchResult,
    TargetReading,
)
from specops.guard.policy import HAND_BACK, GuardRules, decide, falls, pin, release
from specops.guard.signals.observation import BadRow
from specops.guard.state import Evaluation, GuardDecision, Override, Record, State
from specops.guard.switch import in_parallel
from specops.hints import ROLLOUT, named

Observe = Callable[[float, float | None, BadRow | None], Evaluation]
"""Evaluates the deployment. Arguments: the time; since when the percentage is unchanged, None where unknown;
the row of bad evaluations so far."""


STEP_S = 1.0
"""Seconds of a step of the clock from which on it counts as set: what is less is slewed, or the time between
two readings."""


@dataclass(frozen=True)
class CapacityGate:
    """The capacity gate's answer before traffic is moved to the standard pool."""

    reason: str
    floor: int = 0
    """The percentage that the standard pool cannot carry."""


class Switches(Protocol):
    def read(self) -> tuple[TargetReading, ...]: ...

    def to(self, percent: int, *, again: bool = False) -> SwitchResult: ...


@dataclass
class GuardCounts:
    """Counts since this process started."""

    evaluations: dict[str, int] = field(default_factory=dict)
    actions: dict[tuple[str, str], int] = field(default_factory=dict)
    fallbacks: int = 0
    seconds: float = 0.0


class Guard:
    """Holds the lock and the journal of its run folder. One thread calls it."""

    def __init__(
        self,
        *,
        rules: GuardRules,
        observe: Observe,
        switch: Switches,
        journal: Journal,
        gate: Callable[[], CapacityGate],
        dry_run: bool = False,
        rollout: str = "",
        place: str = ROLLOUT,
        notifications: Sequence[Notification] = (),
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = None,
    ) -> None:
        """`place`: the arguments that name the rollout file in a shell, for commands in journal and messages.
        `steady`: seconds that pass however `clock` is set; without it a step of the clock is time."""
        self.rules = rules
        self.dry_run = dry_run
        self.tally = GuardCounts()
        self.readings: tuple[TargetReading, ...] = ()
        self._observe = observe
        self._switch = switch
        self._journal = journal
        self._gate = gate
        self._rollout = rollout
        self._place = place
        self._notifications = tuple(notifications)
        self._clock = clock
        self._steady = steady
        self._offset = clock() - steady() if steady is not None else 0.0
        self._set_s = 0.0  # by how much the clock was set since the last action, or since this process began
        action = journal.standing.last_action
        self._outcome = action.result.outcome if action is not None and action.result is not None else None

    @property
    def state(self) -> State:
        return self._journal.standing.state

    @property
    def standing(self) -> JournalState:
        return self._journal.standing

    @property
    def evaluated_at(self) -> float | None:
        evaluation = self._journal.standing.evaluation
        return evaluation.ts if evaluation is not None else None

    @property
    def both_slow(self) -> bool:
        """Return whether the last evaluation found both pools slow."""
        evaluation = self._journal.standing.evaluation
        return evaluation is not None and evaluation.both_slow

    @property
    def blind_s(self) -> float:
        """Seconds for which evaluations have had no data, been unknown or not covered a replica; else 0."""
        since = self.state.blind_since
        return 0.0 if since is None else max(self._clock() - since, 0.0)

    @property
    def unconfirmed(self) -> str | None:
        """Return where the targets differ from the decision; None while they do not."""
        confirmed, target_percent = self._journal.standing.confirmed, self.state.target_percent
        action = self._journal.standing.last_action
        if confirmed != target_percent:
            failed = action.result.targets if action is not None and action.result is not None else ()
            errors = [f"{target.name}: {target.error}" for target in failed if target.error]
            traffic = action.result.traffic if action is not None and action.result is not None else None
            return "; ".join(errors) or traffic or f"{target_percent}% is not confirmed yet"
        if self.dry_run:
            return None
        mismatch = _mismatch(self.readings, target_percent)
        return named(mismatch, self._place) if mismatch is not None else None

    def resume(self) -> Entry | None:
        """Complete an action that an earlier guard did not finish. None where every action was finished."""
        action = self._journal.standing.last_action
        if action is None or action.result is not None:
            return None
        return self._act(action, again=True)

    def turn(self, alerts: Sequence[str] = ()) -> Entry:
        """One evaluation and what follows. `alerts` are recorded with it, and have no other effect."""
        now, state = self._now()
        self._read()
        began = time.monotonic()
        evaluation = self._evaluation(now, state)
        self.tally.seconds += time.monotonic() - began
        self.tally.evaluations[evaluation.verdict] = self.tally.evaluations.get(evaluation.verdict, 0) + 1
        decision, capacity = decide(state, evaluation, now, self.rules), None
        if falls(state, decision.state):
            gate = self._ask_gate()
            capacity = gate.reason
            decision = decide(state, evaluation, now, self.rules.keeping(gate.floor))
        return self._carry_out(decision, now, evaluation, capacity, tuple(alerts))

    def pin(self, override: Override) -> Entry | None:
        """Apply a person's override. None where exactly this one holds already, and the targets confirm
        it."""
        now, state = self._now()
        self._read()
        if (
            state.override == override
            and override.left_s is None
            and not self._must_act(state.target_percent)
        ):
            return None
        capacity = (
            self._ask_gate().reason if override.pool == "standard" else None
        )  # only recorded: a person decides
        return self._carry_out(pin(state, override, now, self.rules), now, capacity=capacity)

    def release(self, by: str, why: str) -> Entry:
        """End an override: the guard decides again."""
        now, state = self._now()
        self._read()
        readings = [reading.percent for reading in self.readings if reading.percent is not None]
        decision = release(state, by, why, now, self.rules, min(readings, default=None))
        return self._carry_out(decision, now)

    def _now(self) -> tuple[float, State]:
        """The time, and the state. Where the clock was set since the last call, the state's times move along:
        that is not time that passed."""
        now, state = self._clock(), self.state
        if self._steady is None:
            return now, state
        offset = now - self._steady()
        step, self._offset = offset - self._offset, offset
        if abs(step) < STEP_S:
            return now, state
        self._set_s += step
        times = ("at", "counted_at", "row_at", "blind_since")
        moved = {name: ts + step for name in times if (ts := getattr(state, name)) is not None}
        return now, state.model_copy(update=moved)

    def _read(self) -> None:
        self.readings = self._switch.read()

    def _evaluation(self, now: float, state: State) -> Evaluation:
        try:
            # With little traffic, as at a canary step or at night, all samples since the last switch count.
            standing = self._journal.standing
            began = standing.last_action.ts if standing.last_action is not None else standing.began
            since = began + self._set_s if began is not None else None
            observed = self._observe(now, since, self._row(now, state))
        except SpecopsError as error:
            return Evaluation(ts=now, verdict="unknown", reason=error.message)
        findings = tuple(
            finding.model_copy(update={"why": named(finding.why, self._place)})
            for finding in observed.findings
        )
        reason = named(observed.reason, self._place)
        return observed.model_copy(update={"reason": reason, "findings": findings})

    def _row(self, now: float, state: State) -> BadRow | None:
        if state.row_began is None or state.row_last is None:
            return None
        passed_s = now - state.row_at if state.row_at is not None else math.inf
        return BadRow(state.row_began, state.row_last, passed_s)

    def _ask_gate(self) -> CapacityGate:
        try:
            return self._gate()
        except SpecopsError as error:
            return CapacityGate(reason=f"the capacity gate failed: {error.message}")

    def _carry_out(
        self,
        decision: GuardDecision,
        now: float,
        evaluation: Evaluation | None = None,
        capacity: str | None = None,
        alerts: tuple[str, ...] = (),
    ) -> Entry:
        last = self._journal.standing.last
        target_percent = decision.state.target_percent
        entry = Entry(
            ts=now,
            id=last.id + 1 if last else 1,
            verdict=evaluation.verdict if evaluation else None,
            evidence=EntryEvidence(
                why=named(decision.why, self._place),
                events=decision.events,
                evaluation=evaluation,
                capacity=named(capacity, self._place) if capacity is not None else None,
                alerts=alerts,
                readings=self.readings,
            ),
            state=decision.state,
            action=Intent(percent=target_percent) if self._must_act(target_percent) else None,
        )
        self._journal.append(entry)
        if entry.action is not None:
            self._set_s = 0.0
        self.tally.fallbacks += "fell_back" in decision.events
        return self._act(entry) if entry.action is not None else self._notify(entry)

    def _must_act(self, target_percent: int) -> bool:
        if self._journal.standing.confirmed != target_percent:
            return True
        above = any(
            reading.percent is not None and reading.percent > target_percent for reading in self.readings
        )
        return above and not self.dry_run

    def _act(self, entry: Entry, *, again: bool = False) -> Entry:
        assert entry.action is not None
        before = self._outcome
        if self.dry_run:
            result = SwitchResult(outcome="dry_run")
        else:
            result = self._switch.to(entry.action.percent, again=again)
            for target in result.targets:
                key = (target.name, "failed" if target.error else "done")
                self.tally.actions[key] = self.tally.actions.get(key, 0) + 1
        done = entry.model_copy(update={"result": result})
        self._journal.append(done)
        if not self.dry_run:
            self.readings = tuple(_reading(target) for target in result.targets)
        self._outcome = result.outcome
        return self._notify(done, again=before not in (None, result.outcome))

    def _notify(self, entry: Entry, *, again: bool = False) -> Entry:
        """Send a change, or (`again`) that the outcome of an earlier one is now another.

        The switch comes first. A failure is recorded, and the message is not sent again.
        """
        if self.dry_run or not self._notifications or not (entry.evidence.events or again):
            return entry
        result = entry.result
        message = Message(
            rollout=self._rollout,
            percent=entry.state.target_percent,
            confirmed=result is None or result.outcome == "done",
            text=entry.evidence.why,
        )
        sent = in_parallel(lambda notification: _sent(notification, message), self._notifications)
        done = entry.model_copy(update={"notified": tuple(sent)})
        self._journal.append(done)
        return done


def _sent(notification: Notification, message: Message) -> NotificationRecord:
    try:
        notification.send(message)
    except SpecopsError as error:
        return NotificationRecord(name=notification.name, error=error.message)
    return NotificationRecord(name=notification.name)


def _reading(record: SwitchRecord) -> TargetReading:
    """The last percentage that a target had when it was switched: a router that hangs is not read again."""
    return TargetReading(
        name=record.name, percent=record.after, error=record.error if record.after is None else None
    )


def _mismatch(readings: Sequence[TargetReading], target_percent: int) -> str | None:
    differences = []
    for reading in readings:
        if reading.percent is None:
            differences.append(reading.error or f"{reading.name} could not be read")
        elif reading.percent < target_percent:
            differences.append(
                f"{reading.name} has {reading.percent}%, expected {target_percent}%: changed outside the"
                f" guard; stays until {HAND_BACK}"
            )
        elif reading.percent > target_percent:
            differences.append(f"{reading.name} has {reading.percent}%, above the guard's {target_percent}%")
    return "; ".join(differences) or None


class Status(Record):
    """The state of a running guard, or of the journal where none runs."""

    OLDER: ClassVar = {"wanted": "target_percent"}

    running: int | None
    """The process id; None where no guard runs."""

    dry_run: bool = False
    state: State
    target_percent: int
    """The percentage that all targets should have."""

    unconfirmed: str | None
    """Where the targets differ from that, or are not known to agree."""

    decided_at: float | None
    """Seconds since the epoch; None before the first decision."""

    why: str
    capacity: str | None
    """The capacity gate's answer, where the decision needed one."""

    evaluation: Evaluation | None
    """The last one."""

    result: SwitchResult | None
    """Result of the last action."""


def status(
    standing: JournalState,
    *,
    running: int | None = None,
    unconfirmed: str | None = None,
    dry_run: bool = False,
) -> Status:
    last, action, target_percent = standing.last, standing.last_action, standing.state.target_percent
    if unconfirmed is None and standing.confirmed != target_percent:
        unconfirmed = f"{target_percent}% is decided but not confirmed"
    return Status(
        running=running,
        dry_run=dry_run,
        state=standing.state,
        target_percent=target_percent,
        unconfirmed=unconfirmed,
        decided_at=last.ts if last else None,
        why=last.evidence.why if last else "no decision yet: the journal is empty",
        capacity=last.evidence.capacity if last else None,
        evaluation=standing.evaluation,
        result=action.result if action is not None else None,
    )


class OverrideRequest(Record):
    """The body of POST /override."""

    pool: Literal["standard", "speculative", "none"]
    """The pool that gets all traffic; none ends the override."""

    by: str = Field(min_length=1, max_length=200)
    why: str = Field(min_length=1, max_length=2000)
    minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)


def carry_out(guard: Guard, request: OverrideRequest) -> Entry | None:
    """Apply an override. None where it holds already."""
    if request.pool == "none":
        return guard.release(request.by, request.why)
    left_s = None if request.minutes is None else request.minutes * 60
    return guard.pin(Override(pool=request.pool, by=request.by, why=request.why, left_s=left_s))
