"""The guard's decision after an evaluation: pure, so that it can be replayed, simulated and proved.

    on ── `consecutive` bad in a row ──▶ fallen ── cool-down over, pool alive ──▶ canary ── all steps ──▶ on
                                          ▲                                         │
                                          └────── `consecutive` bad in a row ───────┤
                                                                                    ▼
                                                  attempts used up: held, until a person acts

Only *bad* falls back. No data, no traffic and unknown end a row of bad evaluations, and change nothing else.
While fallen, *healthy* alone restores nothing: alerts also resolve when traffic stops. At a canary step an
evaluation is healthy if it is better than every threshold by a margin, and no class of traffic is bad.

Waiting is by the time that passed between two decisions, never until a point in time. Each decision shortens
a cool-down by at most one interval, and a clock that went back shortens it by nothing. So hours without a
guard, or a jump of the clock forward, gain at most an interval, and a jump back delays nothing for ever. An
override ends by all of the time that passed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from specops.config.guard import Guard
from specops.guard.state import FULL, Decision, Evaluation, Event, Finding, Mode, Override, State

HAND_BACK = "specops guard override ROLLOUT none --why 'the cause is fixed'"


@dataclass(frozen=True)
class Rules:
    """The settings of `guard` in the rollout file that decisions depend on."""

    interval_s: float = 60.0
    consecutive: int = 3
    cooldown_s: float = 1800.0
    steps: tuple[int, ...] = (5, 25, 50)
    hold: int = 5
    margin: float = 0.05
    attempts: int = 4
    backoff: float = 2.0
    max_wait_s: float = 86400.0
    floor: int = 0
    """The percentage that stays speculative at a fallback, since the standard pool cannot carry it. Where
    requests fail, all of them move."""

    @classmethod
    def of(cls, guard: Guard) -> Rules:
        return cls(
            interval_s=guard.interval_s,
            consecutive=guard.consecutive,
            cooldown_s=guard.cooldown_s,
            steps=tuple(guard.canary_percents) if all(action.stepwise for action in guard.actions) else (),
            hold=guard.hold_evaluations,
            margin=guard.margin,
            attempts=guard.attempts,
            backoff=guard.backoff,
            max_wait_s=guard.max_wait_s,
        )

    def above(self, percent: int) -> int:
        """The next step up from `percent`."""
        return next((step for step in self.steps if step > percent), FULL)

    def wait_s(self, attempts: int) -> float:
        """The cool-down after so many failed attempts."""
        grown = self.cooldown_s * self.backoff**attempts
        return float(max(min(grown, self.max_wait_s), self.cooldown_s))

    def keeping(self, floor: int) -> Rules:
        """The same rules, where the standard pool cannot carry `floor` per cent. No effect where the targets
        can only be switched as a whole."""
        return replace(self, floor=floor if self.steps else 0)

    @property
    def settled(self) -> int:
        """Healthy evaluations after which earlier attempts are forgotten: as long as a cool-down."""
        return max(math.ceil(self.cooldown_s / self.interval_s), self.hold)


NO_ROW: Mapping[str, object] = {"bad_in_a_row": 0, "row_began": None, "row_last": None, "row_at": None}


def decide(state: State, evaluation: Evaluation, now: float, rules: Rules) -> Decision:
    """The state after `evaluation`, made at `now`."""
    state, released = _passed(state, now, rules)
    if (apart := _too_close(state, now, rules)) is not None:
        if evaluation.verdict != "bad":
            state = state.model_copy(update=NO_ROW)
        why = f"{_word(evaluation)}: not counted, only {apart:.0f} s after the last counted evaluation"
        return Decision(state=state, why=why, events=released)
    state = _counted(state, evaluation, rules).model_copy(update={"counted_at": now})
    if state.override is not None:
        return _pinned(state, evaluation, rules, released)
    next_, said, events = MODES[state.mode](state, evaluation, rules)
    why = f"{_word(evaluation)}: {said}{_alone(evaluation)}"
    return Decision(state=next_, why=why, events=(*released, *events))


def falls(before: State, after: State) -> bool:
    """Return whether the guard's own decision lowers the percentage."""
    return after.percent < before.percent


