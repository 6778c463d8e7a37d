"""A run folder: the result of each phase with its typed parts, or why a file is unreadable.

A file that is half written, edited, of another schema, or of another phase is named and left out. It never
stops the reading of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from specops import results
from specops.config import Rollout, load
from specops.errors import FileError, SpecopsError
from specops.experiment.records import WindowRecord
from specops.hints import renaming
from specops.load.record import CellRecord
from specops.phases import PHASES, PhaseName, phase_named, phase_of_result
from specops.phases.ab import report as ab_report
from specops.phases.ab.earlier import measurements_of
from specops.phases.canary.pool_pair import Conformance
from specops.phases.checklist.evidence import ChecklistData
from specops.phases.measurement import cells_of, checked
from specops.phases.phase import Step
from specops.phases.playbook.rendered import RenderedFiles
from specops.phases.playbook.walk import RECORD, Record, Walk
from specops.phases.sweep import report as sweep_report
from specops.results import Result

Part = TypeVar("Part")


@dataclass(frozen=True)
class Unreadable:
    name: str
    why: str
    hint: str | None


@dataclass(frozen=True)
class RunFolder:
    path: Path
    results: Mapping[PhaseName, Result]
    """Readable results, in the order of the phases."""

    unreadable: tuple[Unreadable, ...] = ()
    record: Record | None = None
    """What the last walk left beside its results; None if there was no walk."""

    parts: Mapping[PhaseName, BaseModel | None] = field(default_factory=dict, repr=False)
    """The typed part of each result, as its phase reads it."""

    @property
    def name(self) -> str:
        return self.record.rollout if self.record is not None else self.path.resolve().name

    @property
    def comparison(self) -> ab_report.Report | None:
        return self._part("ab", ab_report.Report)

    @property
    def sweep(self) -> sweep_report.Report | None:
        return self._part("sweep", sweep_report.Report)

    @property
    def checklist(self) -> ChecklistData | None:
        return self._part("checklist", ChecklistData)

    @property
    def conformance(self) -> Conformance | None:
        return self._part("canary", Conformance)

    def files(self, phase: PhaseName) -> list[str]:
        rendered = self._part(phase, RenderedFiles)
        return rendered.files if rendered is not None else []

    def _part(self, phase: PhaseName, kind: type[Part]) -> Part | None:
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


def read(folder: Path) -> RunFolder:
    readable: dict[PhaseName, Result] = {}
    parts: dict[PhaseName, BaseModel | None] = {}
    unreadable: list[Unreadable] = []
    for phase in PHASES:
        path = folder / f"{phase}.json"
        try:
            loaded = _loaded(phase, path, _stamp(path))
        except SpecopsError as error:
            unreadable.append(Unreadable(path.name, error.message, error.hint))
            continue
        if loaded is not None:
            readable[phase], parts[phase] = loaded
    record = None
    try:
        if (folder / RECORD).exists():
            data = results.read(folder / RECORD).data
            record = checked(Record, data, f"{folder / RECORD} is damaged: data")
    except SpecopsError as error:
        unreadable.append(Unreadable(RECORD, error.message, error.hint))
    return RunFolder(folder, readable, tuple(unreadable), record, parts)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@lru_cache(maxsize=2 * len(PHASES))  # a page is written after each phase, and earlier results stay the same
def _loaded(
    name: PhaseName, path: Path, stamp: tuple[int, int, int] | None
) -> tuple[Result, BaseModel | None] | None:
    """The result at `path` and its typed part; None if there is no file. Raises FileError."""
    if stamp is None:
        return None
    result, phase = results.read(path), phase_named(name)
    if result.phase != phase.result_name:
        raise FileError(
            f"{path} is a result of {result.phase}: expected {phase.result_name}",
            hint=renaming(path, results.AGAIN),
        )
    return result, phase.read(result, str(path))


def of_one(result: Result) -> RunFolder:
    """A run with one result, which need not be in a file; without results where a run has no such phase.
    Raises FileError for a damaged result."""
    phase = phase_of_result(result.phase)
    if phase is None:
        return RunFolder(Path(), {})
    return RunFolder(Path(), {phase.name: result}, parts={phase.name: phase.read(result, "the result")})
