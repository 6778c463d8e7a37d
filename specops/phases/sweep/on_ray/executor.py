"""Jobs on the nodes of a Ray cluster: on each one server at a time, or one on each share of its GPUs."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from specops.errors import EnvironmentFailure, SpecopsError
from specops.load.settings import BaselineSettings
from specops.load.workload import Prompt
from specops.phases.sweep.jobs import Keep, Rung, Setting
from specops.phases.sweep.on_ray.apart import Record, Task
from specops.phases.sweep.on_ray.connection import connected
from specops.phases.sweep.on_ray.fleet import Fleet, Held
from specops.phases.sweep.on_ray.nodes import needs_of
from specops.phases.sweep.on_ray.sharing import Errand, Sharing
from specops.phases.sweep.on_ray.testbed import Said
from specops.phases.sweep.records import SweptCell
from specops.progress import Progress


class OnRay:
    """Of a `with` block, which is connected to the cluster and leaves nothing on it.

    `settings` are all that may be swept: they say what a node must have. Cells come back as they are
    measured. What a lost node or worker did not measure is measured by another.

    Raises UsageError for an address that is none, and for endpoints that run already; EnvironmentFailure
    where Ray is not there, and when no machine is left.
    """

    def __init__(
        self,
        address: str,
        settings: Sequence[Setting],
        asked: BaselineSettings,
        prompts: Sequence[Prompt],
        progress: Progress,
    ) -> None:
        self._address = address
        self._settings = settings
        self._asked = asked
        self._prompts = {prompt.id: prompt for prompt in prompts}
        self._progress = progress
        self._needs = needs_of(settings, asked)
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
        """As `Executor.run` says. A rung whose standard comes up nowhere ends, as its failures say."""
        sharing = Sharing(rung)
        self._progress.start("measuring on Ray", sum(len(job.cells) for job in rung.jobs))
        try:
            while self._give_out(sharing):
                for held, said in self._fleet.hear():
                    self._take(held, said, sharing, keep)
        except ConnectionError as error:
            raise EnvironmentFailure(
                f"lost the connection to Ray at {self._address}: {error}",
                hint="measurements are stored: the same command resumes",
            ) from error
        except KeyboardInterrupt:
            self._fleet.end_errands(lambda said: _keep_rest(said, keep))
            raise
        for failure in sharing.failures():
            keep(failure)

    def _give_out(self, sharing: Sharing) -> bool:
        """Errands to all that can take one; whether there is anything to wait for."""
        fleet = self._fleet
        fleet.look(now=not fleet.busy)
        for held in fleet.idle:
            assert held.machine is not None
            if errand := sharing.next_for(held.machine, time.time()):
                fleet.begin(held, self._task(errand, held.machine))
        if fleet.busy:
            return True
        if not sharing.jobs_left:
            return fleet.awaits(sharing.unclosed)
        if not fleet.idle and not fleet.coming:
            raise fleet.nobody()
        return bool(fleet.coming)

    def _task(self, errand: Errand, machine: str) -> bytes:
        named = dict.fromkeys(name for cell in errand.job.cells for name in cell.prompts)
        prompts = [self._prompts[name] for name in named]
        return pickle.dumps(Task(errand, machine, self._asked, prompts))

    def _take(self, held: Held, said: Said, sharing: Sharing, keep: Keep) -> None:
        assert held.machine is not None
        match said:
            case "record", bytes(body):
                record: Record = pickle.loads(body)
                if isinstance(record, SpecopsError):
                    self._fleet.leave_out(held, f"cannot measure: {record.message}")
                    self._give_back(held.machine, record.message, sharing, keep)
                    return
                keep(record)
                if sharing.kept(held.machine, record):
                    self._progress.advance()
            case "died", str(why):
                self._progress.note(f"{held.machine} was lost on the way: {why}")
                self._give_back(held.machine, why, sharing, keep)
            case _:
                sharing.finished(held.machine, time.time())

    def _give_back(self, machine: str, why: str, sharing: Sharing, keep: Keep) -> None:
        if failure := sharing.lost(machine, why):
            keep(failure)


def _keep_rest(said: Said, keep: Keep) -> None:
    if said[0] == "record" and isinstance(record := pickle.loads(said[1]), SweptCell):
        keep(record)
