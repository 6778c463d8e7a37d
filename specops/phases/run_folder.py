"""A run folder: the result of each phase with its typed part and its source, or why it is missing and the
command that makes it.

A file that is half written, edited, of another schema, or of another phase is named and left out. It never
stops the reading of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

from pydantic import BaseModel

from specops import results
from specops.config import Rollout, load
from specops.errors import FileError, SpecopsError
from specops.experiment.records import WindowRecord
from specops.hints import ROLLOUT, listing, renaming
from specops.load.record import CellRecord
from specops.phases import PHASES, PhaseName, phase_named, phase_of_result, phases_of
from specops.phases.ab import report as ab_report
from specops.phases.ab.earlier import measurements_of
from specops.phases.measurement import cells_of, checked
from specops.phases.phase import Step
from specops.phases.playbook.walk import RECORD, Record, Walk
from specops.phases.sweep import report as sweep_report
from specops.results import Result

if TYPE_CHECKING:
    from specops.phases.canary.pool_pair import Conformance
    from specops.phases.checklist.evidence import ChecklistData

Part = TypeVar("Part")


@dataclass(frozen=True)
class Unreadable:
    name: str
    why: str
    hint: str | None


@dataclass(frozen=True)
class Stored(Generic[Part]):
    """A finished result whose figures may be used, and the part of it that was read."""

    part: Part
    result: Result
    path: Path
    sha256: str

    @property
    def source(self) -> str:
        return f"{self.path.name} of {self.result.created:%Y-%m-%d} (sha256 {self.sha256[:12]})"

    @property
    def file(self) -> str:
        """The file's name and the beginning of its hash."""
        return f"{self.path.name} {self.sha256[:12]}"


@dataclass(frozen=True)
class Missing:
    """Why a phase has no result whose figures may be used."""

    why: str
    command: str
    """The command that makes one."""

    damage: SpecopsError | None = None
    """The file's, where there is one that cannot be read."""

    unused: bool = False
    """There is a result, and it is not one to go by."""

    def __str__(self) -> str:
        return f"{self.why}: {self.command}"


@dataclass
class _Contents:
    results: dict[PhaseName, Result] = field(default_factory=dict)
    parts: dict[PhaseName, BaseModel | None] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)
    record: Record | None = None


@dataclass(frozen=True)
class PayingLoad:
    """The load of a server up to which speculation is to be deployed by the comparison, for any class."""

    up_to: int
    """Streams; 0 where it is to be deployed nowhere."""

    source: str


