"""A phase of the playbook: its commands, its input, its outcome, and the rules for earlier results.

`Phase` has the answers of a phase that renders files or judges results. That takes seconds, so each walk does
it again. A `MeasuredPhase` reuses or resumes an earlier result of the same inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel

from specops import results
from specops.config import Pool, Rollout
from specops.errors import FileError, ServerError
from specops.load.settings import BaselineSettings
from specops.phases import PhaseName
from specops.phases.commands import Commands
from specops.phases.inputs import changed
from specops.phases.measurement import Keep, checked, partial_results
from specops.phases.sweep.plan import Sample
from specops.progress import Progress
from specops.prometheus.series import PoolName
from specops.results import Content, Result


@dataclass(frozen=True)
class Span:
    """The least and the most of what is estimated."""

    least: float
    most: float

    def __add__(self, more: Span) -> Span:
        return Span(self.least + more.least, self.most + more.most)

    def __mul__(self, factor: float) -> Span:
        return Span(self.least * factor, self.most * factor)

    def at_least(self, bound: float) -> Span:
        return Span(max(self.least, bound), max(self.most, bound))


NO_TIME = Span(0.0, 0.0)
ASSUMED_TOKEN_S = Span(0.002, 0.05)
"""Seconds of a token, from a small model to a large one."""

ASSUMED_START_S = Span(30.0, 600.0)
"""Seconds of the start of a serving engine, which reads weights and compiles."""

OWN_START_S = Span(2.0, 30.0)
"""The same of the embedded engine."""

ASSUMED_TOKENS = 256
"""Number of tokens of an answer whose prompt and settings give no max_tokens."""

QUICK_S = 2.0
"""Seconds of a phase that only renders files or judges results."""


@dataclass(frozen=True)
class Step:
    """A phase that has a result."""

    phase: PhaseName
    path: Path
    result: Result
    reused: bool = False
    """Whether it is the result of an earlier run, whose inputs have not changed."""

    by_hand: bool = False
    """The phase's own command wrote it, since a walk cannot."""


@dataclass(frozen=True)
class Skipped:
    """A phase that does not apply to this rollout, or cannot be run from here."""

    phase: PhaseName
    reason: str
    hint: str | None = None
    """A command that runs the phase, or another fix."""


@dataclass(frozen=True)
class PhaseInput:
    """The input of each phase."""

    rollout: Rollout
    file: Path
    """The rollout file: relative paths start from its folder, and hints name it."""

    folder: Path
    progress: Progress
    fresh: bool = False
    """Do not reuse earlier results."""

    by_name: bool = False
    """`run --only` names this phase."""

    def path(self, phase: PhaseName) -> Path:
        return self.folder / f"{phase}.json"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def commands(self) -> Commands:
        return Commands(self.rollout, self.file, self.folder)


@dataclass(frozen=True)
class PlannedPhase:
    phase: PhaseName
    starts: int = 0
    """Servers that specops starts."""

    requests: int = 0
    """Largest number of requests: a comparison ends early once it is decided."""

    seconds: float = QUICK_S
    """At most, by what is known."""

    streams: int = 0
    """Requests to one server at a time, about: arrivals in an open loop may overlap more."""

    reused: bool = False
    """An earlier result has the same inputs and stands."""

    note: str = ""
    least_s: float | None = None
    """The least seconds; None: `seconds`."""

    gpus: int | None = 0
    """GPUs of the servers that specops starts, at a time; None: not known."""

    @property
    def span(self) -> Span:
        return Span(self.seconds if self.least_s is None else self.least_s, self.seconds)


@dataclass(frozen=True)
class Timing:
    """The times of a request and of a start, in seconds: by the `samples`, else assumed."""

    samples: Sequence[Sample]
    requests: BaselineSettings
    token_s: Span = ASSUMED_TOKEN_S
    assumed_start_s: Span = ASSUMED_START_S

    def request_s(self, streams: int) -> Span:
        """A request's share of the time at so many streams."""
        spaced_s = 1 / self.requests.max_rps if self.requests.max_rps else 0.0
        if not self.samples:
            unlimited = self.token_s * ((self.requests.max_tokens or ASSUMED_TOKENS) / streams)
            return unlimited.at_least(spaced_s)
        distances = [abs(log(sample.streams / streams)) for sample in self.samples]
        nearest = min(distances)
        pairs = zip(self.samples, distances, strict=True)
        measured_s = fmean(sample.prompt_s for sample, distance in pairs if distance == nearest)
        return Span(measured_s, measured_s).at_least(spaced_s)

    def start_s(self) -> Span:
        starts = [sample.up_s for sample in self.samples if sample.up_s is not None]
        return Span(fmean(starts), fmean(starts)) if starts else self.assumed_start_s


