"""The guard's decision after an evaluation: pure, so that it can be replayed, simulated and proved.

    on ── `consecutive` bad in a row ──▶ fallen ── cool-down over, pool alive ──▶ canary ── all steps ──▶ on
                                          ▲                                         │
                                          └────── `consecutive` bad in a row ───────┤
                                                                                    ▼
                                                  attempts used up: held, until a person acts

Only *bad* falls back. No data, no traffic, unknown and degraded end a row of bad evaluations, and change
nothing else. While fallen, *healthy* alone restores nothing: alerts also resolve when traffic stops.

A pool goes up only by what is known of it (`unproved`): each signal that has a reference is good by a margin,
each signal that it fell back for is, and no part is bad. At 0% nothing can be known, so an attempt begins
with a probe: the smallest step whose share of the present traffic gives a verdict within a cool-down. Where
traffic then gets too thin for a verdict in that time, the share becomes the one that suffices, once a
cool-down.

Waiting is by the time that passed between two decisions, never until a point in time. Each decision shortens
a cool-down by at most one interval, and a clock that went back shortens it by nothing. So hours without a
guard, or a jump of the clock forward, gain at most an interval, and a jump back delays nothing for ever. An
override ends by all of the time that passed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from specops.config.guard import Guard
from specops.guard.state import (
    FULL,
    Evaluation,
    Event,
    GuardDecision,
    Mode,
    Override,
    Signal,
    SignalFinding,
    State,
)

HAND_BACK = "specops guard override ROLLOUT none --why 'the cause is fixed'"


@dataclass(frozen=True)
class GuardRules:
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
    def from_settings(cls, guard: Guard) -> GuardRules:
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

    def probe(self, percent: int, evaluation: Evaluation) -> int:
        """The step above `percent` whose share of the traffic gives a verdict within a cool-down; at most the
        last one below 100. The next one where nobody counts the traffic."""
        steps = [step for step in self.steps if step > percent]
        if not steps or evaluation.probe is None:
            return self.above(percent)
        needed = evaluation.probe.percent(self.cooldown_s)
        return next((step for step in steps if step >= needed), steps[-1])

    def wait_s(self, attempts: int) -> float:
        """The cool-down after so many failed attempts."""
        grown = self.cooldown_s * self.backoff**attempts
        return float(max(min(grown, self.max_wait_s), self.cooldown_s))

    def keeping(self, floor: int) -> GuardRules:
        """The same rules, where the standard pool cannot carry `floor` per cent. No effect where the targets
        can only be switched as a whole."""
        return replace(self, floor=floor if self.steps else 0)

    @property
    def settled(self) -> int:
        """Healthy evaluations after which earlier attempts are forgotten: as long as a cool-down."""
        return max(math.ceil(self.cooldown_s / self.interval_s), self.hold)


NO_ROW: Mapping[str, object] = {
    "bad_in_a_row": 0,
    "row_began": None,
    "row_last": None,
    "row_at": None,
    "row_signals": (),
}


def decide(state: State, evaluation: Evaluation, now: float, rules: GuardRules) -> GuardDecision:
    """The state after `evaluation`, made at `now`."""
    state, released = _passed(state, now, rules)
    unjudged = evaluation.verdict in ("no_data", "unknown") and not evaluation.both_slow
    blind = unjudged or bool(evaluation.not_covered)
    since = now if state.blind_since is None else min(state.blind_since, now)
    state = state.model_copy(update={"blind_since": since if blind else None})
    if (since_last_s := _too_close(state, now, rules)) is not None:
        if evaluation.verdict != "bad":
            state = state.model_copy(update=NO_ROW)
        since_last = f"{since_last_s:.0f} s after the last counted evaluation"
        why = f"{_word_of(evaluation)}: not counted, only {since_last}"
        return GuardDecision(state=state, why=why, events=released)
    state = _counted(state, evaluation, rules).model_copy(update={"counted_at": now})
    if state.override is not None:
        return _pinned(state, evaluation, rules, released)
    next_, message, events = MODES[state.mode](state, evaluation, rules)
    why = f"{_word_of(evaluation)}: {message}{_only_bad_parts(evaluation)}"
    return GuardDecision(state=next_, why=why, events=(*released, *events))


def falls(before: State, after: State) -> bool:
    """Return whether the guard's own decision lowers the percentage."""
    return after.percent < before.percent


