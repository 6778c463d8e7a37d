"""Whether the speculative pool answers as the standard one does, whatever is asked of it."""

from __future__ import annotations

from specops.errors import ServerError
from specops.phases import Phase
from specops.phases.canary import canary, inputs
from specops.phases.inputs import changed
from specops.phases.playbook.keeping import earlier, set_aside, written
from specops.phases.playbook.step import Given, Skipped, Step
from specops.phases.playbook.together import apart

PHASE: Phase = "canary"


def run(at: Given) -> Step | Skipped:
    asked = inputs(at.rollout)
    previous = earlier(at, PHASE)
    if previous is not None and changed(previous, asked) is None and previous.verdict != "undecided":
        return Step(PHASE, at.path(PHASE), previous, reused=True)
    try:
        result = canary(at.rollout, at.folder, at.progress)
    except ServerError as error:
        return apart(at, PHASE, error)
    set_aside(PHASE, at.path(PHASE), at.progress)
    return written(at, PHASE, result)
