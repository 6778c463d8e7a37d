"""The router's configuration, as a phase of the playbook."""

from __future__ import annotations

from typing_extensions import TypedDict

from specops.phases.phase import PhaseInput
from specops.phases.playbook.rendered import RenderedPhase
from specops.phases.route import RouteData, render
from specops.results import Content, Result


class Summary(TypedDict):
    files: int
    classes: int
    router: str


class _Route(RenderedPhase):
    name = "route"
    content = Content(RouteData, summary=Summary)
    files_use = "the router"
    remake = "route render {rollout}"

    def render(self, task: PhaseInput) -> Result:
        return render(task.rollout, task.folder)


PHASE = _Route()
