"""Jobs on the nodes of a Ray cluster: on each one server at a time, or one on each share of its GPUs.

`Sharing` says who measures what next, and is pure: machines come and go, errands are given out, come back
done, or are lost. A machine measures the standard before its first job (turn 0). Then it takes one job after
the other from the queue that all share, so that a fast machine does more. When the last job of all is done,
not before, each measures the standard again (turn 1). Until then a machine that is lost may still leave work
to it.
"""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from specops.errors import EnvironmentFailure, SpecopsError
from specops.experiment.records import Margin
from specops.hints import with_options
from specops.load import clock
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt
from specops.phases.sweep.plan import ALWAYS, FailedJob, Job, Keep, PlannedCell, Rung, SweptCell
from specops.phases.sweep.ray_cluster import Fleet, HeldTestbed, connected, needs_of
from specops.phases.sweep.ray_testbed import NodeMessage, Task
from specops.progress import Progress
from specops.serving import Setting

Record = SweptCell | FailedJob | Margin | SpecopsError
"""What the process of an errand sends: what was measured, or the error that ended it."""


class RayExecutor:
    """An executor of jobs on a Ray cluster, and a context manager, which leaves nothing on the cluster.

    `settings` are all that may be swept: they say what a node must have. Cells come back as they are
    measured. What a lost node or worker did not measure is measured by another.

    Raises UsageError for an invalid address, and for endpoints that run already; EnvironmentFailure
    where Ray is not installed, and when no machine is left.
    """

    def __init__(
        self,
        address: str,
        settings: Sequence[Setting],
        requests: BaselineSettings,
        prompts: Sequence[Prompt],
        progress: Progress,
    ) -> None:
        self._address = address
        self._settings = settings
        self._requests = requests
        self._prompts = {prompt.id: prompt for prompt in prompts}
        self._progress = progress
        self._needs = needs_of(settings, requests)
        self._block = ExitStack()

    def __enter__(self) -> Self:
        ray = self._block.enter_context(connected(self._address))
        self._fleet = Fleet(ray, self._settings, self._needs, self._progress)
        self._block.callback(self._fleet.let_go)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block.close()

    def run(self, rung: Rung, keep: Keep) -> None:
        """Run the rung as `Executor.run` says. A rung whose standard comes up nowhere ends, as its failures
        say."""
        sharing = Sharing(rung)
        self._progress.start("measuring on Ray", sum(len(job.cells) for job in rung.jobs))
        try:
            while self._give_out(sharing):
                for held, message in self._fleet.hear():
                    self._take(held, message, sharing, keep)
        except ConnectionError as error:
            raise EnvironmentFailure(
                f"lost the connection to Ray at {self._address}: {error}",
                hint=f"{with_options({})}  # resumes: measurements are stored",
            ) from error
        except KeyboardInterrupt:
            self._fleet.end_errands(lambda message: _keep_rest(message, keep))
            raise
        for failure in sharing.failures():
            keep(failure)

    def _give_out(self, sharing: Sharing) -> bool:
        """Give errands to all machines that can take one; whether there is anything to wait for."""
        fleet = self._fleet
        fleet.look(now=not fleet.busy)
        for held in fleet.idle:
            assert held.machine is not None
            if errand := sharing.next_for(held.machine, clock.now()):
                fleet.begin(held, self._task(errand, held.machine))
        if fleet.busy:
            return True
        if not sharing.jobs_left:
            return fleet.awaits(sharing.unclosed)
        if not fleet.idle and not fleet.coming:
            raise fleet.nobody()
        return bool(fleet.coming)

    def _task(self, errand: ServerRun, machine: str) -> bytes:
        named = dict.fromkeys(name for cell in errand.job.cells for name in cell.prompts)
        named |= dict.fromkeys(prompt for prompt, _, _ in errand.job.places)
        prompts = [self._prompts[name] for name in named]
        return pickle.dumps(Task(errand, machine, self._requests, prompts))

    def _take(self, held: HeldTestbed, message: NodeMessage, sharing: Sharing, keep: Keep) -> None:
        assert held.machine is not None
        match message:
            case "record", bytes(body):
                record: Record = pickle.loads(body)
                if isinstance(record, SpecopsError):
                    self._fleet.leave_out(held, f"cannot measure: {record.message}")
                    self._give_back(held.machine, record.message, sharing, keep)
                    return
                keep(record)
                if sharing.stored(held.machine, record):
                    self._progress.advance()
            case "died", str(why):
                self._progress.note(f"{held.machine} was lost on the way: {why}")
                self._give_back(held.machine, why, sharing, keep)
            case _:
                sharing.finished(held.machine, clock.now())

    def _give_back(self, machine: str, why: str, sharing: Sharing, keep: Keep) -> None:
        if failure := sharing.lost(machine, why):
            keep(failure)


