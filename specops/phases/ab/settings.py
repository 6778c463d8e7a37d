"""What `ab` compares, and how: checked before the first request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from specops.config import Pool

Design = Literal["interleaved", "abba-restart"]
"""interleaved: every arm is up, and they are asked in turn, block of prompts by block of prompts.
abba-restart: arms that share a device are started in turn, A B B A, and only one is ever up."""


@dataclass(frozen=True)
class Arm:
    name: str
    pool: Pool


class AbSettings(BaseModel):
    """Beside what each request asks (`BaselineSettings`), which is the same for every arm."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    design: Design = "interleaved"
    looks: int = Field(default=4, ge=1, le=20)
    """Times that the evidence is looked at, evenly spaced; the comparison ends at the first that decides
    it. The intervals at each look are so wide that all of them hold together with `confidence`
    (group-sequential repeated confidence intervals, Jennison and Turnbull 1989; Lan and DeMets 1983 with
    O'Brien and Fleming's spending)."""

    confidence: float = Field(default=0.95, gt=0.5, lt=0.999)
    """Of all intervals of one kind together: those of traffic classes and of several challengers share it."""

    ttft_veto_ratio: float = Field(default=1.2, gt=1)
    ttft_veto_ms: float = Field(default=50.0, ge=0)
    """A class is kept off speculation when its TTFT surely grows by more than the ratio, and by at least
    so many milliseconds: a fifth of very little is nothing that a user would notice."""

    length_margin: float = Field(default=0.03, gt=0, lt=1)
    """Answers that are surely longer or shorter than the standard's by more than this share are other
    answers: their end-to-end times are not compared."""

    accept_length_change: bool = False
    """Deploy although answers are surely longer or shorter, where the time per output token pays."""

    failure_margin: float = Field(default=0.005, ge=0.0001, lt=1)
    """A share of requests that fail, or take over ten times as long as usual. Surely more than this above
    the standard's is a no, possibly more is undecided."""

    mixed_prompts: int = Field(default=8, ge=0)
    """Greedy requests that are asked again among twice as many at `mixed_temperature`; 0 leaves it out."""

    mixed_temperature: float = Field(default=0.7, gt=0)

    same_server: bool = False
    """An A/A: all arms are one server, so every difference is noise. The verdict is never deploy."""
