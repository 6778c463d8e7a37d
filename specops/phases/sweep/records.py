"""What a sweep leaves behind: kept in sweep.json as soon as it is measured, and all that is judged from."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops.load.record import CellRecord
from specops.phases.measurement import checked
from specops.results import Result

STORED = "stored"

Stage = Literal["choice", "confirmation"]
"""choice: all settings are measured, and the most promising is chosen by it. confirmation: the chosen one
and its runner-up are measured again, and only that decides."""


class Memory(BaseModel):
    """What a setting took at its most while a cell was measured, in GiB."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gpu_gib: float | None = None
    """Used on the server's devices, by NVML; None where there is no GPU, or none that NVML sees."""

    gpu_total_gib: float | None = None
    resident_gib: float | None = None
    """Of the server's process group on the host; None for a server that specops did not start."""


class SweptCell(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    rung: int
    setting: str
    turn: int
    """Of a standard: 0 before the others of its rung, 1 after them. Of another, 1 where it was measured a
    second time in its rung, else 0."""

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
    """The version that the server says it is of."""

    memory: Memory
    cell: CellRecord
    """With concurrency and repeat; `wall_s` and rows."""


class SkippedCell(BaseModel):
    """A setting that was left alone at a load, after a rung, to spend the time elsewhere."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    setting: str
    concurrency: int
    temperature: float
    length: str
    after: int
    why: str


class FailedJob(BaseModel):
    """A setting that did not come up, or died while it was measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rung: int
    setting: str
    turn: int
    machine: str
    why: str
    log: str
    """The last lines of its log."""


class Picked(BaseModel):
    """What the evidence of the choice says to confirm."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    settings: tuple[str, ...]
    """The chosen setting, then its runner-up where there is one."""

    streams: tuple[int, ...]
    """The concurrency that decides, then the heavier ones at which it may still pay."""

    only: tuple[str, ...] = ()
    """Traffic classes, where all together do not look faster and these do."""

    fresh: bool = True
    """The prompts of the confirmation had no part in the choice."""


class Measurements(BaseModel):
    """Of `data` in sweep.json, what the same sweep goes on from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cells: list[SweptCell]
    failed: list[FailedJob]
    skipped: list[SkippedCell]
    picked: Picked | None = None
    """Null before the choice was made, and where nothing was worth confirming."""

    looks: int = 0
    """Times that the confirmation was judged: each later one has a smaller share of the error allowed."""

    spent_s: float
    """On measuring, starts and all; of a sweep that was stopped and went on, together."""


def measurements_of(result: Result, name: str) -> Measurements:
    """What a sweep measured that is called `name` in the message of the FileError."""
    return checked(Measurements, result.data.get(STORED, {}), f"{name} is damaged: data.{STORED}")
