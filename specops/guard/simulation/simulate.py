"""A trace through the very rules that guard, evidence and policy, beside the playbook's guard: who would have
fallen back, when, and whether rightly.

While the simulated guard leaves only a share of the traffic to the pool, the trace's counts are taken times
that share, as a router would have sent it; the pool is taken to be as fast as it was.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specops.effect.estimate import Counters
from specops.guard.policy import GuardRules, decide
from specops.guard.signals.criteria import Criteria
from specops.guard.signals.observation import (
    BadRow,
    LiveWindow,
    evaluate,
    repeated,
    still_slower,
    windows_needed,
)
from specops.guard.signals.query import LiveFigures
from specops.guard.signals.verdicts import judge
from specops.guard.simulation.holdout import at_instant
from specops.guard.simulation.traces import LiveTrace, PlaybookGuard, cut_window, instant, windows
from specops.guard.state import FULL, Evaluation, Event, State
from specops.progress import Progress, SilentProgress

Rightly = Literal["yes", "late", "no", "unknown"]
PAYS_UP_TO = 1.05
"""Times the standard's latency. A pool that takes less pays, or costs next to nothing: to take it off is
false."""


@dataclass(frozen=True)
class SimulatedFallback:
    ts: float
    why: str
    rightly: Rightly


Detected = Literal["in time", "late", "missed", "too short"]


@dataclass(frozen=True)
class Detection:
    """What the guard did about one incident: a time in which the pool was slower than the rollout file
    allows."""

    began: float
    acted: float | None
    """When less than all traffic was left to the pool; None where that never was."""

    delay_s: float | None
    """Seconds from `began` to `acted`."""

    allowed_s: float
    """A window and the evaluations in a row: what a fallback takes at least, and may take."""

    requests: float
    """Requests that the pool ended from the beginning to that, or to the end of the incident."""

    status: Detected
    """`too short`: it was over before a fallback was due."""


@dataclass(frozen=True)
class SimulatedStep:
    """An event of the policy."""

    ts: float
    event: Event
    percent: int
    why: str


@dataclass(frozen=True)
class Simulated:
    began: float
    ended: float
    evaluations: int
    verdicts: dict[str, int]
    decided_by: dict[str, int]
    """Evaluations whose latencies the live effect decided, or part of them; the others by the baseline."""

    steps: list[SimulatedStep]
    fallbacks: list[SimulatedFallback]
    detections: list[Detection]
    """One for each incident, however much traffic it had."""

    playbook: SimulatedFallback | None
    """The first; then it triggers at every evaluation that it finds bad, since it keeps no state."""

    playbook_triggers: int

    @property
    def verdict(self) -> Literal["yes", "no"]:
        detected = all(detection.status in ("in time", "too short") for detection in self.detections)
        return (
            "yes"
            if detected and all(fallback.rightly in ("yes", "unknown") for fallback in self.fallbacks)
            else "no"
        )


def simulate(
    trace: LiveTrace, criteria: Criteria, rules: GuardRules, progress: Progress | None = None
) -> Simulated:
    """Simulate the guard from the first interval to the last of one trace, with an evaluation at the end of
    each."""
    progress = progress or SilentProgress()
    progress.start("replaying", len(trace))
    length = window_of(trace, criteria)
    live = windows(trace, length, 2 * length)
    state, since = State(), 0
    counted: Counter[str] = Counter()
    decided_by: Counter[str] = Counter()
    steps: list[SimulatedStep] = []
    fallbacks: list[SimulatedFallback] = []
    off = np.zeros(len(trace), dtype=bool)
    for index, ts in enumerate(trace.ts.tolist()):
        evaluation = observed(trace, criteria, index, live, state, since)
        counted[evaluation.verdict] += 1
        by_effect = any(now.direction != "open" for now in evaluation.effect)
        decided_by["live effect" if by_effect else "baseline"] += 1
        decision = decide(state, evaluation, ts, rules)
        for event in decision.events:
            steps.append(SimulatedStep(ts, event, decision.state.percent, decision.why))
            if event == "fell_back":
                fallbacks.append(SimulatedFallback(ts, evaluation.reason, _rightly(trace, index, length)))
        if decision.state.percent != state.percent:
            since = index + 1
        state = decision.state
        off[index] = state.percent < FULL
        progress.advance()
    first, triggers = _playbook(trace, length)
    detections = _detections(trace, criteria, rules, off)
    late = {detection.acted for detection in detections if detection.status == "late"}
    fallbacks = [
        replace(fallback, rightly="late") if fallback.ts in late else fallback for fallback in fallbacks
    ]
    return Simulated(
        began=float(trace.ts[0]),
        ended=float(trace.ts[-1]),
        evaluations=len(trace),
        verdicts=dict(counted.most_common()),
        decided_by=dict(decided_by),
        steps=steps,
        fallbacks=fallbacks,
        detections=detections,
        playbook=first,
        playbook_triggers=triggers,
    )


def _detections(
    trace: LiveTrace, criteria: Criteria, rules: GuardRules, off: NDArray[np.bool_]
) -> list[Detection]:
    """Return what was done about each time in which the pool was slower than the rollout file allows, also
    where the guard had too little traffic to see it."""
    slow = np.nan_to_num(trace.slower) >= criteria.regression.value
    edges = np.flatnonzero(np.diff(np.concatenate([[False], slow, [False]]).astype(int)))
    finished = np.nan_to_num(np.asarray(trace.figures.finished, dtype=float))
    allowed_s = (window_of(trace, criteria) + rules.consecutive) * trace.interval_s
    detections = []
    for begin, end in edges.reshape(-1, 2):
        began = float(trace.ts[begin]) - trace.interval_s
        index = next((interval for interval in range(begin, end) if off[interval]), None)
        requests = float(finished[begin : end if index is None else index + 1].sum())
        if index is None:
            lasted = (end - begin) * trace.interval_s
            status: Detected = "missed" if lasted > allowed_s else "too short"
            detections.append(Detection(began, None, None, allowed_s, requests, status))
            continue
        acted = float(trace.ts[index])
        status = "in time" if acted - began <= allowed_s else "late"
        detections.append(Detection(began, acted, acted - began, allowed_s, requests, status))
    return detections


def observed(
    trace: LiveTrace, criteria: Criteria, index: int, live: LiveFigures, state: State, since: int
) -> Evaluation:
    """Return the observation as `look` makes it: over the window, or further back, while the share has been
    what it is; and in a row of bad ones over what came since its first. `observed`: the windows of the whole
    trace."""
    ts, share = float(trace.ts[index]), state.percent / FULL
    window = window_of(trace, criteria)

    def back(intervals: int) -> LiveFigures:
        return cut_window(trace, index, intervals, intervals + window, share)

    figures = instant(live, index) if share == 1 else back(window)
    judged = judge(criteria, figures)
    longer = min(windows_needed(criteria, figures, judged) * window, index + 1 - since)
    further = LiveWindow(longer * trace.interval_s, back(longer)) if longer > window else None
    counters = _effect(trace, criteria, ts, float(trace.ts[since - 1]) if since else None, share)
    evaluation = evaluate(criteria, figures, ts, further, judged, counters)
    used = max(longer, window)
    if evaluation.verdict == "bad" and state.row_began is not None and state.row_last is not None:
        fresh_s = BadRow(state.row_began, state.row_last).fresh_s(ts, used * trace.interval_s)
        fresh = math.floor(fresh_s / trace.interval_s)
        again = fresh > 0 and (
            still_slower(evaluation, counters, state.row_began) or repeated(criteria, evaluation, back(fresh))
        )
        evaluation = evaluation.model_copy(update={"repeated": again})
    return evaluation


def _effect(
    trace: LiveTrace, criteria: Criteria, ts: float, since: float | None, share: float
) -> Counters | str | None:
    """What `read_effect` returns at `ts`."""
    if not criteria.holdout:
        return None
    if trace.effect is None:
        return "the trace has no counters of the holdout"
    return at_instant(trace.effect, ts, since, share)


def window_of(trace: LiveTrace, criteria: Criteria) -> int:
    """Intervals of the trace that are a window."""
    return max(round(criteria.window_s / trace.interval_s), 1)


def _rightly(trace: LiveTrace, index: int, length: int) -> Rightly:
    """Return whether a fallback was right, by the truth of the intervals that it was decided on."""
    truth = trace.slower[max(index + 1 - length, 0) : index + 1]
    finite = truth[~np.isnan(truth)]
    if not len(finite):
        return "unknown"
    return "yes" if finite.max() > PAYS_UP_TO else "no"


def _playbook(trace: LiveTrace, length: int) -> tuple[SimulatedFallback | None, int]:
    guard, first, triggers = PlaybookGuard(), None, 0
    answers = trace.playbook
    figures = zip(answers.acceptance, answers.p95, answers.baseline_p95, strict=True)
    for index, values in enumerate(figures):
        falls, why = guard.should_fall_back(*values)
        if falls:
            triggers += 1
            first = first or SimulatedFallback(float(trace.ts[index]), why, _rightly(trace, index, length))
    return first, triggers
