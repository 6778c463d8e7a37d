"""Ties a sweep together: rungs are planned, measured where the executor runs, stored at once, and judged."""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from specops import results
from specops.errors import ServerError
from specops.experiment.margins import places_needed
from specops.experiment.records import Margin, Place
from specops.experiment.storing import Storing
from specops.hints import with_options
from specops.load import clock
from specops.phases.sweep import judging, plan
from specops.phases.sweep.claims import windows_of
from specops.phases.sweep.judging import SweepJudgement
from specops.phases.sweep.plan import (
    Executor,
    FailedJob,
    Finalists,
    Job,
    Key,
    LengthCounts,
    Load,
    Measurements,
    Rung,
    Sample,
    Skipped,
    SkippedCell,
    SweepData,
    SweptCell,
    Timing,
    key_of,
    measurements_of,
    samples_of_cells,
)
from specops.phases.sweep.recommend import of_each
from specops.phases.sweep.spec import SweepSpec
from specops.phases.sweep.stages import (
    FAILED,
    ConfirmationInputs,
    Halving,
    confirming,
    owed,
    refuse_short,
    smallest,
)
from specops.progress import Progress
from specops.results import Result, Verdict

PHASE = "sweep"
LOOKS = 3
"""Rungs that the choice usually has with a budget; their number is not known before the end."""

MOST_LOOKS = 3
"""Looks at a confirmation without a budget. Each later one has a smaller share of the error."""

CONFIRMING = 0.5
"""The share of the time left that the choice leaves to the confirmation, where it can."""


