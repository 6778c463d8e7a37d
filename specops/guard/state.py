"""What the guard knows from one evaluation to the next, as its journal keeps it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Mode = Literal["on", "fallen", "canary", "held"]
Event = Literal[
    "fell_back", "fell_further", "gave_up", "canary", "step", "returned", "settled", "override", "released"
]
FULL = 100
"""Per cent of what may be speculative."""


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Override(_Kept):
    """What a person decided."""

    pool: Literal["standard", "speculative"]
    by: str
    why: str
    left_s: float | None
    """None: until somebody ends it."""


class State(_Kept):
    mode: Mode = "on"
    percent: int = FULL
    """Of what may be speculative, what the guard lets be; an override comes before it."""

    bad_in_a_row: int = 0
    row_began: float | None = None
    """Of the first of them, by Prometheus' clock; None without a row, or where it was not told."""

    row_last: float | None = None
    """Of the last of them that counted."""

    healthy_in_a_row: int = 0
    attempts: int = 0
    """To come back, since it was last on for good."""

    wait_s: float = 0.0
    """What is left of the cool-down."""

    override: Override | None = None
    at: float | None = None
    """Of the last decision; seconds since the epoch, as all instants."""

    counted_at: float | None = None
    """Of the last evaluation that counted for a row."""

    @property
    def wanted(self) -> int:
        """The percentage that routers should have."""
        if self.override is None:
            return self.percent
        return FULL if self.override.pool == "speculative" else 0


class Decision(_Kept):
    state: State
    why: str
    events: tuple[Event, ...] = ()