def pin(state: State, override: Override, now: float, rules: GuardRules) -> GuardDecision:
    """The state under a person's override, which holds until its time is over or somebody ends it."""
    state, _ = _passed(state, now, rules)
    state = state.model_copy(update={**NO_ROW, "override": override, "healthy_in_a_row": 0})
    until = "until ended" if override.left_s is None else f"for {override.left_s / 60:.0f} min"
    return GuardDecision(
        state=state, why=f"{override.by} pinned {override.pool} {until}: {override.why}", events=("override",)
    )


def release(
    state: State, by: str, why: str, now: float, rules: GuardRules, observed_percent: int | None = None
) -> GuardDecision:
    """The state after a person ends an override: the guard continues where it was. A held guard tries again.
    `observed_percent`: what a target was found at. Below the decided percentage, the guard comes up from
    there by steps."""
    state, _ = _passed(state, now, rules)
    handed = state.model_copy(update={"override": None})
    below = (
        state.mode in ("on", "canary")
        and observed_percent is not None
        and observed_percent < state.target_percent
    )
    if state.mode == "held" or below:
        start = rules.above(observed_percent if below and observed_percent is not None else 0)
        if below:
            start = min(start, state.percent)
        handed = handed.model_copy(update={"attempts": 0})
        return GuardDecision(
            state=_at_step(handed, start, rules),
            why=f"{by} handed control back to the guard, which begins at {start}%: {why}",
            events=("released", "canary"),
        )
    if state.override is None:
        return GuardDecision(
            state=handed, why=f"{by} handed control back to the guard, which had it already: {why}"
        )
    return GuardDecision(
        state=handed,
        why=f"{by} handed control back to the guard (state: {_standing(handed)}): {why}",
        events=("released",),
    )


def _passed(state: State, now: float, rules: GuardRules) -> tuple[State, tuple[Event, ...]]:
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


def _too_close(state: State, now: float, rules: GuardRules) -> float | None:
    """Seconds since the last evaluation that counted, where that is less than half an interval; else None.
    Alerts make the guard evaluate at once, and one dip evaluated three times is not three in a row."""
    if state.counted_at is None or now < state.counted_at:
        return None
    gap_s = now - state.counted_at
    return gap_s if gap_s < rules.interval_s / 2 else None


def _counted(state: State, evaluation: Evaluation, rules: GuardRules) -> State:
    """The state with this evaluation added to its rows. One that is neither bad nor healthy ends a row of bad
    ones, and leaves a row of healthy ones.

    A further bad one counts only where the samples since the first are bad by themselves: windows overlap,
    and one spike is in several of them."""
    if evaluation.verdict == "bad":
        return state.model_copy(update=_bad_row(state, evaluation) | {"healthy_in_a_row": 0})
    healthy = state.healthy_in_a_row
    if state.mode == "on":
        healthy += evaluation.verdict == "healthy"
    else:
        healthy += unproved(evaluation, state.fell_for, rules.margin) is None
    return state.model_copy(update={**NO_ROW, "healthy_in_a_row": healthy})


def _bad_row(state: State, evaluation: Evaluation) -> dict[str, object]:
    observed_at = evaluation.observed_at
    bad = {finding.signal for finding in evaluation.whole if finding.verdict == "bad"}
    stepped_back = state.row_last is not None and observed_at is not None and observed_at < state.row_last
    if not state.bad_in_a_row or stepped_back:  # Prometheus' clock was set: which samples are new is unknown
        row = {"row_began": observed_at, "row_last": observed_at, "row_at": evaluation.ts}
        return {"bad_in_a_row": 1, "row_signals": tuple(sorted(bad)), **row}
    if evaluation.repeated is False:
        return {}
    signals = tuple(sorted(bad | set(state.row_signals)))
    return {"bad_in_a_row": state.bad_in_a_row + 1, "row_last": observed_at, "row_signals": signals}


Outcome = tuple[State, str, tuple[Event, ...]]


def _on(state: State, evaluation: Evaluation, rules: GuardRules) -> Outcome:
    if state.bad_in_a_row >= rules.consecutive:
        return _fall(state, evaluation, rules)
    if state.attempts and state.healthy_in_a_row >= rules.settled:
        settled = state.model_copy(update={"attempts": 0})
        return settled, "healthy for a whole cool-down: earlier attempts no longer count", ("settled",)
    return state, _row(state, evaluation, rules), ()


