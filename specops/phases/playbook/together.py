"""Phases that need both pools up at once, where only one may fit."""

from __future__ import annotations

from specops.errors import ServerError
from specops.phases import Phase
from specops.phases.playbook.step import Given, Skipped


def apart(at: Given, phase: Phase, error: ServerError) -> Skipped:
    """That a server did not come up beside the other, where the rollout says that they share a device.
    Raises `error` elsewhere: the comparison had both up."""
    if at.rollout.ab.design != "abba-restart":
        raise error
    return Skipped(
        phase,
        f"it needs both pools up at once, and they were not: {error.message}",
        "make room for both (gpu_memory_utilization), or give both as endpoints on machines of their own",
    )
