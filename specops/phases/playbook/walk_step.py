"""The input of a phase of a walk, its outcome, and the rules for earlier results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from specops import results
from specops.config import Rollout
from specops.phases import Phase
from specops.phases.inputs import changed
from specops.phases.measurement import Keep, partial_results
from specops.progress import Progress
from specops.results import Result


@dataclass(frozen=True)
class Step:
    """A phase that has a result."""

    phase: Phase
    path: Path
    result: Result
    reused: bool = False
    """Whether it is the result of an earlier run, whose inputs have not changed."""

    by_hand: bool = False
    """The phase's own command wrote it, since a walk cannot."""


@dataclass(frozen=True)
class Skipped:
    """A phase that does not apply to this rollout, or cannot be run from here."""

    phase: Phase
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

    def path(self, phase: Phase) -> Path:
        return self.folder / f"{phase}.json"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"


Run = Callable[[PhaseInput], Step | Skipped]


def unchanged(
    phase: Phase, previous: Result | None, inputs: dict[str, str], progress: Progress
) -> Result | None:
    """`previous` if it has these inputs, else None after a note."""
    difference = changed(previous, inputs) if previous is not None else None
    if difference is None:
        return previous
    progress.note(f"{phase}: measured again, since {difference} changed")
    return None


def earlier(at: PhaseInput, phase: Phase) -> Result | None:
    """The complete result of an earlier run; None without one, or where `fresh` forbids its use."""
    path = at.path(phase)
    if at.fresh or not path.exists():
        return None
    previous = results.read(path)
    return None if previous.verdict == "partial" else previous


def by_hand(at: PhaseInput, phase: Phase) -> Step | None:
    """The step of a result that the phase's own command wrote, for a phase that a walk cannot run."""
    previous = earlier(at, phase)
    return Step(phase, at.path(phase), previous, reused=True, by_hand=True) if previous is not None else None


def set_aside(phase: Phase, path: Path, progress: Progress) -> None:
    """Rename an earlier result at `path`, so that the next one does not replace it."""
    if path.exists():
        progress.note(f"{phase}: the earlier measurement is now {results.set_aside(path)}")


def written(at: PhaseInput, phase: Phase, result: Result) -> Step:
    """Write `result`. It replaces an earlier one."""
    path = at.path(phase)
    results.write(path, result)
    return Step(phase, path, result)


@contextmanager
def stored(
    phase: Phase, path: Path, previous: Result | None, inputs: dict[str, str], progress: Progress
) -> Iterator[Keep]:
    """A function that writes a result of these inputs to `path`. An earlier result that is not `previous` is
    renamed before the first write."""
    with partial_results(
        path,
        progress,
        resumed=previous is not None,
        before_first=lambda: set_aside(phase, path, progress),
    ) as keep:
        yield lambda result: keep(result.model_copy(update={"phase": phase, "inputs": inputs}))
