"""An item of the checklist, before it is looked at and after."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, computed_field

from specops.config import Rollout
from specops.errors import FileError
from specops.phases.checklist.evidence import Evidence, Look
from specops.phases.inputs import identity
from specops.render import files

Status = Literal["passed", "failed", "open", "attested"]
Origin = Literal["playbook", "specops"]


@dataclass(frozen=True)
class Decided:
    """What a look made of an item: in words, and by what."""

    passed: bool
    found: str
    evidence: tuple[Evidence, ...]
    decide: str | None = None
    """The command that would change a no, in place of the item's own."""

    change: str | None = None
    """What to change before that command."""


@dataclass(frozen=True)
class Spec:
    name: str
    asks: str
    command: Callable[[Look], str]
    """The complete command that decides the item."""

    look: Callable[[Look], Decided]
    origin: Origin = "playbook"
    attestable: bool = False
    """Where no look can tell, a person may. A look that can tell is not overruled."""


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Item(_Stored):
    """`data.items[]` of checklist.json."""

    name: str
    asks: str
    origin: Origin
    status: Status
    found: str
    evidence: list[Evidence]
    change: str | None
    """What to change before `decide` is run, in the rollout file or outside specops; null for nothing."""

    decide: str | None
    """The command that would decide it, or change the answer; null where nothing is left to do."""


class Checked(_Stored):
    """`data` of checklist.json."""

    rollout_file: str
    items: list[Item]


@dataclass(frozen=True)
class Todo:
    command: str
    changes: tuple[tuple[str, str], ...]
    """What to change before the command, and the item that it is for."""

    items: tuple[str, ...]
    """Items that the command decides."""


def todo(items: Sequence[Item]) -> list[Todo]:
    """The commands that decide what failed, then what is open; each once."""
    found: dict[str, list[Item]] = {}
    for status in ("failed", "open"):
        for item in items:
            if item.status == status and item.decide:
                found.setdefault(item.decide, []).append(item)
    return [
        Todo(
            command,
            tuple((item.change, item.name) for item in of if item.change),
            tuple(item.name for item in of),
        )
        for command, of in found.items()
    ]


FILE = "attestations.json"
VALID_DAYS = 90


class Attestation(BaseModel):
    """`until` is computed, never read: what the file says of it does not count."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    item: str
    by: str = Field(min_length=1, max_length=200, pattern=r"\S")
    note: str | None = Field(default=None, max_length=2000)
    at: AwareDatetime
    rollout: str
    """The identity of what the rollout file says; comments, order and paths do not count."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def until(self) -> datetime:
        return self.at + timedelta(days=VALID_DAYS)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    attestations: list[Attestation]


def read(folder: Path) -> list[Attestation]:
    """All that were ever made, the oldest first. Raises FileError for a damaged file."""
    path = folder / FILE
    if not path.exists():
        return []
    try:
        return _File.model_validate_json(path.read_bytes()).attestations
    except (OSError, ValidationError) as error:
        why = (
            f"could not read {path}: {error.strerror}" if isinstance(error, OSError) else f"{path} is damaged"
        )
        raise FileError(why, hint="restore it from a copy, or move it aside and attest again") from error


def attest(
    rollout: Rollout, folder: Path, item: str, by: str, note: str | None, now: datetime
) -> Attestation:
    """Add one to the file, which keeps those before it. Raises FileError, pydantic's ValidationError."""
    made = Attestation(
        item=item,
        by=by,
        note=note,
        at=now,
        rollout=identity(rollout),
    )
    stored = _File(attestations=[*read(folder), made])
    text = json.dumps(stored.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"
    files.write(folder, {FILE: text})
    return made


def latest(attestations: list[Attestation], item: str) -> Attestation | None:
    return next((one for one in reversed(attestations) if one.item == item), None)
