"""The comparison as a phase of the playbook: both pools visited in turn, paired by prompt."""

from __future__ import annotations

import math
import shlex
from itertools import takewhile
from pathlib import Path

from typing_extensions import TypedDict

from specops.config import Rollout
from specops.errors import ConfigError
from specops.experiment.arms import Arm
from specops.experiment.findings import Ratio
from specops.experiment.plan import MIXED_STREAMS
from specops.experiment.run import FEWEST_CYCLES, FEWEST_REQUESTS, FIRST_LOOK, fixed_cycles, plan_of
from specops.load.settings import BaselineSettings
from specops.phases.ab import report
from specops.phases.ab.earlier import measurements_of
from specops.phases.ab.measure import compare
from specops.phases.ab.report import AbData, DeployTarget, Report
from specops.phases.ab.settings import AbSettings
from specops.phases.commands import Commands
from specops.phases.inputs import changed_where_served, inputs_of_arms, settings_of
from specops.phases.measurement import Keep
from specops.phases.phase import (
    NO_TIME,
    MeasuredPhase,
    PhaseInput,
    PlannedPhase,
    Skipped,
    Span,
    Step,
    Timing,
    gpus_of,
    next_lines,
)
from specops.results import Content, Result


class Summary(TypedDict):
    """The summary of a comparison: the best challenger at the lightest load; the first one where none may be
    deployed."""

    challenger: str
    deploy: list[DeployTarget]
    e2e_speedup: Ratio
    tpot_speedup: Ratio
    throughput_ratio: float | None
    pays_up_to: int | None
    parity: str | None
    parity_control: str | None
    parity_mixed: str | None
    acceptance_rate: float | None
    acceptance_length: float | None
    more_prompts: int | None
    looks: str
    duration_s: float