def _fallen(state: State, evaluation: Evaluation, rules: GuardRules) -> Outcome:
    if further := _further(state, evaluation, rules):
        return further
    if state.wait_s > 0:
        return state, f"{_standing(state)}; next attempt to re-enable in at least {state.wait_s:.0f} s", ()
    if evaluation.verdict != "no_traffic" and (short := unproved(evaluation, state.fell_for, rules.margin)):
        return state, f"{_standing(state)}; not re-enabling: {short}", ()
    start = rules.probe(state.percent, evaluation)
    attempt = state.model_copy(update={"attempts": state.attempts + 1})
    message = f"cool-down over: attempt {attempt.attempts} of {rules.attempts} begins at {start}%"
    return _at_step(attempt, start, rules), message, ("canary",)


def _held(state: State, evaluation: Evaluation, rules: GuardRules) -> Outcome:
    waits = state, f"{_standing(state)}: a person must act: {HAND_BACK}", ()
    return _further(state, evaluation, rules) or waits


def _further(state: State, evaluation: Evaluation, rules: GuardRules) -> Outcome | None:
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


def _canary(state: State, evaluation: Evaluation, rules: GuardRules) -> Outcome:
    if state.bad_in_a_row >= rules.consecutive:
        return _fall(state, evaluation, rules)
    if state.bad_in_a_row:
        return state, _row(state, evaluation, rules), ()
    short = unproved(evaluation, state.fell_for, rules.margin)
    if state.healthy_in_a_row < rules.hold or short:
        thin = evaluation.verdict in ("no_traffic", "unknown") and state.wait_s <= 0
        if thin and (share := rules.probe(state.percent - 1, evaluation)) > state.percent:
            message = (
                f"too little traffic for a verdict at {state.percent}%: from {state.percent}% to {share}%"
            )
            return _at_step(state, share, rules), message, ("probe",)
        waits = f", waiting: {short}{_outlook(state, evaluation)}" if short else ""
        return state, f"{_standing(state)}, {state.healthy_in_a_row} of {rules.hold} healthy{waits}", ()
    if state.percent == FULL:
        back = state.model_copy(update={"mode": "on", "healthy_in_a_row": 0, "wait_s": 0.0, "fell_for": ()})
        return back, f"healthy {rules.hold} times at {FULL}%: back on", ("returned",)
    step = rules.above(state.percent)
    moved = _at_step(state, step, rules)
    return moved, f"healthy {rules.hold} times: from {state.percent}% to {step}%", ("step",)


def _outlook(state: State, evaluation: Evaluation) -> str:
    """How long the present traffic takes to give a verdict, where it has given none."""
    probe = evaluation.probe
    if probe is None or evaluation.verdict != "no_traffic":
        return ""
    rate = probe.eligible_per_s * state.percent / FULL
    if rate <= 0:
        return "; no eligible request arrives"
    minutes = probe.requests / rate / 60
    return f"; {probe.requests:.0f} requests take about {minutes:.0f} min at {60 * rate:.1f} a minute"


def _fall(state: State, evaluation: Evaluation, rules: GuardRules) -> Outcome:
    stays = 0 if _failing(evaluation) else min(rules.floor, state.percent)
    gave_up = state.attempts >= rules.attempts
    fallen = state.model_copy(
        update={
            "mode": "held" if gave_up else "fallen",
            "percent": stays,
            "fell_for": tuple(sorted({*state.fell_for, *state.row_signals})),
            **NO_ROW,
            "healthy_in_a_row": 0,
            "wait_s": 0.0 if gave_up else rules.wait_s(state.attempts),
        }
    )
    message = (
        f"fallback to {stays}% after {state.bad_in_a_row} bad evaluations in a row ({evaluation.reason})"
    )
    if not gave_up:
        return (
            fallen,
            f"{message}; next attempt to re-enable in at least {fallen.wait_s:.0f} s",
            ("fell_back",),
        )
    message = f"{message}; after {state.attempts} attempts a person must act: {HAND_BACK}"
    return fallen, message, ("fell_back", "gave_up")


def _failing(evaluation: Evaluation) -> bool:
    return any(finding.signal == "errors" and finding.verdict == "bad" for finding in evaluation.whole)


def _at_step(state: State, percent: int, rules: GuardRules) -> State:
    return state.model_copy(
        update={
            "mode": "canary",
            "percent": percent,
            **NO_ROW,
            "healthy_in_a_row": 0,
            "wait_s": rules.cooldown_s,
        }
    )


