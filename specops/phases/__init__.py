"""Phases of a rollout: each is typed input in, one typed result out.

A phase of the playbook is an object `PHASE` in the module that `REGISTRY` names. The walk plans, forecasts
and runs it, and the run folder, the checklist, the plots and the pages ask it what they need to know of it.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from pydantic import WithJsonSchema

if TYPE_CHECKING:
    from specops.phases.phase import Phase

REGISTRY: dict[str, str] = {
    "baseline": "specops.phases.baseline.phase",
    "drafts": "specops.phases.verify_draft.phase",
    "launch": "specops.phases.launch.phase",
    "sweep": "specops.phases.sweep.phase",
    "ab": "specops.phases.ab.phase",
    "referee": "specops.phases.referee.phase",
    "capacity": "specops.phases.capacity.phase",
    "canary": "specops.phases.canary.phase",
    "monitor": "specops.phases.monitor.phase",
    "route": "specops.phases.route.phase",
    "guard-drill": "specops.phases.guard_drill.phase",
    "checklist": "specops.phases.checklist.phase",
}
"""The phases that `run` walks, in order, each with its module. Each writes NAME.json into the run folder."""

ON_REQUEST = ("referee", "capacity")
"""Phases that only a rollout file with a section of their name has: they take long."""

PHASES: Collection[str] = REGISTRY.keys()
"""Names of the phases, in order."""

PhaseName = Annotated[str, WithJsonSchema({"type": "string", "enum": list(REGISTRY)})]


def phase_named(name: str) -> Phase:
    """The phase called `name`, whose module is imported at first use. Raises KeyError for another name."""
    phase: Phase = import_module(REGISTRY[name]).PHASE
    return phase


def phase_of_result(name: str) -> Phase | None:
    """The phase whose results are called `name`; None where it is no phase of the playbook."""
    if name in REGISTRY:
        return phase_named(name)
    return next((phase for phase in map(phase_named, PHASES) if phase.result_name == name), None)
