"""Jobs and rungs as data: which prompts each setting is sent at each load, in which order, and how long it
takes; and what was measured, as sweep.json stores it. Pure.

Rungs are outside and settings inside, so that a drift of the machine touches every setting alike. A rung
begins and ends with the standard, and goes through the others forwards and backwards in turn. A load at which
only one setting is measured has it twice, S A A S. So the settings have half of a rung's requests or more,
and each setting's starts lie evenly between the standard's.

The prompts are divided before anything runs: one part for the choice, the other for the confirmation. Times
are learnt from cells that were measured before.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal, Protocol

from pydantic import BaseModel, Field

from specops.experiment.records import Margin, Place
from specops.load.arrivals import Level
from specops.load.record import CellRecord
from specops.load.workload import Prompt, StoredProvenance
from specops.phases.measurement import checked
from specops.results import Result
from specops.section import Frozen
from specops.serving import Setting
from specops.stats import MIN_PAIRS

STANDARD = "standard"
"""The setting without speculation: K = 0."""

ANY_LENGTH = "any length"
"""The only class of length where there are no bounds between classes."""


@dataclass(frozen=True)
class Load:
    """A load that every setting is measured at."""

    concurrency: int
    temperature: float
    length: str
    """A class of prompt length."""

    def __str__(self) -> str:
        parts = [str(self.level)]
        parts += [f"temperature {self.temperature:g}"] if self.temperature else []
        parts += [] if self.length == ANY_LENGTH else [f"prompts of {self.length}"]
        return ", ".join(parts)

    @property
    def level(self) -> Level:
        return Level(concurrency=self.concurrency)


@dataclass(frozen=True)
class PlannedCell:
    load: Load
    repeat: int
    prompts: tuple[str, ...]
    """Ids of the prompts."""

    warm_up: tuple[str, ...] = ()
    """Ids of prompts to warm up with: others than `prompts`, where there are any. A server that caches must
    not have the answers to what is measured."""


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
    run: str = ""
    """Names the sweep in the nonces of its prompts; empty: prompts are sent as they are."""

    places: tuple[Place, ...] = ()
    """Where the standard is queried for how sure it was of its token, after the cells."""


ALWAYS = 2
"""Jobs of a rung that begin whatever the clock says: with fewer, the standard's two turns would have most of
the requests."""


@dataclass(frozen=True)
class Rung:
    """Jobs that are measured between two of the standard's: speed-ups are paired with those of the same
    machine, and the machine's drift shows between the two. Without jobs, only the standard's first
    turn is measured."""

    standard: Job
    jobs: tuple[Job, ...]
    begun: frozenset[str] = frozenset()
    """Machines whose standard was measured already before the others of this rung, by a sweep that was
    stopped: it is measured there again only after the last job."""

    until: float | None = None
    """Seconds since the epoch: a job begins only if it and the standard's second turn may be expected to end
    before. Those that do not begin are left out. The first `ALWAYS` begin in any case, however long the
    standard took."""

    expected_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds that a job takes, by the name of its setting; empty where that is not known."""

    def in_run(self, run: str) -> Rung:
        """Return the rung with the prompts of a run of its own."""
        standard, *jobs = (replace(job, run=run) for job in (self.standard, *self.jobs))
        return replace(self, standard=standard, jobs=tuple(jobs))

    def has_time_for(self, job: Job, now: float, longest_s: float) -> bool:
        """Return whether `job` and the standard's second turn end before `until`, by what is expected of
        them; by the longest job so far where nothing is."""
        if self.until is None:
            return True
        standard = self.expected_s.get(self.standard.setting.name, longest_s)
        return now + self.expected_s.get(job.setting.name, longest_s) + standard <= self.until


@dataclass(frozen=True)
class Skipped:
    """A setting that was left out at a load, to spend the time where the answer was still open."""

    setting: str
    load: Load
    after: int
    """The last rung that could have measured it; -1 where none did."""

    why: str


