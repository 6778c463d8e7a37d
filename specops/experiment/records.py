"""What an experiment stores: a window with every request that was sent in it, and margins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel

from specops.experiment.plan import Key, Kind
from specops.load.arrivals import Level
from specops.load.record import NOT_THE_SERVERS, CellRecord, Row
from specops.section import Frozen


class WindowRecord(Frozen):
    """A window (plan.py has the names) and what was measured."""

    cycle: int
    kind: Kind
    level: Level
    order: int
    period: int
    arm: str
    began: float
    """Seconds since the epoch."""

    cell: CellRecord
    """The measured cell; of an open window its load is the rate, of a mixed one `MIXED_STREAMS` or more."""

    @property
    def key(self) -> Key:
        return self.cycle, self.kind, self.level, self.arm


class Margin(Frozen):
    """By how much the standard preferred its token where another answer differs from its own."""

    prompt: str
    variant: str
    character: int
    nats: float | None
    """Difference between the log-probabilities of its two likeliest tokens; None where it did not report
    them."""

    @property
    def place(self) -> Place:
        return self.prompt, self.variant, self.character


Place = tuple[str, str, int]
"""A prompt, its variant, and the character of the standard's answer at which another answer begins to
differ."""


class Measurements(BaseModel):
    """The part of `data` from which another run of the same experiment resumes."""

    run: str
    """Names this run in the nonces of its prompts."""

    windows: list[WindowRecord]
    margins: list[Margin]


def levels_of(windows: Sequence[WindowRecord]) -> list[Level]:
    """The loads that are compared, from the lightest to the heaviest."""
    return ordered({window.level for window in windows if window.kind == "measured"})


def ordered(levels: Iterable[Level]) -> list[Level]:
    return sorted(set(levels), key=lambda level: (level.rate or 0.0, level.concurrency or 0))


def sent_to(windows: Sequence[WindowRecord], arm: str) -> Iterator[Row]:
    """Every request that an arm was sent: warm-up and fillers, too. What the run itself stopped is left
    out."""
    for window in windows:
        if window.arm == arm:
            yield from (row for row in window.cell.sent if row.error not in NOT_THE_SERVERS)
