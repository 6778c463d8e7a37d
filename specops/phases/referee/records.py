"""What the referee stores, and what it concludes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel
from typing_extensions import TypedDict

from specops.experiment.findings import Ratio, StoredInterval
from specops.load.record import CellRecord
from specops.load.workload import StoredProvenance
from specops.section import Frozen

OFF, ADAPTIVE = "off", "adaptive"
"""Names of the servers without speculation, and with the adaptive one. The others have fixed settings."""

Word = Literal["pays", "even", "loses", "undecided", "unknown"]
"""pays: surely faster than off, and no fixed setting is faster by more than the margin. even: the latter
alone. loses: surely slower than off, or than the best fixed setting by more than the margin. unknown: what
was measured cannot say it."""


class SegmentRecord(Frozen):
    """One phase of the programme on one server, in one pass."""

    pass_number: int
    phase: int
    """Place in the programme, from 0."""

    arm: str
    began: float
    """Seconds since the epoch."""

    cell: CellRecord


class Adaptation(Frozen):
    """What the speed did after the change of load with which the phase begins."""

    outcome: Literal["adapts", "at once", "not observed", "slows", "unknown"]
    """adapts: one surely faster level after `time_s`. slows: one surely slower. at once: it was near the best
    setting all the time, so any change came within `time_s`. not observed: no change within `observed_s`, and
    it loses."""

    time_s: float | None
    observed_s: float
    """Seconds of the phase that were observed in a pass, by the median."""

    change: StoredInterval | None
    """Speed of the later level over the earlier one; null with too few requests."""


class Swing(Frozen):
    """A periodic change within the phase, beyond what chance orders of its requests give."""

    figure: Literal["speed", "drafting"]
    """drafting: drafted tokens for each token of an answer."""

    size: float
    """Highest less lowest value, as a share of the mean, about."""

    period_s: float
    p: float
    """Share of random orders of the requests with a change as large."""


class PhaseFinding(Frozen):
    """Ratios are times of a fixed setting over those of the adaptive server: above 1, adaptive is faster."""

    load: str
    traffic: str
    verdict: Word
    why: str
    passes: int
    requests: int
    """Pairs of requests with the server without speculation."""

    off: Ratio
    static: Ratio
    """Against the best static setting: its estimate comes from halves, its interval holds for all of them."""

    best: str | None
    """The best static setting over all passes."""

    regret: StoredInterval | None
    """Share of time beyond that of the best fixed setting, off among them."""

    collapse: bool
    """Surely below both off and the best static setting, by more than the margin."""

    adaptation: Adaptation | None
    """Null where no change of load begins the phase, or the load changes within it."""

    swings: list[Swing]
    swings_unknown: str | None
    """Why swings of the speed cannot be excluded."""

    left_out: dict[str, str]
    """Static settings that were not compared in this phase, and why."""


class Findings(BaseModel):
    verdict: Word
    phases: list[PhaseFinding]
    off: Ratio
    """Over the whole programme."""

    static: Ratio
    """The same against the single static setting that is best over the whole programme."""

    best: str | None
    collapses: list[str]
    """Each collapse with its threshold, in words."""


class RefereeData(BaseModel):
    """`data` of referee.json beside the findings."""

    run: str
    """Names the last run, which resumed the earlier ones, in the nonces of its prompts."""

    prompts: StoredProvenance
    segments: list[SegmentRecord]
    failed: dict[str, str]
    """Servers that failed, and why."""

    duration_s: float


class Summary(TypedDict):
    verdict: Word
    against_off: Ratio
    against_static: Ratio
    collapses: list[str]
    swings: list[str]
    """Loads at which speed or drafting swings."""

    duration_s: float
