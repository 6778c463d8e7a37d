"""The sweep as a phase of the playbook: which K, or which tree, pays at which load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from specops.config import Pool, Rollout
from specops.experiment.findings import Ratio
from specops.load.settings import OF_THE_RUN
from specops.phases.commands import Commands
from specops.phases.inputs import inputs_of_settings, settings_of
from specops.phases.measurement import Keep
from specops.phases.phase import MeasuredPhase, PhaseInput, PlannedPhase, Skipped, Span, Step, Timing, gpus_of
from specops.phases.sweep import report
from specops.phases.sweep.measure import machines
from specops.phases.sweep.plan import STANDARD, SweepData, measurements_of
from specops.phases.sweep.report import Recommendation, Report
from specops.phases.sweep.spec import SweepSpec, forecast, samples_of, spec_of
from specops.phases.sweep.stages import BudgetError
from specops.phases.sweep.sweep import sweep
from specops.results import Content, Result
from specops.serving import pool_of, relocated, without_places


class Summary(TypedDict):
    """The summary of a sweep: the recommended setting at the load that decided."""

    recommended: int | None
    setting: str | None
    concurrency: int | None
    prompts: int | None
    e2e_speedup: Ratio
    tpot_speedup: Ratio
    ttft_change_ms: float | None
    tokens_per_sec: float | None
    acceptance_rate: float | None
    break_even_acceptance: float | None
    on_max: int | None
    off_min: int | None
    more_prompts: int | None


class _Sweep(MeasuredPhase):
    name = "sweep"
    content = Content(SweepData, finished=Report, recommendation=Recommendation, summary=Summary)
    reference = True
    plots = True
    remake = "sweep {rollout}"
    change = "give other drafts or trees to try in {file}: sweep.drafts, sweep.trees"

    def inputs(self, task: PhaseInput) -> dict[str, str]:
        return _spec(task).inputs()

    def unlike(self, rollout: Rollout, result: Result) -> str | None:
        """Compare its standard, its models and the settings of its requests; not its grid, which may have
        grown."""
        pool, requested = rollout.pools.standard, settings_of(rollout, rollout.pools.standard)
        swept = result.settings.get("settings") or {}
        if without_places(swept.get(STANDARD)) != without_places(pool.model_dump(mode="json")):
            return "the standard pool"
        prompts = requested.prompt_set()
        if result.inputs.get("prompts") != prompts.sha256:
            return "the prompts"
        plan = {name: value for name, value in requested.plan().items() if name not in OF_THE_RUN}
        if any(result.settings.get(name) != value for name, value in plan.items()):
            return "the settings"
        now = inputs_of_settings(_pools(swept, rollout), requested, {}, prompts)
        return None if now.get("models") == result.inputs.get("models") else "a model"

    def previous(self, task: PhaseInput) -> Result | None:
        previous = super().previous(task)
        if previous is not None:
            measurements_of(previous, str(task.path(self.name)))
        return previous

    def stands(self, task: PhaseInput, previous: Result) -> bool:
        budget_min = previous.settings.get("budget_min")
        return previous.verdict != "partial" and budget_min == _spec(task).budget_min

    def measure(self, task: PhaseInput, previous: Result | None, keep: Keep) -> Result:
        spec = _spec(task)
        samples, _ = samples_of(task.path(self.name))
        with machines(spec, task.rollout.sweep.cluster, task.logs / "sweep", task.progress) as executor:
            return sweep(spec, executor, task.progress, previous=previous, earlier=samples, on_partial=keep)

    def run(self, task: PhaseInput) -> Step | Skipped:
        command, fixed = self.command(task.commands), _fixed_k(task.rollout)
        if fixed is not None:
            return self.written_by_hand(task) or Skipped(self.name, fixed, command)
        try:
            return super().run(task)
        except BudgetError as error:
            return Skipped(self.name, error.message, f"{command} --budget {error.minutes}")

    def forecast(self, task: PhaseInput, timing: Timing) -> PlannedPhase:
        if _fixed_k(task.rollout) is not None:
            return PlannedPhase(self.name, seconds=0.0, note="not run: K of this pool cannot be set")
        spec = _spec(task)
        plan = forecast(spec, task.path(self.name))
        starts, requests = sum(rung.starts for rung in plan.rungs), sum(rung.requests for rung in plan.rungs)
        streams = max(load.concurrency for load in spec.loads)
        if spec.budget_min is not None:
            minutes, note = spec.budget_min, "a budget: later rungs depend on the first"
            span = Span(60.0 * minutes, 60.0 * minutes)
        else:
            span, note = timing.start_s() * starts + timing.request_s(streams) * requests, ""
            if plan.seconds is not None:
                span = Span(plan.seconds, plan.seconds)
        reused, gpus = self.reusable(task), gpus_of([task.rollout.pools.speculative])
        return PlannedPhase(
            self.name, starts, requests, span.most, streams, reused, note, least_s=span.least, gpus=gpus
        )

    def read(self, result: Result, source: str) -> Report | None:
        if result.verdict == "partial":
            return None
        report.recommendation(result, source)
        return report.read(result, source)

    def command(self, commands: Commands, *, fresh: bool = False) -> str:
        return commands.sweep(fresh=fresh)

    def plot(self, result: Result, source: Path, out: Path) -> bool:
        from specops.phases.plot import count_of, heading
        from specops.render.sweep_plot import draw

        swept = report.read(result, str(source))
        picture = report.picture(swept)
        squares = (square for panel in picture.panels for square in panel.squares)
        if not any(square.ends for square in squares) and not picture.points:
            return False
        requests = sum(cell.requests for cell in swept.cells)
        draw(picture, heading(result, "Sweep", count_of(requests, "requests")), out)
        return True


def _spec(task: PhaseInput) -> SweepSpec:
    return spec_of(task.rollout, task.file.parent)


def _fixed_k(rollout: Rollout) -> str | None:
    """Return why specops cannot set K; None if it can."""
    pool = rollout.pools.speculative
    if pool.endpoint is not None:
        return "the speculative pool runs already, so specops cannot set its K"
    return pool.fixed_k


def _pools(swept: Mapping[str, Any], rollout: Rollout) -> dict[str, Pool]:
    """The pools of a sweep, with the model folders where the rollout has them now."""
    own = [pool.own for pool in (rollout.pools.standard, rollout.pools.speculative) if pool.own is not None]
    folders = [(role, folder) for engine in own for role, folder in engine.weights.items()]
    places = {(role, folder.name): str(folder) for role, folder in folders}
    try:
        return {name: pool_of(relocated(pool, places)) for name, pool in swept.items()}
    except ValueError:  # of an earlier version, which knew other pools; pydantic's ValidationError is one
        return {}


PHASE = _Sweep()
