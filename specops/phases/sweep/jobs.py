"""What a sweep measures, as data: ways to serve, the loads, and jobs, each one start of a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from specops.config import Pool
from specops.load.arrivals import Level
from specops.phases.sweep.records import FailedJob, Stage, SweptCell

STANDARD = "standard"
"""The setting without speculation: K = 0."""

ANY_LENGTH = "any length"
"""The class of every prompt where none are told apart."""


@dataclass(frozen=True)
class Setting:
    """One way to serve."""

    name: str
    pool: Pool
    k: int
    """Tokens drafted ahead; of a tree, its depth. 0 is the standard."""

    tree: str | None = None
    """Where trees are swept, or the engine is the embedded one."""

    draft: str | None = None
    """Its name, where drafts are compared."""


@dataclass(frozen=True)
class Load:
    """What is asked of every setting alike."""

    concurrency: int
    temperature: float
    length: str
    """A class of prompt length."""

    def __str__(self) -> str:
        of = [str(self.level)]
        of += [f"temperature {self.temperature:g}"] if self.temperature else []
        of += [] if self.length == ANY_LENGTH else [f"prompts of {self.length}"]
        return ", ".join(of)

    @property
    def level(self) -> Level:
        return Level(concurrency=self.concurrency)


@dataclass(frozen=True)
class PlannedCell:
    load: Load
    repeat: int
    prompts: tuple[str, ...]
    """Their ids."""

    warm_up: tuple[str, ...] = ()
    """Ids of prompts to warm up with. They are others than `prompts` where there are any: a server that
    answers repeats from a cache must not have seen what is measured."""


@dataclass(frozen=True)
class Job:
    """A setting is started once, these cells are measured one after the other, and it is stopped."""

    rung: int
    setting: Setting
    cells: tuple[PlannedCell, ...]
    turn: int = 0
    """A setting without a rival is measured twice in a rung: turn 0, then turn 1. The executor sets the
    standard's turns."""

    stage: Stage = "choice"


ALWAYS = 2
"""Jobs of a rung that begin whatever the clock says: with fewer, the standard's two turns would have most of
the requests."""


@dataclass(frozen=True)
class Rung:
    """Jobs that are measured between two of the standard's: speed-ups are paired with those of the same
    machine, and what the machine drifted is seen between the two. Without jobs, only the standard's first
    turn is measured."""

    standard: Job
    jobs: tuple[Job, ...]
    begun: frozenset[str] = frozenset()
    """Machines whose standard was measured already before the others of this rung, by a sweep that was
    stopped: it need not be measured there a second time, but is after the last job."""

    until: float | None = None
    """Seconds since the epoch: a job begins only if it and the standard's second turn may be expected to end
    before. Those that do not begin are left out. The first `ALWAYS` begin in any case, however long the
    standard took."""

    expected_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds that a job takes, by the name of its setting; empty where that is not known."""

    def has_time_for(self, job: Job, now: float, longest_s: float) -> bool:
        """Whether `job` and the standard's second turn end before `until`, by what is expected of them; by
        the longest job so far where nothing is."""
        if self.until is None:
            return True
        standard = self.expected_s.get(self.standard.setting.name, longest_s)
        return now + self.expected_s.get(job.setting.name, longest_s) + standard <= self.until


@dataclass(frozen=True)
class Skipped:
    """A setting that was left alone at a load to spend the time where the answer was still open."""

    setting: str
    load: Load
    after: int
    """The last rung that could have measured it; -1 where none did."""

    why: str


Keep = Callable[[SweptCell | FailedJob], None]
"""Takes what was measured as soon as it is."""


class Executor(Protocol):
    """Where jobs run: on this machine, or on many."""

    def run(self, rung: Rung, keep: Keep) -> None:
        """Every job of the rung once, on some machine, that machine's standard before its first (turn 0)
        and after its last (turn 1); one server at a time on a device. A machine that measured no job does
        not measure the standard again. A server that does not come up, or dies, is a FailedJob: the rung goes
        on without further jobs of that setting."""
