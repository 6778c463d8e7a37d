"""What the visits of a comparison left behind: what is kept in ab.json, and all that is judged from."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from specops.load.record import CellRecord
from specops.phases.ab.visits import VisitKey
from specops.phases.measurement import checked
from specops.results import Result


class VisitRecord(BaseModel):
    """A visit (visits.py has the names) and what was measured; pairs are visits equal but for their arm."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: int
    block: int
    round: int
    order: int
    period: int
    arm: str
    began: float
    """Seconds since the epoch."""

    cell: CellRecord
    """With the level of load; its `repeat` is the round."""

    @property
    def key(self) -> VisitKey:
        return self.stage, self.cell.level, self.block, self.round, self.arm


class Margin(BaseModel):
    """How sure the standard was of its token at a place where another answer parts from its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: str
    character: int
    margin: float | None
    """Between the log-probabilities of its two likeliest tokens, in nats; None where it did not tell."""

    @property
    def place(self) -> tuple[str, int]:
        return self.prompt, self.character


class Kept(BaseModel):
    """Of `data` in ab.json, what another run of the same comparison goes on from."""

    visits: list[VisitRecord]
    mixed: list[VisitRecord]
    """One for each arm and round: the greedy requests that were sent among sampled ones (mixed.py)."""

    margins: list[Margin]
    greedy: list[VisitRecord] = []
    """Requests at temperature 0 beside a measurement at a higher one, for each arm, load and round."""


def kept_of(result: Result, name: str) -> Kept:
    """The visits of a comparison that is called `name` in the message of the FileError."""
    return checked(Kept, result.data, f"{name} is damaged: data")
