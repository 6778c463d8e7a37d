"""The search for capacity as a phase of the playbook, where the rollout file asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from specops import results
from specops.config import Capacity, Pool, Rollout, Slo
from specops.errors import ConfigError, ServerError
from specops.experiment.arms import Arm
from specops.hints import in_rollout
from specops.load.request_times import Objectives
from specops.load.settings import BaselineSettings
from specops.phases.capacity.answer import conclude
from specops.phases.capacity.judge import BLOCK_PROBES
from specops.phases.capacity.measure import CapacityRun
from specops.phases.capacity.records import (
    UNBOUNDED,
    ArmName,
    CapacityAnswer,
    CapacityStored,
    Objective,
    Summary,
    bounds_the_wait,
)
from specops.phases.capacity.search import COUNTED_REQUESTS, FEWEST_BLOCKS, Search
from specops.phases.commands import Commands
from specops.phases.inputs import changed_where_served, inputs_of_arms, settings_of
from specops.phases.measurement import Keep, checked
from specops.phases.phase import (
    MeasuredPhase,
    PhaseInput,
    PlannedPhase,
    Skipped,
    Step,
    Timing,
    gpus_of,
    next_lines,
    no_room,
)
from specops.render.figures import count
from specops.results import Content, Result, Verdict

STREAMS_TIMED = 8
"""Streams at which the requests are timed in a forecast."""


class _Searched(BaseModel):
    """What decides a search, beside the requests and the pools. Precision and time do not: with more of it,
    the same search goes on."""

    objective: Objective


class _Capacity(MeasuredPhase):
    name = "capacity"
    content = Content(CapacityStored, finished=CapacityAnswer, summary=Summary)
    data = CapacityAnswer
    pools = ("standard", "speculative")
    gate = False
    reference = True
    change = "choose another draft, tree or K, or route less load to it: pools.speculative in {file}"
    again = "run {rollout} --only capacity"
    remake = "capacity {rollout}"

    def inputs(self, task: PhaseInput) -> dict[str, str]:
        return _inputs(task.rollout)

    def unlike(self, rollout: Rollout, result: Result) -> str | None:
        if rollout.slo is None:
            return "slo"
        pools = [rollout.pools.standard, rollout.pools.speculative]
        return changed_where_served(result, _inputs(rollout), pools)

    def previous(self, task: PhaseInput) -> Result | None:
        previous = super().previous(task)
        if previous is not None:
            _stored(previous, str(task.path(self.name)))
        return previous

    def stands(self, task: PhaseInput, previous: Result) -> bool:
        rollout, name = task.rollout, str(task.path(self.name))
        probes = _stored(previous, name).probes
        if previous.verdict == "partial" or _search(rollout).next_probes(probes):
            return False
        # Prices are no input of the probes; with others, the same probes are concluded anew.
        concluded = conclude(probes, _search(rollout), _objective(rollout), rollout.costs)
        return concluded.answer == checked(CapacityAnswer, previous.data, f"{name} is damaged: data")

    def measure(self, task: PhaseInput, previous: Result | None, keep: Keep) -> Result:
        rollout = task.rollout
        requests, objective, search = _requests(rollout), _objective(rollout), _search(rollout)

        def result(
            run: CapacityRun,
            verdict: Verdict,
            reason: str,
            summary: Mapping[str, Any],
            judged: BaseModel | None,
        ) -> Result:
            stored = CapacityStored(run=run.run, prompts=run.prompts.provenance(), probes=run.probes)
            data = {} if judged is None else judged.model_dump(mode="json")
            return Result(
                phase=self.name,
                settings=requests.plan() | (rollout.capacity or Capacity()).model_dump(mode="json"),
                environment=results.environment() | {"arms": run.facts},
                verdict=verdict,
                reason=reason,
                summary=dict(summary),
                data=data | stored.model_dump(mode="json"),
            )

        def store(run: CapacityRun) -> None:
            if run.probes:
                keep(result(run, "partial", f"stopped after {count(len(run.probes), 'probe')}", {}, None))

        pools: dict[ArmName, Pool] = {
            "standard": rollout.pools.standard,
            "speculative": rollout.pools.speculative,
        }
        run = CapacityRun(pools, requests, objective, search, task.progress, task.logs, store)
        if previous is not None:
            earlier = _stored(previous, str(task.path(self.name)))
            run.resume(earlier.probes)
            run.facts |= previous.environment.get("arms", {})
        run.measure()
        concluded = conclude(run.probes, search, objective, rollout.costs)
        return result(run, concluded.verdict, concluded.reason, concluded.summary, concluded.answer)

    def run(self, task: PhaseInput) -> Step | Skipped:
        try:
            return super().run(task)
        except ServerError as error:
            return no_room(task, self.name, error)

    def forecast(self, task: PhaseInput, timing: Timing) -> PlannedPhase:
        pools = [task.rollout.pools.standard, task.rollout.pools.speculative]
        starts = sum(pool.endpoint is None for pool in pools)
        requests = 2 * BLOCK_PROBES * FEWEST_BLOCKS * COUNTED_REQUESTS
        budget_s = _search(task.rollout).budget_s
        least_s = min(budget_s, (timing.request_s(STREAMS_TIMED) * requests).least)
        return PlannedPhase(
            self.name,
            starts,
            requests,
            budget_s + timing.start_s().most * starts,
            STREAMS_TIMED,
            self.reusable(task),
            "ends once the ratio is known",
            least_s=least_s + timing.start_s().least * starts,
            gpus=gpus_of(pools),
        )

    def following(self, step: Step, commands: Commands) -> list[str]:
        if step.result.verdict != "undecided":
            return super().following(step, commands)
        spent_min = sum(probe.seconds for probe in _stored(step.result, str(step.path)).probes) / 60
        longer = (
            f"raise capacity.budget_min in {commands.file} above {spent_min:.0f}: the search then goes on"
        )
        steady = (
            step.result.data["unsteady"] is not None or spent_min < _search(commands.rollout).budget_s / 60
        )
        change = f"fix what leaves it open ({step.result.reason})" if steady else longer
        if steady and step.result.data["arms"]["standard"]["rate"] is not None:  # only the ratio is open
            change = f"lower capacity.precision in {commands.file}: the search then goes on"
        return next_lines(commands.of(self.again), change)


def _objective(rollout: Rollout) -> Objective:
    """Raises ConfigError for a rollout whose `slo` limits no wait."""
    limits = Objectives(**rollout.slo.model_dump()) if rollout.slo is not None else Objectives()
    if not bounds_the_wait(limits):
        raise ConfigError(
            f"capacity is at an objective, and slo has {UNBOUNDED}: expected slo.ttft_ms or slo.e2e_ms",
            hint=in_rollout("slo", "add slo with ttft_ms, such as 300"),
        )
    return Objective(limits=limits, attain=(rollout.capacity or Capacity()).attain)


def _search(rollout: Rollout) -> Search:
    settings = rollout.capacity or Capacity()
    return Search(settings.attain, settings.precision, 60 * settings.budget_min)


def _requests(rollout: Rollout) -> BaselineSettings:
    """Raises ConfigError where the rate is limited, below which a search cannot stay."""
    if rollout.measure.max_rps is not None:
        raise ConfigError(
            f"a search for the highest rate cannot stay below measure.max_rps ({rollout.measure.max_rps:g}):"
            " expected none",
            hint=in_rollout("max_rps", "remove max_rps, on servers without other users"),
        )
    return settings_of(rollout, rollout.pools.standard)


def _inputs(rollout: Rollout) -> dict[str, str]:
    requested = _requests(rollout)
    arms = [Arm("standard", rollout.pools.standard), Arm("speculative", rollout.pools.speculative)]
    return inputs_of_arms(arms, requested, _Searched(objective=_objective(rollout)), requested.prompt_set())


def _stored(result: Result, name: str) -> CapacityStored:
    return checked(CapacityStored, result.data, f"{name} is damaged: data")


def with_limits(rollout: Rollout, limits: Mapping[str, float], settings: Mapping[str, Any]) -> Rollout:
    """The rollout with these limits in ms as its `slo`, unless there are none, and these settings of
    `capacity`. Raises ValidationError."""
    chosen = (rollout.capacity or Capacity()).model_dump() | dict(settings)
    update: dict[str, Any] = {"capacity": Capacity.model_validate(chosen)}
    if limits:
        update["slo"] = Slo.model_validate(limits)
    return rollout.model_copy(update=update)


PHASE = _Capacity()