def gpus_of(pools: Sequence[Pool], *, simultaneous: bool = True) -> int | None:
    """Return the GPUs that the servers of `pools` use at a time, where specops starts them; None: not known.
    `simultaneous`: all are up at a time, not one after the other."""
    counts = [pool.gpus for pool in pools if pool.endpoint is None]
    numbers = [count for count in counts if count is not None]
    if len(numbers) < len(counts):
        return None
    return sum(numbers) if simultaneous else max(numbers, default=0)


class Phase(ABC):
    """One phase of the playbook."""

    name: PhaseName

    pools: tuple[PoolName, ...] = ()
    """The pools whose figures it measures."""

    gate: bool = True
    """Whether its no fails the rollout whatever the comparison decided."""

    noiseless: bool = False
    """Whether noise has no part in its verdict, so that two runs can be compared by it."""

    reference: bool = False
    """Whether alerts, guard and report judge live traffic by its figures."""

    times_requests: bool = False
    """Whether forecasts of later phases use the times that it measures."""

    plots: bool = False
    """Whether `plot` draws its results."""

    files_use: str = ""
    """What the files that it renders are for."""

    @property
    def content(self) -> Content:
        """The types of what its results hold."""
        return Content(self.data or ())

    data: type[BaseModel] | None = None
    """The part of a complete result's `data` that other phases and pages read."""

    change: str = "fix what {result} names"
    """What to change after it said no. {file}, {folder} and {result} are filled."""

    again: str = "run {rollout}"
    """The command after that."""

    @property
    def remake(self) -> str:
        """The command that makes its result. {rollout} is filled."""
        return f"run {{rollout}} --only {self.name}"

    @property
    def result_name(self) -> str:
        """The `phase` in its results."""
        return self.name

    @abstractmethod
    def run(self, task: PhaseInput) -> Step | Skipped:
        """Run it, or say why it does not apply. Raises what its own command raises."""

    def forecast(self, task: PhaseInput, timing: Timing) -> PlannedPhase:
        """What `run` would do. Raises what it raises for wrong settings or damaged results."""
        return PlannedPhase(self.name)

    def read(self, result: Result, source: str) -> BaseModel | None:
        """The typed part of `result`, which was read from `source`; None of an incomplete one, and where
        nothing is read. Raises FileError, which names `source`, for a damaged result."""
        if self.data is None or result.verdict == "partial":
            return None
        return checked(self.data, result.data, f"{source} is damaged: data")

    def usable(self, result: Result) -> bool:
        """Return whether other phases may use the figures of `result`."""
        return result.verdict != "partial"

    def unlike(self, rollout: Rollout, result: Result) -> str | None:
        """Return in words what changed in the rollout since `result` was measured; None where nothing did,
        or where it measures nothing. Raises SpecopsError where the prompts, or a model of the rollout, cannot
        be read."""
        return None

    def command(self, commands: Commands, *, fresh: bool = False) -> str:
        """The complete command that makes its result, whatever earlier result there is with `fresh`."""
        return commands.of(self.remake)

    def reason(self, step: Step) -> str:
        """Its result in a line."""
        return step.result.reason

    def following(self, step: Step, commands: Commands) -> list[str]:
        """Lines `change: …`, if any, and `next: COMMAND`, after a walk that ended with this step, or whose
        first no it is."""
        if step.result.verdict == "no":
            change = self.change.format(file=commands.file, folder=commands.folder, result=step.path)
            return next_lines(commands.of(self.again), change)
        again = commands.of("run {rollout}")
        return next_lines(
            again, None if step.result.verdict != "undecided" else f"fix what {step.path} names"
        )

    def plot(self, result: Result, source: Path, out: Path) -> bool:
        """Draw a complete result, read from `source`, into `out` (.svg or .png). Returns False if there is
        nothing to draw."""
        return False

    def earlier(self, task: PhaseInput) -> Result | None:
        """The result of an earlier run; None without one, or where `fresh` forbids its use. Raises FileError
        for a damaged one."""
        path = task.path(self.name)
        return results.read(path) if path.exists() and not task.fresh else None

    def written_by_hand(self, task: PhaseInput) -> Step | None:
        """The step of a result that the phase's own command wrote, for a phase that a walk cannot run."""
        previous = self.earlier(task)
        if previous is None or previous.verdict == "partial":
            return None
        return Step(self.name, task.path(self.name), previous, reused=True, by_hand=True)

    def write(self, task: PhaseInput, result: Result) -> Step:
        """Write `result`. It replaces an earlier one."""
        path = task.path(self.name)
        results.write(path, result)
        return Step(self.name, path, result)


