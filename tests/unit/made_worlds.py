"""Servers whose speed a test chooses and a sweep has to find out; seconds are simulated ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from made_cells import cell, row
from made_sweeps import sampled

from specops.load.record import Row
from specops.phases.sweep.plan import ALWAYS, FailedJob, Job, Keep, Load, Memory, Rung, SweptCell
from specops.serving import Setting

PROMPTS = tuple(f"p{n:03}" for n in range(96))


@dataclass
class World:
    """An executor: what it measures takes its time on the clock `now`, in seconds."""

    speed: Mapping[str, float] | Mapping[tuple[str, int], float]
    """By setting, or by setting and streams: how many times as fast as the standard."""

    start_s: float = 20.0
    noise: float = 0.02
    start_noise: float = 0.0
    """Of every start of a server: what makes intervals of few starts wide."""

    seed: int = 0
    fails: frozenset[str] = frozenset()
    now: float = 0.0
    cells: list[SweptCell] = field(default_factory=list)
    rungs: list[Rung] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dealer = random.Random(self.seed)
        self.usual_s = {name: self.dealer.lognormvariate(0, 0.4) for name in PROMPTS}

    def run(self, rung: Rung, keep: Keep) -> None:
        self.rungs.append(rung)
        longest = 0.0
        opening = [] if rung.begun else [(0, rung.standard)]
        closing = [(1, rung.standard)] if rung.jobs or rung.begun else []
        for turn, job in [*opening, *((job.turn, job) for job in rung.jobs), *closing]:
            began = self.now
            late = job is not rung.standard and not rung.has_time_for(job, began, longest)
            if late and job not in rung.jobs[:ALWAYS]:
                continue
            for record in self._measured(job, turn):
                keep(record)
            longest = max(longest, self.now - began)

    def measure(self, rung: Rung) -> None:
        self.run(rung, lambda record: self.cells.append(record) if isinstance(record, SweptCell) else None)

    def _measured(self, job: Job, turn: int) -> Iterator[SweptCell | FailedJob]:
        self.now += self.start_s
        luck = self.dealer.lognormvariate(0, self.start_noise)
        known = {"rung": job.rung, "setting": job.setting.name, "turn": turn, "machine": "here"}
        if job.setting.name in self.fails:
            yield FailedJob(**known, why="it died", log="")
            return
        for planned in job.cells:
            rows = [self._row(job.setting, planned.load, name, luck) for name in planned.prompts]
            measured = cell(rows, planned.load.level, planned.repeat)
            began = 1000 + self.now
            self.now += measured.wall_s
            yield SweptCell(
                **known,
                stage=job.stage,
                temperature=planned.load.temperature,
                length=planned.load.length,
                began=began,
                up_s=self.start_s,
                memory=Memory(),
                cell=measured,
                again=sampled(rows) if job.stage == "confirmation" else None,
            )

    def _row(self, setting: Setting, load: Load, prompt: str, luck: float) -> Row:
        by_load = {key: value for key, value in self.speed.items() if isinstance(key, tuple)}
        times = by_load.get((setting.name, load.concurrency), self.speed.get(setting.name, 1.0))
        e2e_ms = 1000 * luck * self.usual_s[prompt] * self.dealer.lognormvariate(0, self.noise) / times
        return row(prompt, "all", e2e_ms)
