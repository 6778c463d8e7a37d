"""Whether the speculative pool answers as the standard one does, whatever is asked of it."""

from __future__ import annotations

from specops import results
from specops.errors import ServerError
from specops.phases import Phase
from specops.phases.canary import canary, inputs, resumable
from specops.phases.inputs import changed
from specops.phases.playbook.keeping import keeping
from specops.phases.playbook.step import Given, Skipped, Step
from specops.phases.playbook.together import apart

PHASE: Phase = "canary"


def run(at: Given) -> Step | Skipped:
    asked, path = inputs(at.rollout), at.path(PHASE)
    previous = results.read(path) if path.exists() and not at.fresh else None
    if previous is not None and not resumable(previous, asked, str(path)):
        if changed(previous, asked) is None and previous.verdict in ("yes", "no"):
            return Step(PHASE, path, previous, reused=True)
        previous = None
    try:
        with keeping(PHASE, path, previous, asked, at.progress) as keep:
            keep(canary(at.rollout, at.folder, at.progress, previous=previous, on_partial=keep))
    except ServerError as error:
        return apart(at, PHASE, error)
    return Step(PHASE, path, results.read(path))
