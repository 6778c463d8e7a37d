"""The router's configuration, as a phase of the playbook."""

from __future__ import annotations

from specops.phases.phase import PhaseInput
from specops.phases.playbook.rendered import RenderedPhase
from specops.phases.route import render
from specops.results import Result


class _Route(RenderedPhase):
    name = "route"
    files_use = "the router"
    remake = "route render {rollout}"

    def render(self, task: PhaseInput) -> Result:
        return render(task.rollout, task.folder)


PHASE = _Route()