def pin(state: State, override: Override, now: float, rules: Rules) -> Decision:
    """The state under a person's override, which holds until its time is over or somebody ends it."""
    state, _ = _passed(state, now, rules)
    state = state.model_copy(update={**NO_ROW, "override": override, "healthy_in_a_row": 0})
    until = "until ended" if override.left_s is None else f"for {override.left_s / 60:.0f} min"
    return Decision(
        state=state, why=f"{override.by} pinned {override.pool} {until}: {override.why}", events=("override",)
    )


def release(state: State, by: str, why: str, now: float, rules: Rules, found: int | None = None) -> Decision:
    """The state after a person ends an override: the guard continues where it was. A held guard tries again.
    Where a target was `found` below the decided percentage, the guard comes up from there by steps."""
    state, _ = _passed(state, now, rules)
    handed = state.model_copy(update={"override": None})
    below = state.mode in ("on", "canary") and found is not None and found < state.target_percent
    if state.mode == "held" or below:
        start = rules.above(found if below and found is not None else 0)
        if below:
            start = min(start, state.percent)
        handed = handed.model_copy(update={"attempts": 0})
        return Decision(
            state=_at_step(handed, start),
            why=f"{by} handed control back to the guard, which begins at {start}%: {why}",
            events=("released", "canary"),
        )
    if state.override is None:
        return Decision(
            state=handed, why=f"{by} handed control back to the guard, which had it already: {why}"
        )
    return Decision(
        state=handed,
        why=f"{by} handed control back to the guard (state: {_standing(handed)}): {why}",
        events=("released",),
    )


def _passed(state: State, now: float, rules: Rules) -> tuple[State, tuple[Event, ...]]:
    """Shorten the cool-down and an override by the time since the last decision."""
    passed = 0.0 if state.at is None else max(now - state.at, 0.0)
    changes: dict[str, object] = {"at": now, "wait_s": max(state.wait_s - min(passed, rules.interval_s), 0.0)}
    override, released = state.override, ()
    if override is not None and override.left_s is not None:
        left = override.left_s - passed
        changes["override"] = override.model_copy(update={"left_s": left}) if left > 0 else None
        if left <= 0:
            return state.model_copy(update=changes), ("released",)
    return state.model_copy(update=changes), released


def _too_close(state: State, now: float, rules: Rules) -> float | None:
    """Seconds since the last evaluation that counted, where that is less than half an interval; else None.
    Alerts make the guard evaluate at once, and one dip evaluated three times is not three in a row."""
    if state.counted_at is None or now < state.counted_at:
        return None
    apart = now - state.counted_at
    return apart if apart < rules.interval_s / 2 else None


def _counted(state: State, evaluation: Evaluation, rules: Rules) -> State:
    """The state with this evaluation added to its rows. One that is neither bad nor healthy ends a row of bad
    ones, and leaves a row of healthy ones.

    A further bad one counts only where the samples since the first are bad by themselves: windows overlap,
    and one spike is in several of them."""
    if evaluation.verdict == "bad":
        return state.model_copy(update=_bad_row(state, evaluation) | {"healthy_in_a_row": 0})
    healthy = state.healthy_in_a_row
    if evaluation.verdict == "healthy" and not (
        state.mode == "canary" and short_of(evaluation, rules.margin)
    ):
        healthy += 1
    return state.model_copy(update={**NO_ROW, "healthy_in_a_row": healthy})


def _bad_row(state: State, evaluation: Evaluation) -> dict[str, object]:
    at = evaluation.observed_at
    stepped_back = state.row_last is not None and at is not None and at < state.row_last
    if not state.bad_in_a_row or stepped_back:  # Prometheus' clock was set: which samples are new is unknown
        return {"bad_in_a_row": 1, "row_began": at, "row_last": at, "row_at": evaluation.ts}
    if evaluation.repeated is False:
        return {}
    return {"bad_in_a_row": state.bad_in_a_row + 1, "row_last": at}


