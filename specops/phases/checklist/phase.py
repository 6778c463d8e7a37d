"""The checklist as the last phase of the playbook."""

from __future__ import annotations

from datetime import UTC, datetime

from specops.phases.checklist.checklist import checklist
from specops.phases.checklist.evidence import ChecklistData
from specops.phases.commands import Commands
from specops.phases.phase import Phase, PhaseInput, Step, next_lines
from specops.phases.summaries import Counts
from specops.results import Content


class _Checklist(Phase):
    name = "checklist"
    content = Content(ChecklistData, summary=Counts)
    gate = False
    data = ChecklistData

    def run(self, task: PhaseInput) -> Step:
        return self.write(task, checklist(task.rollout, task.file, task.folder, datetime.now(UTC)))

    def following(self, step: Step, commands: Commands) -> list[str]:
        passed = step.result.verdict == "yes"
        return next_lines(commands.of("guard status {rollout}" if passed else "checklist {rollout}"))


PHASE = _Checklist()
