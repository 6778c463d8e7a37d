"""How long a plan takes, learnt from cells that were measured before. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from specops.load.record import CellRecord
from specops.phases.sweep.jobs import Job, Load, Rung
from specops.phases.sweep.plan import load_of
from specops.phases.sweep.records import SweptCell


@dataclass(frozen=True)
class Sample:
    """A cell that was measured. Of a baseline, neither setting nor load is known, only the streams."""

    streams: int
    prompt_s: float
    """Of the cell's time, a prompt's share."""

    setting: str | None = None
    load: Load | None = None
    up_s: float | None = None


def swept(cells: Iterable[SweptCell]) -> list[Sample]:
    return [
        Sample(load_of(cell).concurrency, prompt_s, cell.setting, load_of(cell), cell.up_s)
        for cell in cells
        if (prompt_s := _prompt_s(cell.cell)) is not None
    ]


def of_a_baseline(cells: Iterable[CellRecord]) -> list[Sample]:
    return [
        Sample(cell.concurrency, prompt_s)
        for cell in cells
        if cell.concurrency is not None and (prompt_s := _prompt_s(cell)) is not None
    ]


@dataclass(frozen=True)
class Timing:
    samples: Sequence[Sample]
    """At least one."""

    warmup: int
    """Requests before each cell."""

    slack: float = 1.0
    """What was measured took so many times what was expected of it."""

    def knows_starts(self) -> bool:
        return any(sample.up_s is not None for sample in self.samples)

    def rung(self, rung: Rung) -> float:
        """Seconds of all its jobs, the standard's twice."""
        return self.jobs([rung.standard, *rung.jobs, rung.standard])

    def jobs(self, jobs: Iterable[Job]) -> float:
        return sum(map(self.job, jobs))

    def expected(self, rung: Rung) -> dict[str, float]:
        """Seconds of a job, by its setting; of the longest where it has several."""
        found: dict[str, float] = {}
        for job in (rung.standard, *rung.jobs):
            found[job.setting.name] = max(found.get(job.setting.name, 0.0), self.job(job))
        return found

    def job(self, job: Job) -> float:
        """Seconds from the start of its server; of its cells alone where no start is known."""
        cells = [
            (len(cell.prompts) + self.warmup) * self._prompt_s(job.setting.name, cell.load)
            for cell in job.cells
        ]
        return self.slack * (self.up_s(job.setting.name) + sum(cells))

    def up_s(self, setting: str) -> float:
        known = [sample for sample in self.samples if sample.up_s is not None]
        own = [sample for sample in known if sample.setting == setting]
        return fmean(sample.up_s or 0.0 for sample in own or known) if known else 0.0

    def _prompt_s(self, setting: str, load: Load) -> float:
        """As near to `setting` at `load` as there is a sample."""
        at = [sample for sample in self.samples if sample.load == load]
        own = [sample for sample in at if sample.setting == setting]
        apart = [abs(math.log(sample.streams / load.concurrency)) for sample in self.samples]
        near = [sample for sample, far in zip(self.samples, apart, strict=True) if far == min(apart)]
        return fmean(sample.prompt_s for sample in own or at or near)


def _prompt_s(cell: CellRecord) -> float | None:
    return cell.wall_s / len(cell.rows) if cell.rows and cell.wall_s > 0 else None