class RunFolder:
    def __init__(
        self,
        path: Path,
        unfit: Mapping[PhaseName, str] = MappingProxyType({}),
        *,
        only: Mapping[PhaseName, Result] | None = None,
    ) -> None:
        """`unfit`: by phase, why a result is not of the rollout. `only`: results in place of the files."""
        self.path = path
        self.unfit = unfit
        self._only = only

    @classmethod
    def opened(cls, path: Path) -> RunFolder:
        """The folder of a run. Raises FileError where there is no such folder, or it has no result."""
        if not path.is_dir():
            raise FileError(
                f"there is no run folder {path}: expected one such as runs/NAME", hint=listing(path.parent)
            )
        run = cls(path)
        if not run.results and not run.unreadable:
            raise FileError(
                f"{path} is not a run folder: it has no result of a phase; a run folder is runs/NAME",
                hint=listing(path),
            )
        return run

    @classmethod
    def of_result(cls, result: Result) -> RunFolder:
        """A run with one result, which need not be in a file; without results where a run has no such phase.
        Its parts raise FileError for a damaged result."""
        phase = phase_of_result(result.phase)
        return cls(Path(), only={} if phase is None else {phase.name: result})

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r}: {', '.join(self.results) or 'no result'})"

    # --- what is readable, whatever it says

    @property
    def results(self) -> Mapping[PhaseName, Result]:
        """Readable results, in the order of the phases."""
        return self._contents.results

    @property
    def parts(self) -> Mapping[PhaseName, BaseModel | None]:
        """The typed part of each result, as its phase reads it."""
        return self._contents.parts

    @property
    def unreadable(self) -> Sequence[Unreadable]:
        return tuple(self._contents.unreadable)

    @property
    def record(self) -> Record | None:
        """What the last walk left beside its results; None if there was no walk."""
        return self._contents.record

    @cached_property
    def _contents(self) -> _Contents:
        contents = _Contents()
        if self._only is not None:
            for phase, result in self._only.items():
                contents.results[phase] = result
                contents.parts[phase] = phase_named(phase).read(result, "the result")
            return contents
        for phase in phases_of(None):
            path = self.path / f"{phase}.json"
            if (stamp := _stamp(path)) is not None:
                try:
                    contents.parts[phase] = _part(phase, path, stamp)
                    contents.results[phase] = _result(phase, path, stamp)
                except SpecopsError as error:
                    contents.unreadable.append(Unreadable(path.name, error.message, error.hint))
        try:
            if (self.path / RECORD).exists():
                data = results.read(self.path / RECORD).data
                contents.record = checked(Record, data, f"{self.path / RECORD} is damaged: data")
        except SpecopsError as error:
            contents.unreadable.append(Unreadable(RECORD, error.message, error.hint))
        return contents

    @property
    def name(self) -> str:
        return self.record.rollout if self.record is not None else self.path.resolve().name

    @property
    def comparison(self) -> ab_report.Report | None:
        return self.part("ab", ab_report.Report)

    @property
    def sweep(self) -> sweep_report.Report | None:
        return self.part("sweep", sweep_report.Report)

    @property
    def checklist(self) -> ChecklistData | None:
        from specops.phases.checklist.evidence import ChecklistData  # which reads run folders

        return self.part("checklist", ChecklistData)

    @property
    def conformance(self) -> Conformance | None:
        from specops.phases.canary.pool_pair import Conformance  # only pages need a client of pools

        return self.part("canary", Conformance)

    def part(self, phase: PhaseName, kind: type[Part]) -> Part | None:
        part = self.parts.get(phase)
        return part if isinstance(part, kind) else None

    def _repr_html_(self) -> str:
        """Return the page of the run, for a notebook."""
        from specops.phases.run_page.document import document
        from specops.render.report.formats import framed

        return framed(document(self))

    def windows(self) -> list[WindowRecord]:
        """The windows of the comparison; empty without one."""
        return measurements_of(self.results["ab"], "ab.json").windows if self.comparison else []

    def baseline_cells(self) -> list[CellRecord]:
        return cells_of(self.results["baseline"], "baseline.json") if "baseline" in self.results else []

    def walk(self) -> Walk:
        """The walk, read from its results as they are now."""
        steps = [Step(phase, self.path / f"{phase}.json", result) for phase, result in self.results.items()]
        record = self.record or Record(rollout=self.name, rollout_file=None)
        skipped = [phase for phase in record.skipped if phase.phase not in self.results]
        stopped = record.stopped
        if stopped is not None and (result := self.results.get(stopped)) and result.verdict != "no":
            stopped = None  # its own command has passed since
        return Walk(self.name, self.path, steps, skipped, stopped)

    def rollout(self) -> tuple[Rollout, Path] | None:
        """The rollout and its file, for commands; None if the file is unknown, moved or damaged."""
        if self.record is None or self.record.rollout_file is None:
            return None
        file = (self.path / self.record.rollout_file).resolve()
        try:
            rollout = load(file)
        except SpecopsError:
            return None
        cwd = Path.cwd()
        return rollout, file.relative_to(cwd) if file.is_relative_to(cwd) else file

    # --- what other phases go by: finished, and of the rollout

    def result(self, phase: PhaseName) -> Result:
        """The result of `phase`, whatever it says. Raises FileError where there is none that can be read."""
        path = self.path / f"{phase}.json"
        return _result(phase, path, _stamp(path))

    def finished(self, phase: PhaseName, read: Callable[[Result, str], Part]) -> Stored[Part] | Missing:
        """The result of `phase` with the part that `read` takes from it; `read` gets the file's name for its
        FileError."""
        path, of_phase = self.path / f"{phase}.json", phase_named(phase)
        command = f"specops {of_phase.remake.format(rollout=ROLLOUT)}"
        stamp = _stamp(path)
        if stamp is None:
            return Missing(f"there is no {path.name}", command)
        try:
            result = _result(phase, path, stamp)
            why = self.unfit.get(phase) or (None if of_phase.usable(result) else result.reason)
            if why is not None:
                return Missing(f"{path.name} is not used: {why}", command, unused=True)
            return Stored(read(result, path.name), result, path, results.sha256(path))
        except SpecopsError as error:
            return Missing(error.message, command, damage=error)

    @cached_property
    def finished_comparison(self) -> Stored[ab_report.Report] | Missing:
        return self.finished("ab", ab_report.read)

    @cached_property
    def finished_sweep(self) -> Stored[sweep_report.Report] | Missing:
        return self.finished("sweep", sweep_report.read)

    @property
    def paying_load(self) -> PayingLoad | None:
        """None without a finished comparison, and where it was measured at rates only."""
        if isinstance(self.finished_comparison, Missing):
            return None
        report = self.finished_comparison.part
        streams = report.challengers[report.main_challenger].deployed_up_to
        return None if streams is None else PayingLoad(streams, self.finished_comparison.source)

    @cached_property
    def recommendation(self) -> Stored[sweep_report.Recommendation] | Missing:
        return self.finished("sweep", sweep_report.recommendation)


def undamaged(stored: Stored[Part] | Missing) -> Stored[Part] | Missing:
    """Return `stored`. Raises its FileError where there is a file that cannot be read."""
    if isinstance(stored, Missing) and stored.damage is not None:
        raise stored.damage
    return stored


Stamp = tuple[int, int, int]


def _stamp(path: Path) -> Stamp | None:
    """What changes with the file; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@lru_cache(maxsize=2 * len(PHASES))  # a page is written after each phase, and earlier results stay the same
def _result(name: PhaseName, path: Path, stamp: Stamp | None) -> Result:
    """The result at `path`. Raises FileError for a damaged one, and for one of another phase."""
    result, expected = results.read(path), phase_named(name).result_name
    if result.phase != expected:
        raise FileError(
            f"{path} is a result of {result.phase}: expected {expected}", hint=renaming(path, results.AGAIN)
        )
    return result


@lru_cache(maxsize=2 * len(PHASES))
def _part(name: PhaseName, path: Path, stamp: Stamp) -> BaseModel | None:
    return phase_named(name).read(_result(name, path, stamp), str(path))
