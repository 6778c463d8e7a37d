"""What a person asks of the guard: by the command line, and over HTTP of one that runs."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from specops.guard.guard import Guard
from specops.guard.journal import Entry
from specops.guard.state import Override


class Asked(BaseModel):
    """The body of POST /override."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pool: Literal["standard", "speculative", "none"]
    """Where traffic is pinned; none hands it back."""

    by: str = Field(min_length=1, max_length=200)
    why: str = Field(min_length=1, max_length=2000)
    minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)


def carry_out(guard: Guard, asked: Asked) -> Entry | None:
    """None where it holds already."""
    if asked.pool == "none":
        return guard.release(asked.by, asked.why)
    left_s = None if asked.minutes is None else asked.minutes * 60
    return guard.pin(Override(pool=asked.pool, by=asked.by, why=asked.why, left_s=left_s))
