"""Jobs on this machine, one after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt
from specops.phases.sweep.jobs import ALWAYS, Job, Keep, Rung
from specops.phases.sweep.measure import measure_job
from specops.progress import Progress

MACHINE = "here"


@dataclass(frozen=True)
class Here:
    asked: BaselineSettings
    prompts: Sequence[Prompt]
    logs: Path
    progress: Progress

    def run(self, rung: Rung, keep: Keep) -> None:
        """As `Executor.run` says. Without its standard a rung compares nothing, so it ends there."""
        began = time.time()
        if MACHINE not in rung.begun and not self._measure(rung.standard, 0, keep):
            return
        longest_s = time.time() - began
        failed: set[str] = set()
        for number, job in enumerate(rung.jobs):
            if job.setting.name in failed:
                continue
            began = time.time()
            if number >= ALWAYS and not rung.has_time_for(job, began, longest_s):
                break
            if not self._measure(job, job.turn, keep):
                failed.add(job.setting.name)
            longest_s = max(longest_s, time.time() - began)
        if rung.jobs or MACHINE in rung.begun:
            self._measure(rung.standard, 1, keep)

    def _measure(self, job: Job, turn: int, keep: Keep) -> bool:
        return measure_job(
            job,
            turn,
            machine=MACHINE,
            asked=self.asked,
            prompts=self.prompts,
            logs=self.logs,
            keep=keep,
            progress=self.progress,
        )