MODES: Mapping[Mode, Callable[[State, Evaluation, GuardRules], Outcome]] = {
    "on": _on,
    "fallen": _fallen,
    "canary": _canary,
    "held": _held,
}


def _pinned(
    state: State, evaluation: Evaluation, rules: GuardRules, released: tuple[Event, ...]
) -> GuardDecision:
    """An override stands whatever the evaluation is. Traffic pinned to a speculative pool that is healthy
    proves it: the guard is then on when the override ends. Traffic pinned to the standard pool proves
    nothing."""
    assert state.override is not None
    who = f"{state.override.by} pinned {state.override.pool}"
    if state.override.pool == "standard":
        state = state.model_copy(update={**NO_ROW, "healthy_in_a_row": 0})
    elif state.mode != "on" and state.healthy_in_a_row >= rules.hold:
        proved = {"mode": "on", "percent": FULL, "wait_s": 0.0, "healthy_in_a_row": 0, "fell_for": ()}
        message = f"{_word_of(evaluation)}: {who}; healthy {rules.hold} times, so the guard is on afterwards"
        return GuardDecision(
            state=state.model_copy(update=proved), why=message, events=(*released, "returned")
        )
    message = f"{_word_of(evaluation)}: {who}; the override still applies"
    return GuardDecision(state=state, why=message, events=released)


def _row(state: State, evaluation: Evaluation, rules: GuardRules) -> str:
    if evaluation.verdict == "bad":
        waits = ", but the samples since the first bad evaluation are not bad by themselves"
        message = waits if evaluation.repeated is False else ""
        return f"{state.bad_in_a_row} of {rules.consecutive} in a row{message} ({evaluation.reason})"
    return f"{_standing(state)} ({evaluation.reason})"


def _standing(state: State) -> str:
    return {
        "on": "on",
        "fallen": f"fallen back to {state.percent}%",
        "canary": f"at {state.percent}%",
        "held": f"held at {state.percent}%",
    }[state.mode]


def _word_of(evaluation: Evaluation) -> str:
    return evaluation.verdict.replace("_", " ")


def _only_bad_parts(evaluation: Evaluation) -> str:
    """Parts that are bad while all traffic together is not."""
    if evaluation.verdict == "bad" or not evaluation.bad_parts:
        return ""
    parts = ", ".join(sorted({str(finding.part) for finding in evaluation.bad_parts}))
    classes = any(finding.traffic_class for finding in evaluation.bad_parts)
    advice = "; route.classes can send a class to the standard pool" if classes else ""
    return f"; only these parts are bad: {parts}{advice}"


def unproved(evaluation: Evaluation, fell_for: Sequence[Signal], margin: float) -> str | None:
    """The first reason why an evaluation does not show that the pool may go up; None where it shows that.

    No finding is bad. Each signal of the whole pool that has a reference, and each in `fell_for`, is known
    and better than its threshold by `margin`. Each replica is covered."""
    if evaluation.verdict == "bad" or (not evaluation.whole and evaluation.verdict != "healthy"):
        return evaluation.reason
    if evaluation.not_covered:
        return f"not covered: {evaluation.not_covered[0]}"
    missing = set(fell_for) - {finding.signal for finding in evaluation.whole}
    if missing:
        return f"{', '.join(sorted(missing))}: unknown"
    for finding in evaluation.findings:
        decides = finding.part is None and (finding.threshold is not None or finding.signal in fell_for)
        if finding.verdict == "bad" or (decides and finding.verdict != "healthy"):
            return finding.why
        if decides and (short := _short_of(finding, margin)):
            return short
    return evaluation.reason if evaluation.both_slow else None


def _short_of(finding: SignalFinding, margin: float) -> str | None:
    """Why a healthy finding is too close to its threshold for a step."""
    if finding.value is None or finding.threshold is None:
        return None
    threshold = finding.threshold.value
    if finding.signal == "acceptance":
        # Of what is left above the threshold, where that is less: no share exceeds 1.
        side, short = "above", finding.value < threshold + margin * min(threshold, 1 - threshold)
    else:
        side, short = "below", finding.value > threshold * (1 - margin)
    limit = f"{margin:.0%} {side} its threshold {threshold:.2f}"
    return f"{finding.signal} {finding.value:.2f} is not {limit}" if short else None
