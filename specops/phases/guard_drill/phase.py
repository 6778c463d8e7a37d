"""The drill as a phase of the playbook: a fallback and a return on pools and a router started for it.

On pools that run already a drill moves live traffic. An operator decides when: with `specops guard drill`, or
with this phase by name.
"""

from __future__ import annotations

from typing_extensions import TypedDict

from specops.config import Rollout
from specops.errors import ServerError
from specops.phases.commands import Commands
from specops.phases.guard_drill import Rehearsal, drill
from specops.phases.guard_drill.stage import STAGED, missing, staged
from specops.phases.inputs import changed, inputs_of_settings, settings_of
from specops.phases.phase import (
    Phase,
    PhaseInput,
    PlannedPhase,
    Skipped,
    Span,
    Step,
    Timing,
    gpus_of,
    next_lines,
    no_room,
    set_aside,
)
from specops.results import Content

LIMIT_S = 60.0
"""Longest time that the fallback of a rehearsal lasts."""

ASSUMED_S = 60.0
"""Seconds of a rehearsal, without the starts of its servers."""


class Summary(TypedDict):
    switched_ms: float
    returned_ms: float
    lost: float | None


class _Drill(Phase):
    name = "guard-drill"
    content = Content(Rehearsal, summary=Summary)
    change = "fix what {result} names; its logs are {folder}/logs/guard-drill-*.log"
    again = "run {rollout} --only guard-drill"
    remake = "guard drill {rollout}"

    def run(self, task: PhaseInput) -> Step | Skipped:
        pools = task.rollout.pools
        if not pools.standard.endpoint and not pools.speculative.endpoint:
            return self._rehearse(task)
        if task.by_name:
            return self.write(task, drill(task.commands, task.progress, limit_s=LIMIT_S))
        return self.written_by_hand(task) or Skipped(
            self.name,
            "the pools run already, and a drill moves their live traffic: run it at a suitable time",
            self.command(task.commands),
        )

    def _rehearse(self, task: PhaseInput) -> Step | Skipped:
        inputs, path, previous = drill_inputs(task.rollout), task.path(self.name), self.earlier(task)
        if previous is not None and previous.verdict != "partial":
            live = STAGED not in previous.settings  # a drill on live traffic is stronger evidence: it stays
            # A fix, such as another router, is in no input. So a drill that did not pass is tried again.
            if live or (previous.verdict == "yes" and changed(previous, inputs) is None):
                return Step(self.name, path, previous, reused=True, by_hand=live)
        no_router = missing(task.rollout)
        if no_router is not None:
            return Skipped(self.name, f"no router for the rehearsal: {no_router.message}", no_router.hint)
        try:
            with staged(task) as (rollout, folder):
                result = drill(Commands(rollout, task.file, folder), task.progress, limit_s=LIMIT_S)
        except ServerError as error:
            return no_room(task, self.name, error)
        stage = f"both pools and {task.rollout.route.router.title}, started for the drill on loopback"
        update = {
            "inputs": inputs,
            "settings": result.settings | {STAGED: stage},
            "reason": f"rehearsed on temporary pools: {result.reason}",
        }
        set_aside(self.name, path, task.progress)
        return self.write(task, result.model_copy(update=update))

    def forecast(self, task: PhaseInput, timing: Timing) -> PlannedPhase:
        pools = task.rollout.pools
        if pools.standard.endpoint or pools.speculative.endpoint:
            return PlannedPhase(self.name, seconds=0.0, note="not run: it would move live traffic")
        span = timing.start_s() * 2 + Span(ASSUMED_S, ASSUMED_S)
        note, gpus = (
            f"and {task.rollout.route.router.title}, on loopback",
            gpus_of([pools.standard, pools.speculative]),
        )
        return PlannedPhase(self.name, 2, 0, span.most, note=note, least_s=span.least, gpus=gpus)

    def following(self, step: Step, commands: Commands) -> list[str]:
        if step.result.verdict == "no" and step.by_hand:  # of the live set-up, which no walk drills by itself
            return next_lines(self.command(commands), f"fix what {step.path} names")
        return super().following(step, commands)


def drill_inputs(rollout: Rollout) -> dict[str, str]:
    """The hash of each input of a rehearsal by name."""
    pools = {"standard": rollout.pools.standard, "speculative": rollout.pools.speculative}
    requested = settings_of(rollout, rollout.pools.standard)
    settings = {"guard": rollout.guard.model_dump(mode="json")}
    return inputs_of_settings(pools, requested, settings, requested.prompt_set())


PHASE = _Drill()
