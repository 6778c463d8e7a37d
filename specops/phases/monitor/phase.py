"""Rules, alerts and dashboard, as a phase of the playbook."""

from __future__ import annotations

from typing_extensions import TypedDict

from specops.phases.monitor.render import MonitorData, render
from specops.phases.phase import PhaseInput
from specops.phases.playbook.rendered import RenderedPhase
from specops.results import Content, Result


class Summary(TypedDict):
    files: int
    alerts: int
    measured: int


class _Monitor(RenderedPhase):
    name = "monitor"
    content = Content(MonitorData, summary=Summary)
    files_use = "alerts, dashboards and scrape configuration"
    remake = "monitor render {rollout}"

    def render(self, task: PhaseInput) -> Result:
        return render(task.rollout, task.folder, task.progress, task.file)


PHASE = _Monitor()