class Executor(Protocol):
    """Runs jobs on this machine, or on many."""

    def run(self, rung: Rung, keep: Keep) -> None:
        """Every job of the rung once, on some machine, that machine's standard before its first (turn 0)
        and after its last (turn 1); one server at a time on a device. A machine that measured no job does
        not measure the standard again. A server that does not come up, or dies, is a FailedJob: the rung goes
        on without further jobs of that setting."""


PromptOrder = tuple[str, ...]
"""Ids of prompts, in the order in which they are sent."""

_Start = tuple[str, int, str]
"""Setting, turn and machine."""

Key = tuple[int, str, int, str, Load]
"""Rung, setting, turn, machine and load: what makes it one cell of a sweep and no other."""


def deal(prompts: Iterable[Prompt], seed: int) -> tuple[str, ...]:
    """The prompts' ids in an order of which every beginning has the mix of traffic classes of the whole."""
    of_class: dict[str, list[str]] = defaultdict(list)
    for prompt in prompts:
        of_class[prompt.traffic_class].append(prompt.id)
    dealer = random.Random(seed)
    places: list[tuple[float, str]] = []
    for _, names in sorted(of_class.items()):
        dealer.shuffle(names)
        places += [((number + 0.5) / len(names), name) for number, name in enumerate(names)]
    return tuple(name for _, name in sorted(places))


@dataclass(frozen=True)
class StagePrompts:
    """The prompts of each stage, by class of length."""

    choice: Mapping[str, PromptOrder]
    confirmation: Mapping[str, PromptOrder]
    fresh: bool
    """Whether no prompt is in both."""