Outcome = tuple[State, str, tuple[Event, ...]]


def _on(state: State, evaluation: Evaluation, rules: Rules) -> Outcome:
    if state.bad_in_a_row >= rules.consecutive:
        return _fall(state, evaluation, rules)
    if state.attempts and state.healthy_in_a_row >= rules.settled:
        settled = state.model_copy(update={"attempts": 0})
        return settled, "healthy for a whole cool-down: earlier attempts no longer count", ("settled",)
    return state, _row(state, evaluation, rules), ()


def _fallen(state: State, evaluation: Evaluation, rules: Rules) -> Outcome:
    if further := _further(state, evaluation, rules):
        return further
    if state.wait_s > 0:
        return state, f"{_standing(state)}; next attempt to re-enable in at least {state.wait_s:.0f} s", ()
    if evaluation.verdict not in ("healthy", "no_traffic"):
        return state, f"{_standing(state)}; not re-enabling: the speculative pool is not healthy", ()
    start = rules.above(state.percent)
    attempt = state.model_copy(update={"attempts": state.attempts + 1})
    said = f"cool-down over: attempt {attempt.attempts} of {rules.attempts} begins at {start}%"
    return _at_step(attempt, start), said, ("canary",)


def _held(state: State, evaluation: Evaluation, rules: Rules) -> Outcome:
    waits = state, f"{_standing(state)}: a person must act: {HAND_BACK}", ()
    return _further(state, evaluation, rules) or waits


def _further(state: State, evaluation: Evaluation, rules: Rules) -> Outcome | None:
    """The share that stayed, since the standard pool cannot carry it, moves as well once its requests
    fail."""
    if not (state.percent and state.bad_in_a_row >= rules.consecutive and _failing(evaluation)):
        return None
    further = state.model_copy(update={"percent": 0})
    return (
        further,
        f"requests fail: all traffic moves to the standard pool ({evaluation.reason})",
        ("fell_further",),
    )


def _canary(state: State, evaluation: Evaluation, rules: Rules) -> Outcome:
    if state.bad_in_a_row >= rules.consecutive:
        return _fall(state, evaluation, rules)
    if state.bad_in_a_row:
        return state, _row(state, evaluation, rules), ()
    if state.healthy_in_a_row < rules.hold:
        short = short_of(evaluation, rules.margin) if evaluation.verdict == "healthy" else None
        waits = f", waiting: {short or evaluation.reason}" if short or evaluation.verdict != "healthy" else ""
        return state, f"{_standing(state)}, {state.healthy_in_a_row} of {rules.hold} healthy{waits}", ()
    if state.percent == FULL:
        back = state.model_copy(update={"mode": "on", "healthy_in_a_row": 0})
        return back, f"healthy {rules.hold} times at {FULL}%: back on", ("returned",)
    step = rules.above(state.percent)
    return _at_step(state, step), f"healthy {rules.hold} times: from {state.percent}% to {step}%", ("step",)


def _fall(state: State, evaluation: Evaluation, rules: Rules) -> Outcome:
    stays = 0 if _failing(evaluation) else min(rules.floor, state.percent)
    gave_up = state.attempts >= rules.attempts
    fallen = state.model_copy(
        update={
            "mode": "held" if gave_up else "fallen",
            "percent": stays,
            **NO_ROW,
            "healthy_in_a_row": 0,
            "wait_s": 0.0 if gave_up else rules.wait_s(state.attempts),
        }
    )
    said = f"fallback to {stays}% after {state.bad_in_a_row} bad evaluations in a row ({evaluation.reason})"
    if not gave_up:
        return fallen, f"{said}; next attempt to re-enable in at least {fallen.wait_s:.0f} s", ("fell_back",)
    said = f"{said}; after {state.attempts} attempts a person must act: {HAND_BACK}"
    return fallen, said, ("fell_back", "gave_up")