def _keep_rest(message: NodeMessage, keep: Keep) -> None:
    if message[0] == "record" and isinstance(record := pickle.loads(message[1]), SweptCell):
        keep(record)


MOST_TRIES = 3
"""A job whose machines are lost so many times is likely what they die of."""

CellKey = tuple[int | None, float, str, int]


@dataclass(frozen=True)
class ServerRun:
    """One start of a server. Turn 1 of the standard is after the last job."""

    job: Job
    turn: int = 0


class Sharing:
    """The errands of one rung. Machines are known by name; one that comes back by its name is the same."""

    def __init__(self, rung: Rung) -> None:
        self._rung = rung
        self._standard = rung.standard
        self._queue = deque(rung.jobs)
        self._begun_jobs = 0
        self._out: dict[str, ServerRun] = {}
        self._measured: dict[str, set[CellKey]] = {}
        self._failed: set[str] = set()
        """The machines whose errand failed."""

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

    def next_for(self, machine: str, now: float) -> ServerRun | None:
        """Return what the machine is to do, and is taken to be doing from `now` on; None: nothing, or to
        wait."""
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

    def _choose(self, machine: str) -> ServerRun | None:
        if self._queue:
            if machine in self._opened:
                self._to_close.add(machine)
                self._begun_jobs += 1
                job = self._queue.popleft()
                return ServerRun(job, job.turn)
            opening = sum(self._is_standard(errand) for errand in self._out.values())
            return ServerRun(self._standard) if opening < len(self._queue) else None
        if self._opens_only:
            return ServerRun(self._standard) if self.jobs_left and not self._out else None
        if self.jobs_left == 0 and machine in self._to_close:
            return ServerRun(self._standard, turn=1)
        return None

    def stored(self, machine: str, record: SweptCell | FailedJob | Margin) -> bool:
        """The machine measured this of its errand; whether it is a job's cell that was not there yet."""
        if isinstance(record, Margin):
            return False
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
        """Record that the run of a server is over. A server that failed is not tried again."""
        self._longest_s = max(self._longest_s, now - self._began[machine])
        self._close(machine, self._out.pop(machine))

    def _close(self, machine: str, errand: ServerRun) -> None:
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
                lost = f"its machine was lost {MOST_TRIES} times; the last: {why}"
                self._give_up(job.setting.name)
                return self._failure(job, job.turn, machine, lost)
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
        """Return at the end the failures of machines that are unclosed: they did not come back."""
        why = "the machine was lost before its standard was measured again"
        return [self._failure(self._standard, 1, machine, why) for machine in sorted(self._to_close)]

    def _is_standard(self, errand: ServerRun) -> bool:
        return errand.job is self._standard

    def _failure(self, job: Job, turn: int, machine: str, why: str) -> FailedJob:
        return FailedJob(rung=job.rung, setting=job.setting.name, turn=turn, machine=machine, why=why, log="")


def _key_of(record: SweptCell) -> CellKey:
    return record.cell.concurrency, record.temperature, record.length, record.cell.repeat


def _key_of_planned(cell: PlannedCell) -> CellKey:
    return cell.load.concurrency, cell.load.temperature, cell.load.length, cell.repeat