def divided(decks: Mapping[str, PromptOrder], settings: int) -> StagePrompts:
    """Half of each deck for the choice and half for the confirmation.

    Both have all prompts where some deck is too small for an interval of each half, and where there is but
    one setting (`settings` counts them without the standard), so that nothing is chosen.
    """
    if settings < 2 or min(map(len, decks.values())) < 2 * MIN_PAIRS:
        return StagePrompts(decks, decks, fresh=settings < 2)
    return StagePrompts(
        {name: deck[: len(deck) // 2] for name, deck in decks.items()},
        {name: deck[len(deck) // 2 :] for name, deck in decks.items()},
        fresh=True,
    )


def fewest(load: Load, deck: PromptOrder) -> int:
    """Prompts of which an interval can be made, and which mostly run at the full load."""
    return min(max(MIN_PAIRS, 2 * load.concurrency), len(deck))


def rung(
    number: int,
    settings: Sequence[Setting],
    measured: Mapping[Load, Collection[str]],
    prompts: Mapping[Load, PromptOrder],
    warm_up: Mapping[Load, PromptOrder] | None = None,
    stage: Stage = "choice",
) -> Rung:
    """The rung of this number. `measured` names the settings at each load, `prompts` what all of them are
    sent there, and `warm_up` what a server is warmed up with.

    The first of `settings` is the standard, which is measured at every load at which another is.
    """
    standard, *challengers = settings
    loads = [load for load, names in measured.items() if names]
    challengers = challengers[::-1] if number % 2 else challengers

    def job(setting: Setting, job_loads: Sequence[Load], turn: int = 0) -> Job:
        cells = tuple(
            PlannedCell(load, number, prompts[load], (warm_up or {}).get(load, ())) for load in job_loads
        )
        return Job(number, setting, cells, turn, stage)

    first = [
        job(setting, [load for load in loads if setting.name in measured[load]]) for setting in challengers
    ]
    alone = [load for load in loads if len(measured[load]) == 1]
    again = [
        job(setting, [load for load in alone if setting.name in measured[load]], 1)
        for setting in reversed(challengers)
    ]
    return Rung(job(standard, loads), tuple(job for job in first + again if job.cells))


def whole(
    settings: Sequence[Setting], loads: Sequence[Load], decks: StagePrompts, repeats: int
) -> list[Rung]:
    """The choice without a budget: all settings, all its prompts, at every load, `repeats` times."""
    names = [setting.name for setting in settings[1:]]
    prompts = {load: decks.choice[load.length] for load in loads}
    warm_up = spare(decks.choice, prompts)
    measured = dict.fromkeys(loads, names)
    return [rung(number, settings, measured, prompts, warm_up) for number in range(repeats)]


def confirmation(
    first: int,
    settings: Sequence[Setting],
    loads: Sequence[Load],
    decks: StagePrompts,
    counts: Sequence[Mapping[Load, int]],
    dealt: Mapping[str, int],
) -> list[Rung]:
    """The rungs of a confirmation, numbered from `first`; `counts` has the prompts of each at each load.

    A load continues in the deck from rung to rung, and the loads of a rung begin at different places. So
    while prompts last, neither a load nor one start of a server has a prompt twice. `dealt` says how many
    prompts of each class of length earlier rungs had.
    """
    rungs = []
    names = [setting.name for setting in settings[1:]]
    for index, of_load in enumerate(counts):
        number, prompts = first + index, {}
        for place, load in enumerate(loads):
            deck, count = decks.confirmation[load.length], of_load[load]
            begin = dealt.get(load.length, 0) + (index + place) * count
            prompts[load] = tuple(deck[(begin + n) % len(deck)] for n in range(count))
        warm_up = spare(decks.choice, prompts)
        measured = dict.fromkeys(loads, names)
        rungs.append(rung(number, settings, measured, prompts, warm_up, "confirmation"))
    return rungs


def spare(decks: Mapping[str, PromptOrder], prompts: Mapping[Load, PromptOrder]) -> dict[Load, PromptOrder]:
    """Return by load the prompts of its class of length that the rung does not measure; empty where it
    measures all."""
    measured = {name for of_load in prompts.values() for name in of_load}
    return {load: tuple(name for name in decks[load.length] if name not in measured) for load in prompts}


def missing(planned: Rung, good: Iterable[SweptCell]) -> Rung | None:
    """The part of a rung that is left for a resumed sweep; None where it is whole. A rung without jobs, of
    which nothing was measured, has nothing left: the standard alone is compared with nothing."""
    have: dict[_Start, set[Load]] = defaultdict(set)
    for cell in good:
        if cell.rung == planned.standard.rung:
            have[cell.setting, cell.turn, cell.machine].add(load_of(cell))
    begun, ended = _machines(planned.standard, 0, have), _machines(planned.standard, 1, have)
    if not begun:
        return planned if planned.jobs else None
    jobs = tuple(left for job in planned.jobs if (left := _left(job, have)).cells)
    return replace(planned, jobs=jobs, begun=begun) if jobs or begun - ended else None


def unfinished(settings: Sequence[Setting], cells: Sequence[SweptCell]) -> Rung | None:
    """The last rung, where its standard was measured once and not again: with all its jobs where none of them
    was measured, else without, so that only the standard's second turn is left. None where it is whole.

    `settings` are those of the rung, the standard first.
    """
    number = max((cell.rung for cell in cells), default=-1)
    rung_cells = [cell for cell in cells if cell.rung == number]
    name = settings[0].name
    prompts = {
        load_of(cell): tuple(row.prompt for row in cell.cell.rows)
        for cell in rung_cells
        if (cell.setting, cell.turn) == (name, 0)
    }
    turns = [
        {cell.machine for cell in rung_cells if (cell.setting, cell.turn) == (name, turn)} for turn in (0, 1)
    ]
    left = turns[0] - turns[1]
    if not left:
        return None
    measured = {load: [setting.name for setting in settings[1:]] for load in prompts}
    planned = rung(number, settings, measured, prompts, stage=rung_cells[0].stage)
    begun = any(cell.setting != name for cell in rung_cells)
    return replace(planned, jobs=() if begun else planned.jobs, begun=frozenset(left))


def key_of(cell: SweptCell) -> Key:
    return cell.rung, cell.setting, cell.turn, cell.machine, load_of(cell)


def load_of(cell: SweptCell) -> Load:
    assert cell.cell.concurrency is not None, "a sweep drives streams"
    return Load(cell.cell.concurrency, cell.temperature, cell.length)


def _machines(standard: Job, turn: int, have: Mapping[_Start, set[Load]]) -> frozenset[str]:
    """The machines on which the whole of this turn was measured."""
    planned = {cell.load for cell in standard.cells}
    return frozenset(
        machine
        for (name, number, machine), loads in have.items()
        if (name, number) == (standard.setting.name, turn) and loads >= planned
    )


def _left(job: Job, have: Mapping[_Start, set[Load]]) -> Job:
    started = (job.setting.name, job.turn)
    done = {load for (name, turn, _), loads in have.items() if (name, turn) == started for load in loads}
    return replace(job, cells=tuple(cell for cell in job.cells if cell.load not in done))


@dataclass(frozen=True)
class Sample:
    """The time of a measured cell. Of a baseline's, only the streams are known."""

    streams: int
    prompt_s: float
    """The cell's time over its prompts."""

    setting: str | None = None
    load: Load | None = None
    up_s: float | None = None


def samples_of_cells(cells: Iterable[SweptCell]) -> list[Sample]:
    return [
        Sample(load_of(cell).concurrency, prompt_s, cell.setting, load_of(cell), cell.up_s)
        for cell in cells
        if (prompt_s := _prompt_s(cell.cell)) is not None
    ]


def samples_of_baseline(cells: Iterable[CellRecord]) -> list[Sample]:
    return [
        Sample(cell.concurrency, prompt_s)
        for cell in cells
        if cell.concurrency is not None and (prompt_s := _prompt_s(cell)) is not None
    ]


@dataclass(frozen=True)
class Timing:
    samples: Sequence[Sample]
    """Samples; at least one."""

    warmup: int
    """Requests before each cell."""

    slack: float = 1.0
    """How many times as long as expected it took so far."""

    def knows_starts(self) -> bool:
        return any(sample.up_s is not None for sample in self.samples)

    def rung(self, rung: Rung) -> float:
        """Seconds that all jobs of the rung take, the standard's twice."""
        return self.jobs([rung.standard, *rung.jobs, rung.standard])

    def jobs(self, jobs: Iterable[Job]) -> float:
        return sum(map(self.job, jobs))

    def expected(self, rung: Rung) -> dict[str, float]:
        """Seconds that a job takes, by its setting; of its longest job where it has several."""
        durations: dict[str, float] = {}
        for job in (rung.standard, *rung.jobs):
            durations[job.setting.name] = max(durations.get(job.setting.name, 0.0), self.job(job))
        return durations

    def job(self, job: Job) -> float:
        """Seconds from the start of its server; of its cells alone where no start is known."""
        cells = [
            (len(cell.prompts) + self.warmup) * self._prompt_s(job.setting.name, cell.load)
            for cell in job.cells
        ]
        return self.slack * (self.up_s(job.setting.name) + sum(cells))

    def up_s(self, setting: str) -> float:
        timed = [sample for sample in self.samples if sample.up_s is not None]
        own = [sample for sample in timed if sample.setting == setting]
        return fmean(sample.up_s or 0.0 for sample in own or timed) if timed else 0.0

    def _prompt_s(self, setting: str, load: Load) -> float:
        """Seconds a prompt, by the samples nearest to `setting` at `load`."""
        at_load = [sample for sample in self.samples if sample.load == load]
        own = [sample for sample in at_load if sample.setting == setting]
        distances = [abs(math.log(sample.streams / load.concurrency)) for sample in self.samples]
        near = [sample for sample, far in zip(self.samples, distances, strict=True) if far == min(distances)]
        return fmean(sample.prompt_s for sample in own or at_load or near)


def _prompt_s(cell: CellRecord) -> float | None:
    return cell.wall_s / len(cell.rows) if cell.rows and cell.wall_s > 0 else None


STORED = "stored"

Stage = Literal["choice", "confirmation"]
"""choice: all settings are measured, and the most promising is chosen by it. confirmation: the chosen one
and its runner-up are measured again, and only that decides."""


class Memory(Frozen):
    """The peak memory of a setting while a cell was measured, in GiB."""

    gpu_gib: float | None = None
    """Used on the server's devices, by NVML; None where there is no GPU, or none that NVML sees."""

    gpu_total_gib: float | None = None
    resident_gib: float | None = None
    """Memory of the server's process group on the host, in GiB; None for a server that specops did not
    start."""


class SweptCell(Frozen):
    rung: int
    setting: str
    turn: int
    """Turn of a standard: 0 before the others of its rung, 1 after them. Of another, 1 where it was measured
    a second time in its rung, else 0."""

    stage: Stage = "choice"
    machine: str
    """Cells of one machine are compared with each other only."""

    temperature: float
    length: str
    began: float
    """Seconds since the epoch."""

    up_s: float = 0.0
    """How long its server took to come up and answer; 0 for one that ran already."""

    server: str | None = None
    """The version that the server reports."""

    memory: Memory
    cell: CellRecord
    """The measured cell with concurrency and repeat; `wall_s` and rows."""

    again: CellRecord | None = None
    """The same server's answers to some of the cell's prompts, sampled where the cell's are greedy, and
    greedy where they are sampled. None before the confirmation, where only speed is compared."""


class SkippedCell(Frozen):
    """A setting that was left out at a load, after a rung, to spend the time elsewhere."""

    setting: str
    concurrency: int
    temperature: float
    length: str
    after: int
    why: str


class FailedJob(Frozen):
    """A setting that did not come up, or died while it was measured."""

    rung: int
    setting: str
    turn: int
    machine: str
    why: str
    log: str
    """The last lines of its log."""


class Finalists(Frozen):
    """The settings and loads to confirm, by the evidence of the choice."""

    settings: tuple[str, ...]
    """The chosen setting, then its runner-up where there is one."""

    streams: tuple[int, ...]
    """The concurrency that decides, then the heavier ones at which it may still pay."""

    only: tuple[str, ...] = ()
    """Traffic classes, where all together do not look faster and these do."""

    fresh: bool = True
    """The prompts of the confirmation had no part in the choice."""


class Measurements(Frozen):
    """The part of `data` in sweep.json from which the same sweep resumes."""

    cells: list[SweptCell]
    failed: list[FailedJob]
    skipped: list[SkippedCell]
    finalists: Finalists | None = None
    """Null before the choice was made, and where nothing was worth confirming."""

    margins: list[Margin] = Field(default=[])
    """How sure the standard was where a confirmed setting answered otherwise."""

    looks: int = 0
    """Times that the confirmation was judged: each later one has a smaller share of the error allowed."""

    run: str = ""
    """Names this sweep in the nonces of its prompts."""

    spent_s: float
    """Spent on measuring, starts included; of a resumed sweep, all runs together."""


class LengthCounts(BaseModel):
    counted_by: str
    prompts: dict[str, int]
    """How many there are of each length."""


class SweepData(BaseModel):
    """`data` of sweep.json beside the report (report.py)."""

    prompts: StoredProvenance
    lengths: LengthCounts
    stored: Measurements


def measurements_of(result: Result, name: str) -> Measurements:
    """Return what a sweep measured; FileError, which calls it `name`, where it is damaged."""
    return checked(Measurements, result.data.get(STORED, {}), f"{name} is damaged: data.{STORED}")


Keep = Callable[[SweptCell | FailedJob | Margin], None]
"""Takes what was measured as soon as it is."""
