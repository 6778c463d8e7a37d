"""Phases of a rollout: each is typed input in, one typed result out."""

from typing import Literal, get_args

Phase = Literal[
    "baseline",
    "drafts",
    "launch",
    "sweep",
    "ab",
    "canary",
    "monitor",
    "route",
    "guard-drill",
    "checklist",
]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The phases that `run` walks, in order. Each writes PHASE.json into the run folder."""
