"""Who measures what next. Pure: machines come and go, errands are given out, come back done, or are lost.

A machine measures the standard before its first job (turn 0). Then it takes one job after the other from
the queue that all share, so that a fast machine does more. When the last job of all is done, not before,
each measures the standard again (turn 1): until then a machine that is lost may still leave work to it.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace

from specops.phases.sweep.jobs import ALWAYS, Job, PlannedCell, Rung
from specops.phases.sweep.records import FailedJob, SweptCell

MOST_TRIES = 3
"""A job whose machines are lost so many times is likely what they die of."""

CellKey = tuple[int | None, float, str, int]


@dataclass(frozen=True)
class Errand:
    """One start of a server. Turn 1 of the standard is after the last job."""

    job: Job
    turn: int = 0


class Sharing:
    """Of one rung. Machines are told apart by name; one that comes back by its name is the same."""

    def __init__(self, rung: Rung) -> None:
        self._rung = rung
        self._standard = rung.standard
        self._queue = deque(rung.jobs)
        self._begun_jobs = 0
        self._out: dict[str, Errand] = {}
        self._measured: dict[str, set[CellKey]] = {}
        self._failed: set[str] = set()
        """Machines whose errand failed."""

        self._failed_settings: set[str] = set()
        self._began: dict[str, float] = {}
        self._longest_s = 0.0
        self._opened = set(rung.begun)
        self._to_close = set(rung.begun)
        self._unfit: set[str] = set()
        self._tries: Counter[str] = Counter()

    @property
    def jobs_left(self) -> int:
        """Jobs that nobody has done, whether or not someone is at them; of a rung without jobs, the
        standard's first turn."""
        if self._opens_only:
            return int(not self._opened and not self._unfit)
        return len(self._queue) + sum(not self._is_standard(errand) for errand in self._out.values())

    @property
    def _opens_only(self) -> bool:
        return not self._rung.jobs and not self._rung.begun

    def next_for(self, machine: str, now: float) -> Errand | None:
        """What the machine is to do, and is taken to be doing from `now` on; None: nothing, or to wait."""
        next_job = self._queue[0] if self._queue and self._begun_jobs >= ALWAYS else None
        if next_job and not self._rung.has_time_for(next_job, now, self._longest_s):
            self._queue.clear()
        errand = None if machine in self._out or machine in self._unfit else self._choose(machine)
        if errand is not None:
            self._out[machine] = errand
            self._began[machine] = now
            self._measured[machine] = set()
            self._failed.discard(machine)
        return errand

    def _choose(self, machine: str) -> Errand | None:
        if self._queue:
            if machine in self._opened:
                self._to_close.add(machine)
                self._begun_jobs += 1
                job = self._queue.popleft()
                return Errand(job, job.turn)
            opening = sum(self._is_standard(errand) for errand in self._out.values())
            return Errand(self._standard) if opening < len(self._queue) else None
        if self._opens_only:
            return Errand(self._standard) if self.jobs_left and not self._out else None
        if self.jobs_left == 0 and machine in self._to_close:
            return Errand(self._standard, turn=1)
        return None

    def kept(self, machine: str, record: SweptCell | FailedJob) -> bool:
        """The machine measured this of its errand; whether it is a job's cell that was not there yet."""
        if isinstance(record, FailedJob):
            self._failed.add(machine)
            self._give_up(record.setting)
            return False
        measured, key = self._measured[machine], _key_of(record)
        if not record.cell.complete or key in measured:
            return False
        measured.add(key)
        return not self._is_standard(self._out[machine])

    def finished(self, machine: str, now: float) -> None:
        """Its errand is over; a server that failed is no reason to try again."""
        self._longest_s = max(self._longest_s, now - self._began[machine])
        self._close(machine, self._out.pop(machine))

    def _close(self, machine: str, errand: Errand) -> None:
        if not self._is_standard(errand):
            return
        if errand.turn == 1:
            self._to_close.discard(machine)
        elif machine in self._failed:
            self._unfit.add(machine)
        else:
            self._opened.add(machine)

    def lost(self, machine: str, why: str) -> FailedJob | None:
        """The machine stopped in the middle of its errand, or has none: what it did not measure of a job goes
        back, before all others. Returns the job's failure once it was lost too often."""
        errand = self._out.pop(machine, None)
        if errand is None:
            return None
        job, done = errand.job, self._measured[machine]
        rest = tuple(cell for cell in job.cells if _key_of_planned(cell) not in done)
        if not rest:
            self._close(machine, errand)
        elif not self._is_standard(errand):
            self._tries[job.setting.name] += 1
            if self._tries[job.setting.name] == MOST_TRIES:
                told = f"its machine was lost {MOST_TRIES} times; the last: {why}"
                self._give_up(job.setting.name)
                return self._failure(job, job.turn, machine, told)
            if job.setting.name not in self._failed_settings:
                self._queue.appendleft(replace(job, cells=rest))
        return None

    def _give_up(self, setting: str) -> None:
        """A setting that failed is not started again in this rung."""
        self._failed_settings.add(setting)
        self._queue = deque(job for job in self._queue if job.setting.name != setting)

    @property
    def unclosed(self) -> set[str]:
        """Machines that measured jobs, and whose standard was not measured after them."""
        return set(self._to_close)

    def failures(self) -> list[FailedJob]:
        """At the end, of the machines that are unclosed: they did not come back."""
        why = "the machine was lost before its standard was measured again"
        return [self._failure(self._standard, 1, machine, why) for machine in sorted(self._to_close)]

    def _is_standard(self, errand: Errand) -> bool:
        return errand.job is self._standard

    def _failure(self, job: Job, turn: int, machine: str, why: str) -> FailedJob:
        return FailedJob(rung=job.rung, setting=job.setting.name, turn=turn, machine=machine, why=why, log="")


def _key_of(record: SweptCell) -> CellKey:
    return record.cell.concurrency, record.temperature, record.length, record.cell.repeat


def _key_of_planned(cell: PlannedCell) -> CellKey:
    return cell.load.concurrency, cell.load.temperature, cell.load.length, cell.repeat
