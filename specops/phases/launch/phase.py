"""The commands that start both pools, as a phase of the playbook."""

from __future__ import annotations

from typing_extensions import TypedDict

from specops.phases.commands import Commands
from specops.phases.launch import LaunchData, render
from specops.phases.phase import Phase, PhaseInput, Step, next_lines
from specops.phases.playbook.rendered import RenderedFiles
from specops.results import Content, Verdict


class Summary(TypedDict):
    files: int
    errors: int
    warnings: int
    unknown: int
    capacity: Verdict


class _Launch(Phase):
    name = "launch"
    content = Content(LaunchData, summary=Summary)
    data = RenderedFiles
    files_use = "start the pools"

    def run(self, task: PhaseInput) -> Step:
        return self.write(task, render(task.rollout, task.folder, task.progress))

    def following(self, step: Step, commands: Commands) -> list[str]:
        if step.result.verdict != "no":
            return super().following(step, commands)
        data = LaunchData.model_validate(step.result.data)
        change = f"fix the errors that {step.path} names"
        if data.capacity.verdict == "no" and data.capacity.change:
            change = data.capacity.change
        return next_lines(commands.of(self.again), change)


PHASE = _Launch()
