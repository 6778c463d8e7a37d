"""How both pools are started, and whether the standard one carries the peak alone."""

from __future__ import annotations

from specops.phases.launch import render
from specops.phases.playbook.keeping import written
from specops.phases.playbook.step import Given, Step


def run(at: Given) -> Step:
    """Rendered anew each time: nothing is measured for it."""
    return written(at, "launch", render(at.rollout, at.folder, at.progress))