def _failing(evaluation: Evaluation) -> bool:
    return any(found.signal == "errors" and found.verdict == "bad" for found in evaluation.findings)


def _at_step(state: State, percent: int) -> State:
    return state.model_copy(
        update={
            "mode": "canary",
            "percent": percent,
            **NO_ROW,
            "healthy_in_a_row": 0,
            "wait_s": 0.0,
        }
    )


MODES: Mapping[Mode, Callable[[State, Evaluation, Rules], Outcome]] = {
    "on": _on,
    "fallen": _fallen,
    "canary": _canary,
    "held": _held,
}


def _pinned(state: State, evaluation: Evaluation, rules: Rules, released: tuple[Event, ...]) -> Decision:
    """An override stands whatever the evaluation is. Traffic pinned to a speculative pool that is healthy
    proves it: the guard is then on when the override ends. Traffic pinned to the standard pool proves
    nothing."""
    assert state.override is not None
    who = f"{state.override.by} pinned {state.override.pool}"
    if state.override.pool == "standard":
        state = state.model_copy(update={**NO_ROW, "healthy_in_a_row": 0})
    elif state.mode != "on" and state.healthy_in_a_row >= rules.hold:
        proved = {"mode": "on", "percent": FULL, "wait_s": 0.0, "healthy_in_a_row": 0}
        said = f"{_word(evaluation)}: {who}; healthy {rules.hold} times, so the guard is on afterwards"
        return Decision(state=state.model_copy(update=proved), why=said, events=(*released, "returned"))
    said = f"{_word(evaluation)}: {who}; the override still applies"
    return Decision(state=state, why=said, events=released)


def _row(state: State, evaluation: Evaluation, rules: Rules) -> str:
    if evaluation.verdict == "bad":
        waits = ", but the samples since the first bad evaluation are not bad by themselves"
        said = waits if evaluation.repeated is False else ""
        return f"{state.bad_in_a_row} of {rules.consecutive} in a row{said} ({evaluation.reason})"
    return f"{_standing(state)} ({evaluation.reason})"


def _standing(state: State) -> str:
    return {
        "on": "on",
        "fallen": f"fallen back to {state.percent}%",
        "canary": f"at {state.percent}%",
        "held": f"held at {state.percent}%",
    }[state.mode]


def _word(evaluation: Evaluation) -> str:
    return evaluation.verdict.replace("_", " ")


def _alone(evaluation: Evaluation) -> str:
    """Classes that are bad while all traffic together is not: a rule of the router can keep them off."""
    names = {found.traffic_class for found in evaluation.findings if found.verdict == "bad"} - {None}
    if evaluation.verdict == "bad" or not names:
        return ""
    classes = ", ".join(sorted(str(name) for name in names))
    return f"; only these classes are bad: {classes}; route.classes can send them to the standard pool"


def short_of(evaluation: Evaluation, margin: float) -> str | None:
    """The first reason why a healthy evaluation does not count at a step; None where it counts."""
    return next(_shortfalls(evaluation, margin), None)


def _shortfalls(evaluation: Evaluation, margin: float) -> Iterator[str]:
    for finding in evaluation.findings:
        if finding.verdict == "bad":
            yield finding.why
        elif finding.value is not None and finding.threshold is not None and finding.verdict == "healthy":
            threshold = finding.threshold.value
            if finding.signal == "acceptance":
                # Of what is left above the threshold, where that is less: no share exceeds 1.
                short = finding.value < threshold + margin * min(threshold, 1 - threshold)
            else:
                short = finding.value > threshold * (1 - margin)
            if short:
                side = "above" if finding.signal == "acceptance" else "below"
                limit = f"{margin:.0%} {side} its threshold {threshold:.2f}"
                yield f"{_name(finding)} {finding.value:.2f} is not {limit}"


def _name(finding: Finding) -> str:
    return f"{finding.signal} of {finding.traffic_class}" if finding.traffic_class else finding.signal
