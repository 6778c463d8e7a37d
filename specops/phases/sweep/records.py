"""What a sweep leaves behind: stored in sweep.json as soon as it is measured, and all that is judged from."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from specops.load.record import CellRecord
from specops.phases.measurement import checked
from specops.results import Result

STORED = "stored"

Stage = Literal["choice", "confirmation"]
"""choice: all settings are measured, and the most promising is chosen by it. confirmation: the chosen one
and its runner-up are measured again, and only that decides."""


class Memory(BaseModel):
    """The peak memory of a setting while a cell was measured, in GiB."""

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
    """The version that the server reports."""

    memory: Memory
    cell: CellRecord
    """With concurrency and repeat; `wall_s` and rows."""


class SkippedCell(BaseModel):
    """A setting that was left out at a load, after a rung, to spend the time elsewhere."""

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
    """What is confirmed, by the evidence of the choice."""

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
    """The part of `data` in sweep.json from which the same sweep resumes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cells: list[SweptCell]
    failed: list[FailedJob]
    skipped: list[SkippedCell]
    picked: Picked | None = None
    """Null before the choice was made, and where nothing was worth confirming."""

    looks: int = 0
    """Times that the confirmation was judged: each later one has a smaller share of the error allowed."""

    spent_s: float
    """Spent on measuring, starts included; of a resumed sweep, all runs together."""


class LengthCounts(BaseModel):
    counted_by: str
    prompts: dict[str, int]
    """How many there are of each length."""


class Stored(BaseModel):
    """`data` of sweep.json beside the report (report.py)."""

    prompts: dict[str, Any]
    lengths: LengthCounts
    stored: Measurements


def measurements_of(result: Result, name: str) -> Measurements:
    """What a sweep measured; FileError, which calls it `name`, where it is damaged."""
    return checked(Measurements, result.data.get(STORED, {}), f"{name} is damaged: data.{STORED}")
