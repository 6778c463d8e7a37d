"""The go-live verdict, by what is in the run folder and what answers now. Looked at anew each time."""

from __future__ import annotations

from datetime import UTC, datetime

from specops.phases.checklist.checklist import checklist
from specops.phases.playbook.keeping import written
from specops.phases.playbook.step import Given, Step


def run(at: Given) -> Step:
    return written(at, "checklist", checklist(at.rollout, at.file, at.folder, datetime.now(UTC)))
