"""A trace through the very rules that guard, evidence and policy, beside the playbook's guard: who would have
fallen back, when, and whether rightly.

While the simulated guard leaves only a share of the traffic to the pool, the trace's counts are taken times
that share, as a router would have sent it; the pool is taken to be as fast as it was.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specops.guard.policy import Rules, decide
from specops.guard.signals import noise, verdicts
from specops.guard.signals.criteria import Criteria
from specops.guard.signals.observation import Row, Window, evaluate, repeated, windows_needed
from specops.guard.signals.query import LiveFigures
from specops.guard.simulation.traces import PlaybookGuard, Trace, cut_window, one, windows
from specops.guard.state import FULL, Evaluation, Event, State
from specops.progress import Progress, SilentProgress

Rightly = Literal["yes", "no", "unknown"]
PAYS_UP_TO = 1.05
"""Times the standard's latency. A pool that takes less pays, or costs next to nothing: to take it off is
false."""


@dataclass(frozen=True)
class Fallback:
    ts: float
    why: str
    rightly: Rightly


@dataclass(frozen=True)
class Step:
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
    steps: list[Step]
    fallbacks: list[Fallback]
    missed: list[float]
    """When incidents began that the guard did not fall back in."""

    playbook: Fallback | None
    """The first; then it triggers at every evaluation that it finds bad, since it keeps no state."""

    playbook_triggers: int

    @property
    def verdict(self) -> Literal["yes", "no"]:
        return "no" if self.missed or any(one.rightly == "no" for one in self.fallbacks) else "yes"


def simulate(trace: Trace, criteria: Criteria, rules: Rules, progress: Progress | None = None) -> Simulated:
    """Simulate the guard from the first interval to the last of one trace, with an evaluation at the end of
    each."""
    progress = progress or SilentProgress()
    progress.start("replaying", len(trace))
    length = window_of(trace, criteria)
    live = windows(trace, length, 2 * length)
    state, since = State(), 0
    counted: Counter[str] = Counter()
    steps: list[Step] = []
    fallbacks: list[Fallback] = []
    off = np.zeros(len(trace), dtype=bool)
    for at, ts in enumerate(trace.ts.tolist()):
        found = observed(trace, criteria, at, live, state, since)
        counted[found.verdict] += 1
        decision = decide(state, found, ts, rules)
        for event in decision.events:
            steps.append(Step(ts, event, decision.state.percent, decision.why))
            if event == "fell_back":
                fallbacks.append(Fallback(ts, found.reason, _rightly(trace, at, length)))
        if decision.state.percent != state.percent:
            since = at + 1
        state = decision.state
        off[at] = state.percent < FULL
        progress.advance()
    first, triggers = _playbook(trace, length)
    return Simulated(
        began=float(trace.ts[0]),
        ended=float(trace.ts[-1]),
        evaluations=len(trace),
        verdicts=dict(counted.most_common()),
        steps=steps,
        fallbacks=fallbacks,
        missed=_missed(trace, criteria, rules, live, off),
        playbook=first,
        playbook_triggers=triggers,
    )


def _missed(
    trace: Trace, criteria: Criteria, rules: Rules, live: LiveFigures, off: NDArray[np.bool_]
) -> list[float]:
    """Return when it began to be slower than the rollout file allows, and the guard saw traffic enough to act
    on it and let it be."""
    slow = np.nan_to_num(trace.slower) >= criteria.regression.value
    edges = np.flatnonzero(np.diff(np.concatenate([[False], slow, [False]]).astype(int)))
    judged = np.isin(verdicts.judge(criteria, live)["tpot"].codes, (noise.BAD, noise.HEALTHY))
    window = window_of(trace, criteria)
    missed = []
    for begin, end in edges.reshape(-1, 2):
        whole = slice(begin + window - 1, begin + window - 1 + rules.consecutive)
        if whole.stop < end and judged[whole].all() and not off[begin:end].any():
            missed.append(float(trace.ts[begin]))
    return missed


def observed(
    trace: Trace, criteria: Criteria, at: int, live: LiveFigures, state: State, since: int
) -> Evaluation:
    """Return the observation as `look` makes it: over the window, or further back, while the share has been
    what it is; and in a row of bad ones over what came since its first. `observed`: the windows of the whole
    trace."""
    ts, share = float(trace.ts[at]), state.percent / FULL
    window = window_of(trace, criteria)

    def back(intervals: int) -> LiveFigures:
        return cut_window(trace, at, intervals, intervals + window, share)

    ours = one(live, at) if share == 1 else back(window)
    found, used = evaluate(criteria, ours, ts), window
    longer = min(windows_needed(criteria, ours) * window, at + 1 - since)
    if longer > window:
        found, used = evaluate(criteria, ours, ts, Window(longer * trace.interval_s, back(longer))), longer
    if found.verdict == "bad" and state.row_began is not None and state.row_last is not None:
        fresh_s = Row(state.row_began, state.row_last).fresh_s(ts, used * trace.interval_s)
        fresh = math.floor(fresh_s / trace.interval_s)
        again = fresh > 0 and repeated(criteria, found, back(fresh))
        found = found.model_copy(update={"repeated": again})
    return found


def window_of(trace: Trace, criteria: Criteria) -> int:
    """Intervals of the trace that are a window."""
    return max(round(criteria.window_s / trace.interval_s), 1)


def _rightly(trace: Trace, at: int, length: int) -> Rightly:
    """Return whether a fallback was right, by the truth of the intervals that it was decided on."""
    truth = trace.slower[max(at + 1 - length, 0) : at + 1]
    known = truth[~np.isnan(truth)]
    if not len(known):
        return "unknown"
    return "yes" if known.max() > PAYS_UP_TO else "no"


def _playbook(trace: Trace, length: int) -> tuple[Fallback | None, int]:
    guard, first, triggers = PlaybookGuard(), None, 0
    for at, answers in enumerate(_answers(trace)):
        falls, why = guard.should_fall_back(*answers)
        if falls:
            triggers += 1
            first = first or Fallback(float(trace.ts[at]), why, _rightly(trace, at, length))
    return first, triggers


def _answers(trace: Trace) -> Iterator[Sequence[float]]:
    answers = trace.playbook
    yield from zip(answers.acceptance, answers.p95, answers.baseline_p95, strict=True)
