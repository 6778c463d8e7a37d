"""Ties a sweep together: rungs are planned, measured wherever the executor is, kept at once, and judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from specops import results
from specops.errors import ServerError
from specops.phases.sweep import judging, plan
from specops.phases.sweep.halving import FAILED, Halving
from specops.phases.sweep.jobs import Executor, Load, Rung, Skipped
from specops.phases.sweep.plan import Key, key_of
from specops.phases.sweep.recommend import of_each
from specops.phases.sweep.records import KEPT, FailedJob, Kept, SkippedCell, SweptCell, kept_of
from specops.phases.sweep.timing import Timing, swept
from specops.phases.sweep.wanted import Wanted
from specops.progress import Progress
from specops.results import Result, Verdict

PHASE = "sweep"
LOOKS = 3
"""Rungs that a budget mostly has; how many it will be is not known before the end."""


def sweep(
    wanted: Wanted,
    executor: Executor,
    progress: Progress,
    *,
    previous: Result | None = None,
    on_partial: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Measure what is wanted, starting from what `previous` has of the same inputs, and judge it.

    `on_partial` gets a valid result after every cell. Raises ServerError when the standard cannot be
    measured at all, and what the executor raises when there is nowhere to measure.
    """
    run = _Sweep(wanted, executor, progress, on_partial)
    run.resume(previous)
    run.measure()
    return run.result()