class MeasuredPhase(Phase):
    """A phase that measures: an earlier result of the same inputs is reused where it stands, else resumed."""

    @abstractmethod
    def inputs(self, task: PhaseInput) -> dict[str, str]:
        """The hash of each input by name."""

    @abstractmethod
    def measure(self, task: PhaseInput, previous: Result | None, keep: Keep) -> Result:
        """Measure what `previous`, of the same inputs, does not hold; `keep` stores partial results."""

    @abstractmethod
    def stands(self, task: PhaseInput, previous: Result) -> bool:
        """Return whether an earlier result of the same inputs is taken in place of a measurement."""

    def previous(self, task: PhaseInput) -> Result | None:
        """`earlier`, with its measurements checked. Raises FileError for damaged ones."""
        return self.earlier(task)

    def resumes(self, task: PhaseInput, previous: Result) -> bool:
        """Return whether `measure` goes on from an earlier result of the same inputs that does not stand."""
        return True

    def reusable(self, task: PhaseInput) -> bool:
        """Return whether `run` would take the earlier result. What is wrong with that file, `run` says."""
        try:
            previous = self.previous(task)
        except FileError:
            return False
        if previous is None or not self.stands(task, previous):
            return False
        return changed(previous, self.inputs(task)) is None

    def run(self, task: PhaseInput) -> Step | Skipped:
        path, inputs, previous = task.path(self.name), self.inputs(task), self.previous(task)
        difference = changed(previous, inputs) if previous is not None else None
        if previous is not None and difference is None and self.stands(task, previous):
            return Step(self.name, path, previous, reused=True)
        if difference is not None:
            task.progress.note(f"{self.name}: measured again, since {difference} changed")
            previous = None
        elif previous is not None and not self.resumes(task, previous):
            previous = None
        with self._stored(task, previous, inputs) as keep:
            keep(self.measure(task, previous, keep))
        return Step(self.name, path, results.read(path))

    @contextmanager
    def _stored(self, task: PhaseInput, previous: Result | None, inputs: dict[str, str]) -> Iterator[Keep]:
        """A function that writes a result of these inputs. An earlier result that is not `previous` is
        renamed before the first write."""
        path = task.path(self.name)
        with partial_results(
            path,
            task.progress,
            resumed=previous is not None,
            before_first=lambda: set_aside(self.name, path, task.progress),
        ) as keep:
            yield lambda result: keep(result.model_copy(update={"phase": self.result_name, "inputs": inputs}))

    def command(self, commands: Commands, *, fresh: bool = False) -> str:
        return commands.of(self.remake, fresh=fresh)


def next_lines(command: str, change: str | None = None) -> list[str]:
    """What to do next, as lines of a page: a change, if any, and a command."""
    return [*([f"change: {change}"] if change else []), f"next: {command}"]


def set_aside(phase: PhaseName, path: Path, progress: Progress) -> None:
    """Rename an earlier result at `path`, so that the next one does not replace it."""
    if path.exists():
        progress.note(f"{phase}: the earlier measurement is now {results.set_aside(path)}")


def no_room(task: PhaseInput, phase: PhaseName, error: ServerError) -> Skipped:
    """The phase is skipped if both pools share a device, since it needs both at once. Otherwise raises
    `error`: the comparison ran both."""
    if task.rollout.ab.design != "abba-restart":
        raise error
    return Skipped(
        phase,
        "it needs both pools at once: make room for both (gpu_memory_utilization), or give both as endpoints"
        f" on separate machines; one did not start: {error.message}",
        error.hint,
    )
