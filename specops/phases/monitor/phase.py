"""Rules, alerts and dashboard, as a phase of the playbook."""

from __future__ import annotations

from specops.phases.monitor.render import render
from specops.phases.phase import PhaseInput
from specops.phases.playbook.rendered import RenderedPhase
from specops.results import Result


class _Monitor(RenderedPhase):
    name = "monitor"
    files_use = "alerts, dashboards and scrape configuration"
    remake = "monitor render {rollout}"

    def render(self, task: PhaseInput) -> Result:
        return render(task.rollout, task.folder, task.progress, task.file)


PHASE = _Monitor()
