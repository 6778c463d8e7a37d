"""What a phase of a walk is given, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specops.config import Rollout
from specops.phases import Phase
from specops.progress import Progress
from specops.results import Result


@dataclass(frozen=True)
class Step:
    """A phase that has a result."""

    phase: Phase
    path: Path
    result: Result
    reused: bool = False
    """The result of an earlier run stands, since its inputs have not changed."""

    by_hand: bool = False
    """It was not made by a walk, which cannot, but by the phase's own command."""


@dataclass(frozen=True)
class Skipped:
    """A phase that does not apply to this rollout, or cannot be run from here."""

    phase: Phase
    reason: str
    hint: str | None = None
    """What runs it after all."""


@dataclass(frozen=True)
class Given:
    """What every phase is given."""

    rollout: Rollout
    file: Path
    """The rollout file: what it names by relative paths, and what commands are to be given."""

    folder: Path
    progress: Progress
    fresh: bool = False
    """No earlier result is reused."""

    by_name: bool = False
    """It is this phase alone that was asked for."""

    def path(self, phase: Phase) -> Path:
        return self.folder / f"{phase}.json"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"


Run = Callable[[Given], Step | Skipped]
