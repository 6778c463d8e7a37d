"""The referee as a phase of the playbook, which a rollout file with the section `referee` has."""

from __future__ import annotations

from specops.config import Rollout
from specops.phases.inputs import changed_where_served
from specops.phases.measurement import Keep, checked
from specops.phases.phase import (
    NO_TIME,
    MeasuredPhase,
    PhaseInput,
    PlannedPhase,
    Span,
    Timing,
    gpus_of,
)
from specops.phases.referee.measure import contest_of, inputs_of_contest, measure
from specops.phases.referee.records import Findings, RefereeData, Summary
from specops.results import Content, Result


class _Referee(MeasuredPhase):
    name = "referee"
    content = Content(RefereeData, finished=Findings, summary=Summary)
    data = Findings
    pools = ("standard", "speculative")
    change = "take a fixed setting that {result} shows to be better: pools.speculative in {file}"
    remake = "referee {rollout}"

    def inputs(self, task: PhaseInput) -> dict[str, str]:
        return inputs_of_contest(*contest_of(task.rollout))

    def unlike(self, rollout: Rollout, result: Result) -> str | None:
        arms, programme, limits = contest_of(rollout)
        pools = [arm.pool for arm in arms]
        return changed_where_served(result, inputs_of_contest(arms, programme, limits), pools)

    def previous(self, task: PhaseInput) -> Result | None:
        previous = super().previous(task)
        if previous is not None:
            checked(RefereeData, previous.data, f"{task.path(self.name)} is damaged: data")
        return previous

    def stands(self, task: PhaseInput, previous: Result) -> bool:
        return previous.verdict != "partial" and not previous.data["failed"]

    def measure(self, task: PhaseInput, previous: Result | None, keep: Keep) -> Result:
        return measure(
            task.rollout,
            task.progress,
            logs=task.logs,
            previous=previous,
            on_partial=keep,
        )

    def forecast(self, task: PhaseInput, timing: Timing) -> PlannedPhase:
        arms, programme, _ = contest_of(task.rollout)
        span, per_pass = NO_TIME, 0
        for phase in programme.phases:
            requests = programme.count(phase) + programme.fillers(phase)
            per_pass += requests
            if phase.streams is not None:
                span += timing.request_s(phase.streams) * requests
            else:
                seconds = programme.duration_s(phase)
                span += Span(seconds, seconds)
        starts = sum(arm.pool.endpoint is None for arm in arms)
        whole = span * (programme.passes * len(arms)) + timing.start_s() * starts
        return PlannedPhase(
            self.name,
            starts,
            per_pass * programme.passes * len(arms),
            whole.most,
            max(phase.streams or 1 for phase in programme.phases),
            self.reusable(task),
            f"all {len(arms)} servers are up at the same time",
            least_s=whole.least,
            gpus=gpus_of([arm.pool for arm in arms]),
        )


PHASE = _Referee()