def sweep(
    spec: SweepSpec,
    executor: Executor,
    progress: Progress,
    *,
    previous: Result | None = None,
    earlier: Sequence[Sample] = (),
    on_partial: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Measure what `spec` says, starting from what `previous` has of the same inputs, and judge it.

    `earlier` says how long such servers took before, so that a budget that is too short is refused before a
    server starts. `on_partial` gets a valid result after cells, and where the sweep is stopped. Raises
    BudgetError for a budget in which nothing can be decided, ServerError when the standard cannot be measured
    at all, and what the executor raises when there is nowhere to measure.
    """
    run = _Sweep(spec, executor, progress, on_partial)
    run.resume(previous)
    run.measure(earlier)
    return run.result()


class _Sweep:
    def __init__(
        self,
        spec: SweepSpec,
        executor: Executor,
        progress: Progress,
        on_partial: Callable[[Result], None],
    ) -> None:
        self.spec = spec
        self.executor = executor
        self.progress = progress
        self.on_partial = on_partial
        self.inputs = spec.inputs()
        self.standard = spec.settings[0].name
        self.cells: dict[Key, SweptCell] = {}
        self.failed: list[FailedJob] = []
        self.skipped: list[Skipped] = []
        self.finalists: Finalists | None = None
        self.looks = 0
        self.judged_cells = 0
        self.margins: dict[Place, Margin] = {}
        self.storing = Storing(self._store)
        self.token = secrets.token_hex(4)
        """Names this sweep in the nonces of its prompts."""

        self.over = False
        self.spent_before_s = 0.0
        self.began = time.monotonic()
        self.expected_s = self.took_s = 0.0

    def resume(self, previous: Result | None) -> None:
        if previous is None or previous.inputs != self.inputs:
            return
        earlier = measurements_of(previous, "the earlier result")
        self.cells = {key_of(cell): cell for cell in earlier.cells if self._good(cell)}
        self.skipped = [
            Skipped(skip.setting, Load(skip.concurrency, skip.temperature, skip.length), skip.after, skip.why)
            for skip in earlier.skipped
        ]
        self.finalists, self.looks, self.token = earlier.finalists, earlier.looks, earlier.run
        self.margins = {margin.place: margin for margin in earlier.margins}
        self.judged_cells = len(self._confirming()) if previous.verdict != "partial" else 0
        self.spent_before_s = earlier.spent_s
        more = self.spec.budget_min or 0.0, previous.settings.get("budget_min") or 0.0
        ended = previous.verdict != "undecided" or more[0] <= more[1]
        self.over = previous.verdict != "partial" and self.spec.budget_min is not None and ended
        if self.cells:
            self.progress.note(f"{len(self.cells)} cells were measured before")

    def measure(self, earlier: Sequence[Sample]) -> None:
        self.began = time.monotonic()
        if len(self.spec.settings) == 2:
            streams = sorted({load.concurrency for load in self.spec.loads})
            self.finalists = Finalists(settings=(self.spec.settings[1].name,), streams=tuple(streams))
        with self.storing.at_a_stop():
            if self.spec.budget_min is None:
                self._all()
            else:
                self._spend(60 * self.spec.budget_min, earlier)
            self._request_margins()

    def _all(self) -> None:
        """Measure without a budget: as many rungs of each stage as there are repeats."""
        spec = self.spec
        repeats = spec.requests.repeats
        self.skipped = []
        if self.finalists is None:
            for rung in plan.whole(spec.settings, spec.loads, spec.decks(), repeats):
                left = plan.missing(self._working(rung), self.cells.values())
                if left is not None and not self._run(left):
                    return
            self.finalists = self._pick()
        if self.finalists is None:
            return
        confirming = self._to_confirm(self.finalists)
        confirming = replace(confirming, first=self._first_confirming(), dealt={})
        for rung in confirming.rungs(confirming.even(repeats)):
            left = plan.missing(self._working(rung), self.cells.values())
            if left is not None and not self._run(left):
                return
        if self._finish_rung():
            while self._measure_more(self.finalists):
                pass

    def _measure_more(self, finalists: Finalists) -> bool:
        """Measure a further rung of the confirmation, where that decides rare events with no more requests to
        the chosen setting than a comparison may send. Return whether one was measured."""
        self._request_margins()
        missing = self._judged().requests_missing
        name = finalists.settings[0]
        sent = sum(len(cell.cell.rows) for cell in self._confirming() if cell.setting == name)
        if missing is None or sent + missing > self.spec.margins.requests or self._look() >= MOST_LOOKS:
            return False
        self.looks, self.judged_cells = self._look(), len(self._confirming())
        confirming = replace(self._to_confirm(finalists), requests=missing)
        return all(self._run(self._working(rung)) for rung in confirming.rungs(confirming.even(1)))

    def _request_margins(self) -> None:
        """Query the standard, once more, where a confirmed setting answered otherwise."""
        if self.finalists is None or not self._confirming():
            return
        places = places_needed(
            windows_of(self.cells.values()), self.standard, self.finalists.settings, self.margins
        )
        number = self._next_number() - 1
        job = Job(number, self.spec.settings[0], (), stage="confirmation", places=tuple(places))
        left_s = math.inf if self.spec.budget_min is None else 60 * self.spec.budget_min - self._spent_s()
        if places and self._timing().job(job) <= left_s:
            rung = Rung(job, ())
            fresh = not self.spec.requests.same_prompts
            self.executor.run(rung.in_run(self.token) if fresh else rung, self._keep)

    def _working(self, rung: Rung) -> Rung:
        """The rung without settings that failed: their failure is part of the answer."""
        failed = self._failed_names()
        for job in rung.jobs:
            if job.setting.name in failed - {skip.setting for skip in self.skipped}:
                left = [Skipped(job.setting.name, cell.load, job.rung - 1, FAILED) for cell in job.cells]
                self.skipped += left
        return replace(rung, jobs=tuple(job for job in rung.jobs if job.setting.name not in failed))

    def _spend(self, budget_s: float, earlier: Sequence[Sample]) -> None:
        """Measure with a budget: the choice, then the confirmation, each within its share of the time.
        Nothing is measured of a sweep that was decided before, or has spent its budget."""
        if self.over:
            return
        if earlier and not self.cells:
            self._refuse_short(budget_s, Timing(earlier, self.spec.requests.warmup))
        if not self._finish_rung():
            return
        if self.finalists is None:
            halving = self._choose(budget_s)
            if halving is None:
                return
            self.finalists = self._pick() or self._only_left(halving)
        if self.finalists is not None:
            self._confirm(budget_s, self.finalists)

    def _finish_rung(self) -> bool:
        """Measure what is left of the last rung of a sweep that was stopped."""
        settings = self._to_confirm(self.finalists).settings if self.finalists else self.spec.settings
        rung = plan.unfinished(settings, list(self.cells.values()))
        return rung is None or self._run(self._working(rung))

    def _only_left(self, halving: Halving) -> Finalists | None:
        """The remaining setting where there was no time for a choice between two; None where there was."""
        if any(cell.stage == "choice" and cell.setting != self.standard for cell in self.cells.values()):
            return None
        left = [setting for settings in halving.open.values() for setting in settings]
        streams = sorted({load.concurrency for load in self.spec.loads})
        return Finalists(settings=(left[0].name,), streams=tuple(streams)) if left else None

    def _choose(self, budget_s: float) -> Halving | None:
        """Narrow the settings down; None where the sweep cannot continue."""
        spec, decks = self.spec, self.spec.decks()
        of_loads = {load: decks.choice[load.length] for load in spec.loads}
        # As wide as the verdict's intervals will be, so that what is closed here is not open again there.
        confidence = of_each(
            spec.confidence, len(spec.settings) - 1, len({load.concurrency for load in of_loads}), LOOKS
        )
        halving = Halving(spec.settings, of_loads, confidence=confidence)
        halving.resume(list(self.cells.values()), self.skipped)
        number = self._next_number()
        if not self.cells:
            opening = halving.opening(number)
            assert opening is not None, "there are two settings"
            if not self._run(replace(opening, jobs=())):
                return None
            timing = self._timing()
            self._refuse_short(budget_s, timing)
            left_s = budget_s - self._spent_s() - self._least_confirming_s(timing)
            rung = halving.fitting(opening, timing, left_s)
            self.skipped = halving.skipped
            if rung is not None:
                if not self._run_within(replace(rung, begun=self._begun(number)), timing, left_s):
                    return None
                halving.narrow(number, list(self.cells.values()), self._failed_names())
            number += 1
        while True:
            timing = self._timing()
            left_s = budget_s - self._spent_s()
            least_s = self._least_confirming_s(timing)
            reserve_s = max(0.0, CONFIRMING * left_s - least_s)
            rung = halving.plan(number, timing, left_s - least_s, reserve_s)
            self.skipped = halving.skipped
            if rung is None:
                return halving
            if not self._run_within(rung, timing, left_s - least_s):
                return None
            halving.narrow(number, list(self.cells.values()), self._failed_names())
            self.skipped = halving.skipped
            number += 1

    def _confirm(self, budget_s: float, finalists: Finalists) -> None:
        if not self.cells:  # there is one setting, and nothing is known of its time
            confirming = self._to_confirm(finalists)
            opening = confirming.rungs([confirming.fewest()])[0]
            if not self._run(replace(opening, jobs=())):
                return
            timing = self._timing()
            jobs = (*opening.jobs, opening.standard)
            refuse_short(budget_s, self._spent_s(), timing, jobs)
            rung = replace(opening, begun=self._begun(opening.standard.rung))
            if not self._run_within(rung, timing, budget_s - self._spent_s()):
                return
        timing = self._timing()
        for number, rung in enumerate(self._fitting(finalists, timing, budget_s - self._spent_s())):
            left_s = budget_s - self._spent_s()
            # The clock may have run faster than planned: what does not fit is not begun.
            if number and timing.rung(rung) > left_s:
                return
            if not self._run_within(self._working(rung), timing, left_s):
                return

    def _fitting(self, finalists: Finalists, timing: Timing, left_s: float) -> Sequence[Rung]:
        """The most of a confirmation that fits and has the requests that bound rare events; where there is no
        time for those, the most that fits."""
        plans = []
        for less in _less_and_less(finalists):
            confirming = self._to_confirm(less)
            rungs = confirming.within(timing, left_s) or []
            if rungs and requests_to(less.settings[0], rungs) >= confirming.requests:
                return rungs
            plans.append(rungs)
        return next((rungs for rungs in plans if rungs), [])

    def _run_within(self, rung: Rung, timing: Timing, left_s: float) -> bool:
        """Measure a rung that is expected to fit; how long it took corrects the expectation for the next."""
        if not rung.jobs:
            return True
        began = time.monotonic()
        timed = replace(rung, until=clock.now() + left_s, expected_s=timing.expected(rung))
        if not self._run(timed):
            return False
        jobs = [*rung.jobs, rung.standard] if rung.begun else [rung.standard, *rung.jobs, rung.standard]
        self.expected_s += timing.jobs(jobs) / timing.slack
        self.took_s += time.monotonic() - began
        return True

    def _refuse_short(self, budget_s: float, timing: Timing) -> None:
        """Raise BudgetError for a budget that is too short, unless a setting was measured already."""
        if all(cell.setting == self.standard for cell in self.cells.values()):
            rung = self._smallest()
            refuse_short(budget_s, self._spent_s(), timing, [rung.standard, *rung.jobs, rung.standard])

    def _smallest(self) -> Rung:
        spec = self.spec
        return smallest(spec.settings, spec.loads, spec.decks(), self._owed())

    def _owed(self) -> int:
        """The least number of prompts of the confirmation, with a budget; else 0."""
        if self.spec.budget_min is None:
            return 0
        had = Counter[bool]()
        for cell in self.cells.values():
            had[cell.setting == self.standard] += len(cell.cell.rows)
        return owed(had[True], had[False])

    def _least_confirming_s(self, timing: Timing) -> float:
        """Seconds of the smallest confirmation: one setting at the lightest load."""
        return timing.rung(self._smallest())

    def _pick(self) -> Finalists | None:
        return judging.picked_by(
            self.spec.settings,
            self.spec.loads,
            list(self.cells.values()),
            self.failed,
            confidence=self.spec.confidence,
            skipped=self.skipped,
            fresh=self.spec.decks().fresh,
            margins=self.spec.margins,
        )

    def _to_confirm(self, finalists: Finalists) -> ConfirmationInputs:
        had: Counter[str] = Counter()
        for cell in self._confirming():
            if (cell.setting, cell.turn) == (self.standard, 0):
                had[cell.length] += len(cell.cell.rows)
        decks = self.spec.decks(finalists.only)
        number = self._next_number()
        requests = self.spec.requests_needed
        if self.spec.budget_min is not None:
            name = finalists.settings[0]
            requests -= sum(len(cell.cell.rows) for cell in self._confirming() if cell.setting == name)
        return confirming(
            finalists,
            self.spec.settings,
            self.spec.loads,
            decks,
            number,
            had,
            self._owed(),
            max(0, requests),
        )

    def _confirming(self) -> list[SweptCell]:
        return [cell for cell in self.cells.values() if cell.stage == "confirmation"]

    def _first_confirming(self) -> int:
        return min((cell.rung for cell in self._confirming()), default=self._next_number())

    def _next_number(self) -> int:
        return 1 + max((cell.rung for cell in self.cells.values()), default=-1)

    def _begun(self, number: int) -> frozenset[str]:
        """The machines whose standard was measured in this rung."""
        return frozenset(cell.machine for cell in self.cells.values() if cell.rung == number)

    def _timing(self) -> Timing:
        slack = self.took_s / self.expected_s if self.expected_s else 1.0
        return Timing(samples_of_cells(self.cells.values()), self.spec.requests.warmup, slack)

    def _run(self, rung: Rung) -> bool:
        """Measure a rung; False where the standard, with which all is compared, could not be measured."""
        number = rung.standard.rung
        if not rung.jobs and not rung.begun and self.cells:
            return True  # the standard alone is compared with nothing
        settings = len({job.setting.name for job in rung.jobs})
        stage = "confirmation, " if rung.standard.stage == "confirmation" else ""
        if settings:
            self.progress.note(f"{stage}rung {number + 1}: {settings} setting{'s' if settings != 1 else ''}")
        fresh = not self.spec.requests.same_prompts
        self.executor.run(rung.in_run(self.token) if fresh else rung, self._keep)
        why = next(
            (
                failure
                for failure in self.failed
                if (failure.setting, failure.rung) == (self.standard, number)
            ),
            None,
        )
        if why is None:
            return True
        if not any(cell.setting == self.standard and self._good(cell) for cell in self.cells.values()):
            raise ServerError(
                f"could not measure the standard, K = 0: {why.why}",
                hint=f"{with_options({})}  # tries again",
                log=why.log,
            )
        tried = {failure.setting for failure in self.failed if failure.rung == number}
        tried |= {cell.setting for cell in self.cells.values() if cell.rung == number}
        if tried - {self.standard}:
            return True
        self.progress.note(f"the sweep ends here: the standard could not be measured: {why.why}")
        return False

    def _keep(self, record: SweptCell | FailedJob | Margin) -> None:
        match record:
            case FailedJob():
                self.failed.append(record)
                self.progress.note(f"{record.setting} failed: {record.why}")
            case Margin():
                self.margins[record.place] = record
            case _:
                self.cells[key_of(record)] = record
        self.storing.measured()

    def _store(self) -> None:
        if self.cells:  # a result without cells would replace an earlier one by nothing
            self.on_partial(self._partial())

    def _good(self, cell: SweptCell) -> bool:
        record = cell.cell
        return record.complete and record.failed <= self.spec.requests.max_error_share * len(record.sent)

    def _failed_names(self) -> set[str]:
        return {failure.setting for failure in self.failed if failure.setting != self.standard}

    def _spent_s(self) -> float:
        return self.spent_before_s + time.monotonic() - self.began

    def _partial(self) -> Result:
        return self._result("partial", f"stopped after {len(self.cells)} cells", {}, {}, None)

    def _judged(self) -> SweepJudgement:
        return judging.judge(
            self.spec.settings,
            self.spec.loads,
            list(self.cells.values()),
            self.failed,
            confidence=self.spec.confidence,
            skipped=self.skipped,
            finalists=self.finalists,
            look=self._look(),
            margins=self.spec.margins,
            nats={place: margin.nats for place, margin in self.margins.items()},
        )

    def result(self) -> Result:
        judged = self._judged()
        return self._result(judged.verdict, judged.reason, judged.summary, judged.data, judged.recommendation)

    def _look(self) -> int:
        """Number of this look at the confirmation, from 1; of the same evidence it is the same look."""
        if self.looks and len(self._confirming()) == self.judged_cells:
            return self.looks
        return self.looks + 1

    def _result(
        self,
        verdict: Verdict,
        reason: str,
        summary: dict[str, Any],
        judged: Mapping[str, Any],
        recommendation: dict[str, Any] | None,
    ) -> Result:
        spec = self.spec
        stored = Measurements(
            cells=list(self.cells.values()),
            failed=self.failed,
            skipped=[
                SkippedCell(setting=skip.setting, after=skip.after, why=skip.why, **asdict(skip.load))
                for skip in self.skipped
            ],
            finalists=self.finalists,
            margins=list(self.margins.values()),
            looks=self.looks if verdict == "partial" else self._look(),
            run=self.token,
            spent_s=round(self._spent_s(), 3),
        )
        return Result(
            phase=PHASE,
            inputs=self.inputs,
            settings=spec.requests.plan()
            | {"budget_min": spec.budget_min, "confidence": spec.confidence}
            | {"settings": {setting.name: setting.pool.model_dump(mode="json") for setting in spec.settings}},
            environment=results.environment(),
            verdict=verdict,
            reason=reason,
            summary=summary,
            data=dict(judged)
            | SweepData(
                prompts=spec.prompts.provenance(),
                lengths=LengthCounts(
                    counted_by=spec.lengths.counted_by,
                    prompts={name: len(prompts) for name, prompts in spec.lengths.classes.items()},
                ),
                stored=stored,
            ).model_dump(mode="json", by_alias=True),
            recommendation=recommendation,
        )


def requests_to(setting: str, rungs: Sequence[Rung]) -> int:
    jobs = (job for rung in rungs for job in rung.jobs if job.setting.name == setting)
    return sum(len(cell.prompts) for job in jobs for cell in job.cells)


def _less_and_less(finalists: Finalists) -> Iterator[Finalists]:
    """Yield what to confirm, from all to the least: fewer loads first, then without the runner-up."""
    yield finalists
    lightest = finalists.model_copy(update={"streams": finalists.streams[:1]})
    yield lightest
    yield lightest.model_copy(update={"settings": finalists.settings[:1]})
