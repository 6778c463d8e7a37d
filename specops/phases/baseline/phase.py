"""The baseline as a phase of the playbook: the standard pool, as the rollout measures it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specops.config import Rollout
from specops.launch.servers import serving
from specops.load.record import PlaybookSummary
from specops.load.settings import OF_THE_RUN
from specops.phases import measurement
from specops.phases.baseline import measure
from specops.phases.inputs import ADDED, changed_where_served, inputs_of, settings_of
from specops.phases.measurement import BaselineData, Keep, checked
from specops.phases.phase import MeasuredPhase, PhaseInput, PlannedPhase, Skipped, Step, Timing, gpus_of
from specops.phases.playbook.endpoints import check_servers
from specops.results import Content, Result


class _Baseline(MeasuredPhase):
    name = "baseline"
    content = Content(BaselineData, summary=PlaybookSummary)
    pools = ("standard",)
    reference = True
    plots = True
    times_requests = True

    def inputs(self, task: PhaseInput) -> dict[str, str]:
        return _inputs(task.rollout)

    def unlike(self, rollout: Rollout, result: Result) -> str | None:
        return changed_where_served(result, _inputs(rollout), [rollout.pools.standard])

    def previous(self, task: PhaseInput) -> Result | None:
        path = task.path(self.name)
        return measurement.read(path) if path.exists() and not task.fresh else None

    def stands(self, task: PhaseInput, previous: Result) -> bool:
        requested = settings_of(task.rollout, task.rollout.pools.standard).model_dump(mode="json")
        return previous.verdict == "yes" and all(
            previous.settings.get(name) == requested[name] for name in OF_THE_RUN
        )

    def measure(self, task: PhaseInput, previous: Result | None, keep: Keep) -> Result:
        pool, name = task.rollout.pools.standard, "standard"
        settings, log = settings_of(task.rollout, pool), task.logs / "baseline.log"
        if previous is not None:  # partial, failed, or fewer requests than now: complete cells are reused
            measured = {role: sha for role, sha in previous.inputs.items() if role not in ADDED}
            previous = previous.model_copy(update={"inputs": measured})
        check_servers(task)
        with serving(pool, name, model=task.rollout.rollout, log=log, progress=task.progress) as server:
            return measure(settings.at(server, name), task.progress, previous, keep)

    def run(self, task: PhaseInput) -> Step | Skipped:
        step, log = super().run(task), task.logs / "baseline.log"
        if isinstance(step, Step) and step.result.verdict == "no" and not step.reused and log.exists():
            task.progress.note(f"baseline: the server's log is {log}")
        return step

    def forecast(self, task: PhaseInput, timing: Timing) -> PlannedPhase:
        requested = timing.requests
        prompts = len(requested.prompt_set().prompts) + requested.warmup
        streams = [level.concurrency or 1 for level in requested.levels() for _ in range(requested.repeats)]
        starts = int(task.rollout.pools.standard.endpoint is None)
        span = sum((timing.request_s(number) * prompts for number in streams), timing.start_s() * starts)
        return PlannedPhase(
            self.name,
            starts,
            prompts * len(streams),
            span.most,
            max(streams),
            self.reusable(task),
            least_s=span.least,
            gpus=gpus_of([task.rollout.pools.standard]),
        )

    def usable(self, result: Result) -> bool:
        return result.verdict == "yes"

    def read(self, result: Result, source: str) -> BaselineData:
        return checked(BaselineData, result.data, f"{source} is damaged: data")

    def plot(self, result: Result, source: Path, out: Path) -> bool:
        from specops.phases.plot import count_of, heading
        from specops.render.plot import Line, LinesPanel, LinesPicture, draw

        levels: Sequence[Mapping[str, Any]] = result.data["by_concurrency"]
        if not any(level["e2e_ms"]["p50"] is not None for level in levels):
            return False
        closed = all(level["concurrency"] is not None for level in levels)

        def line(latency: str, stat: str) -> Line:
            spreads = [level.get("over_repeats", {}).get(f"{latency}_{stat}_ms") for level in levels]
            ends = tuple((max(0.0, spread["low"]), spread["high"]) if spread else None for spread in spreads)
            return Line(stat, tuple(level[f"{latency}_ms"][stat] for level in levels), ends)

        panels = tuple(
            LinesPanel(title, "ms", tuple(line(latency, stat) for stat in ("p50", "p95")))
            for latency, title in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E"))
        )
        picture = LinesPicture(
            "concurrency (requests at a time)" if closed else "rate (requests/s)",
            tuple(level["concurrency"] if closed else level["rate"] for level in levels),
            panels,
            "Bars: 95% intervals over the repeats. ^: an interval that ends above the axis.",
        )
        requests = sum(level["requests"] for level in levels)
        draw(picture, heading(result, "Baseline", count_of(requests, "requests")), out)
        return True


def _inputs(rollout: Rollout) -> dict[str, str]:
    pool = rollout.pools.standard
    return inputs_of(settings_of(rollout, pool), pool)


PHASE = _Baseline()