class _Sweep:
    def __init__(
        self,
        wanted: Wanted,
        executor: Executor,
        progress: Progress,
        on_partial: Callable[[Result], None],
    ) -> None:
        self.wanted = wanted
        self.executor = executor
        self.progress = progress
        self.on_partial = on_partial
        self.inputs = wanted.inputs()
        self.standard = wanted.settings[0].name
        self.cells: dict[Key, SweptCell] = {}
        self.failed: list[FailedJob] = []
        self.skipped: list[Skipped] = []
        self.spent_before_s = 0.0
        self.began = time.monotonic()

    def resume(self, previous: Result | None) -> None:
        if previous is None or previous.inputs != self.inputs:
            return
        earlier = kept_of(previous, "the earlier result")
        self.cells = {key_of(cell): cell for cell in earlier.cells if self._good(cell)}
        self.skipped = [
            Skipped(one.setting, Load(one.concurrency, one.temperature, one.length), one.after, one.why)
            for one in earlier.skipped
        ]
        self.spent_before_s = earlier.spent_s
        if self.cells:
            self.progress.note(f"{len(self.cells)} cells were measured before")

    def measure(self) -> None:
        self.began = time.monotonic()
        if self.wanted.budget_min is None:
            self._all()
        else:
            self._spend(60 * self.wanted.budget_min)

    def _all(self) -> None:
        wanted = self.wanted
        self.skipped = []
        for rung in plan.whole(wanted.settings, wanted.loads, wanted.decks(), wanted.asked.repeats):
            left = plan.missing(self._working(rung), self.cells.values())
            if left is not None and not self._run(left):
                return

    def _working(self, rung: Rung) -> Rung:
        """Without the settings that failed: that they did is part of the answer."""
        failed = self._failed_names()
        for job in rung.jobs:
            if job.setting.name in failed - {one.setting for one in self.skipped}:
                left = [Skipped(job.setting.name, cell.load, job.rung - 1, FAILED) for cell in job.cells]
                self.skipped += left
        return replace(rung, jobs=tuple(job for job in rung.jobs if job.setting.name not in failed))

    def _spend(self, budget_s: float) -> None:
        wanted, decks = self.wanted, self.wanted.decks()
        of_loads = {load: decks[load.length] for load in wanted.loads}
        # As wide as the verdict's intervals will be, so that what is closed here is not open again there.
        each = of_each(
            wanted.confidence, len(wanted.settings) - 1, len({load.concurrency for load in of_loads}), LOOKS
        )
        halving = Halving(wanted.settings, of_loads, confidence=each)
        halving.resume(list(self.cells.values()), self.skipped)
        number = 1 + max((cell.rung for cell in self.cells.values()), default=-1)
        expected_s = took_s = 0.0
        while True:
            timing = self._timing()
            slack = took_s / expected_s if expected_s else 1.0
            left_s = budget_s - self._spent_s()
            rung = halving.plan(number, timing and replace(timing, slack=slack), left_s)
            self.skipped = halving.skipped
            if rung is None:
                return
            began = time.monotonic()
            if not self._run(replace(rung, until=time.time() + left_s)):
                return
            if timing:
                expected_s += timing.rung(rung) or 0.0
                took_s += time.monotonic() - began
            halving.narrow(number, list(self.cells.values()), self._failed_names())
            number += 1

    def _timing(self) -> Timing | None:
        samples = swept(self.cells.values())
        return Timing(samples, self.wanted.asked.warmup) if samples else None

    def _run(self, rung: Rung) -> bool:
        """Whether to go on: not without the standard, with which all is compared."""
        number, settings = rung.standard.rung, len(rung.jobs)
        self.progress.note(f"rung {number + 1}: {settings} setting{'s' if settings != 1 else ''}")
        self.executor.run(rung, self._keep)
        why = next((one for one in self.failed if (one.setting, one.rung) == (self.standard, number)), None)
        if why is None:
            return True
        if not any(cell.setting == self.standard and self._good(cell) for cell in self.cells.values()):
            raise ServerError(
                f"could not measure the standard, K = 0: {why.why}",
                hint=f"its log ends with:\n{why.log}" if why.log else "see whether it can be asked at all",
            )
        tried = {one.setting for one in self.failed if one.rung == number}
        tried |= {cell.setting for cell in self.cells.values() if cell.rung == number}
        if tried - {self.standard}:
            return True
        self.progress.note(f"the sweep ends here: the standard could not be measured: {why.why}")
        return False

    def _keep(self, record: SweptCell | FailedJob) -> None:
        if isinstance(record, FailedJob):
            self.failed.append(record)
            self.progress.note(f"{record.setting} failed: {record.why}")
        else:
            self.cells[key_of(record)] = record
        if self.cells:  # a result without cells would replace an earlier one by nothing
            self.on_partial(self._partial())

    def _good(self, cell: SweptCell) -> bool:
        of = cell.cell
        return of.complete and of.failed <= self.wanted.asked.max_error_share * len(of.rows)

    def _failed_names(self) -> set[str]:
        return {one.setting for one in self.failed if one.setting != self.standard}

    def _spent_s(self) -> float:
        return self.spent_before_s + time.monotonic() - self.began

    def _partial(self) -> Result:
        return self._result("partial", f"stopped after {len(self.cells)} cells", {}, {}, None)

    def result(self) -> Result:
        judged = judging.judge(
            self.wanted.settings,
            self.wanted.loads,
            list(self.cells.values()),
            self.failed,
            confidence=self.wanted.confidence,
            skipped=self.skipped,
        )
        return self._result(judged.verdict, judged.reason, judged.summary, judged.data, judged.recommendation)

    def _result(
        self,
        verdict: Verdict,
        reason: str,
        summary: dict[str, Any],
        judged: Mapping[str, Any],
        recommendation: dict[str, Any] | None,
    ) -> Result:
        wanted = self.wanted
        kept = Kept(
            cells=list(self.cells.values()),
            failed=self.failed,
            skipped=[
                SkippedCell(setting=one.setting, after=one.after, why=one.why, **asdict(one.load))
                for one in self.skipped
            ],
            spent_s=round(self._spent_s(), 3),
        )
        return Result(
            phase=PHASE,
            inputs=self.inputs,
            settings=wanted.asked.plan()
            | {"budget_min": wanted.budget_min, "confidence": wanted.confidence}
            | {"settings": {one.name: one.pool.model_dump(mode="json") for one in wanted.settings}},
            environment=results.environment(),
            verdict=verdict,
            reason=reason,
            summary=summary,
            data=dict(judged)
            | {
                "prompts": wanted.prompts.provenance(),
                "lengths": {
                    "counted_by": wanted.lengths.counted_by,
                    "prompts": {name: len(of) for name, of in wanted.lengths.classes.items()},
                },
                KEPT: kept.model_dump(mode="json", by_alias=True),
            },
            recommendation=recommendation,
        )
