"""An item of the checklist, before it is looked at and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops.phases.checklist.evidence import Evidence
from specops.phases.checklist.looking import Look

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


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Item(_Kept):
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


class Checked(_Kept):
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