class _Ab(MeasuredPhase):
    name = "ab"
    content = Content(AbData, finished=Report, summary=Summary)
    pools = ("standard", "speculative")
    gate = False
    reference = True
    plots = True
    change = "choose another draft, tree or K: pools.speculative in {file}"

    def inputs(self, task: PhaseInput) -> dict[str, str]:
        return _inputs(task.rollout)

    def unlike(self, rollout: Rollout, result: Result) -> str | None:
        pools = [rollout.pools.standard, rollout.pools.speculative]
        return changed_where_served(result, _inputs(rollout), pools)

    def previous(self, task: PhaseInput) -> Result | None:
        path = task.path(self.name)
        return report.read_comparison(path) if path.exists() and not task.fresh else None

    def stands(self, task: PhaseInput, previous: Result) -> bool:
        return previous.verdict != "partial" and not previous.data["failed"]  # that arm is measured again

    def measure(self, task: PhaseInput, previous: Result | None, keep: Keep) -> Result:
        rollout = task.rollout
        return compare(
            _arms(rollout),
            _requests(rollout),
            _settings(rollout),
            task.progress,
            logs=task.logs,
            previous=previous,
            on_partial=keep,
        )

    def run(self, task: PhaseInput) -> Step | Skipped:
        open_k = task.rollout.pools.speculative.open_k
        if open_k is not None:
            raise ConfigError(
                f"could not compare the pools: the speculative one's command says {open_k}, which a sweep"
                " fills in",
                hint=f"grep -n -F -e {shlex.quote(open_k)} {shlex.quote(str(task.file))}  # write the K "
                "that the sweep recommends in its place",
            )
        return super().run(task)

    def forecast(self, task: PhaseInput, timing: Timing) -> PlannedPhase:
        arms, settings = _arms(task.rollout), _settings(task.rollout)
        requested = timing.requests
        if task.rollout.measure.trace or task.rollout.measure.ramp:
            requested = _requests(task.rollout)
        prompts = requested.prompt_set()
        plan = plan_of([arm.name for arm in arms], requested, settings, prompts, settings.mixed_temperature)
        restarts = settings.design == "abba-restart"
        starts = plan.rounds * len(arms) if restarts else sum(arm.pool.endpoint is None for arm in arms)
        first = list(takewhile(lambda window: window.cycle == 0, plan.windows()))
        sent = [
            (len(window.requests) + len(window.fillers), window.level.concurrency or 1) for window in first
        ]
        cycle_s = sum((timing.request_s(streams) * count for count, streams in sent), NO_TIME)
        if plan.replay is not None:  # its windows differ; their mean counts
            facts = plan.replay.facts
            seconds = len(arms) * facts.duration_s / facts.windows
            sent, cycle_s = (
                [(math.ceil(len(arms) * facts.requests / facts.windows), 1)],
                Span(seconds, seconds),
            )
        fixed = fixed_cycles(plan, settings)
        if fixed is not None:
            cycles = most_cycles = float(fixed)
            span = cycle_s * cycles
        else:
            fewest = min(FEWEST_CYCLES, settings.requests // FEWEST_REQUESTS)
            cycles = max(settings.requests / plan.requests_a_cycle(), fewest)
            planned_s = settings.min_duration_s / FIRST_LOOK
            whole, first_look = (
                (cycle_s * cycles).at_least(planned_s),
                FIRST_LOOK if settings.looks > 1 else 1,
            )
            span = Span(whole.least * first_look, whole.most)
            most_cycles = max(cycles, planned_s / cycle_s.least)  # a fast server is observed for as long
        mixed = MIXED_STREAMS if any(window.kind == "mixed" for window in first) else 1
        return PlannedPhase(
            self.name,
            starts,
            round(most_cycles * sum(count for count, _ in sent)),
            span.most + timing.start_s().most * starts,
            max(mixed, *(streams for _, streams in sent)),
            self.reusable(task),
            "at most: ends once decided",
            least_s=span.least + timing.start_s().least * starts,
            gpus=gpus_of([arm.pool for arm in arms], simultaneous=not restarts),
        )

    def read(self, result: Result, source: str) -> Report | None:
        if result.verdict == "partial":
            return None
        measurements_of(result, source)
        return report.read(result, source)

    def reason(self, step: Step) -> str:
        """Where speculation pays, since the answer above says the rest."""
        comparison = self.read(step.result, str(step.path))
        if comparison is None:
            return step.result.reason
        challenger = comparison.challengers[comparison.main_challenger]
        if not challenger.deploy:
            return {"no": "do not deploy", "undecided": "not enough evidence"}.get(step.result.verdict, "")
        levels_by_classes: dict[tuple[str, ...], list[str]] = {}
        for level in dict.fromkeys(target.level for target in challenger.deploy):
            classes = tuple(target.traffic_class for target in challenger.deploy if target.level == level)
            levels_by_classes.setdefault(classes, []).append(str(level))
        return "deploy for " + "; ".join(
            f"{', '.join(classes)} at {' and '.join(levels)}" for classes, levels in levels_by_classes.items()
        )

    def following(self, step: Step, commands: Commands) -> list[str]:
        if step.result.verdict != "undecided":
            return super().following(step, commands)
        more = step.result.summary.get("more_prompts")
        if more:
            file = f"the file that `prompts` names in {commands.file}"
            change = f"for each undecided class, add about {more} prompts to {file}"
            return next_lines(commands.of("run {rollout}"), change)
        change = f"fix what leaves it open ({step.result.reason}); more prompts alone will not decide it"
        return next_lines(commands.of("run {rollout} --only ab --fresh"), change)

    def plot(self, result: Result, source: Path, out: Path) -> bool:
        from specops.phases.plot import count_of, heading
        from specops.render.ab_plot import draw

        comparison = report.read(result, str(source))
        picture = report.picture(comparison)
        if not any(mark for panel in picture.panels for row in panel.rows for mark in row.marks):
            return False
        prompts = max(
            level.speedups.prompts
            for challenger in comparison.challengers.values()
            for level in challenger.levels
        )
        draw(picture, heading(result, "Comparison", count_of(prompts, "prompts")), out)
        return True


def _arms(rollout: Rollout) -> list[Arm]:
    return [Arm("standard", rollout.pools.standard), Arm("speculative", rollout.pools.speculative)]


def _requests(rollout: Rollout) -> BaselineSettings:
    return settings_of(rollout, rollout.pools.standard, for_comparison=True)


def _settings(rollout: Rollout) -> AbSettings:
    return AbSettings(**rollout.ab.model_dump())


def _inputs(rollout: Rollout) -> dict[str, str]:
    requested = _requests(rollout)
    return inputs_of_arms(_arms(rollout), requested, _settings(rollout), requested.prompt_set())


PHASE = _Ab()
