"""A window of the bench as it is stored: that of any experiment, with the work of clients and server."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Self

from pydantic import BaseModel

from specops.experiment.records import WindowRecord
from specops.load.request_times import MOST_LAG_SHARE
from specops.section import Frozen


class Totals(Frozen):
    """Sums that only grow."""

    def since(self, earlier: Self) -> Self:
        """Return what was added since `earlier`."""
        fields = type(self).model_fields
        return type(self)(**{name: getattr(self, name) - getattr(earlier, name) for name in fields})

    @classmethod
    def sum(cls, parts: Iterable[Self]) -> Self:
        """Return the sum over several clients, or windows."""
        listed = list(parts)
        return cls(**{name: math.fsum(getattr(part, name) for part in listed) for name in cls.model_fields})


class ClientEffort(Totals):
    """The work of all clients together; where the server drafts, no nodes. EdgeCounters
    (edge/client_metrics.py) explains each, but for the bytes of the link."""

    verdicts: int = 0
    waited_s: float = 0.0
    step_s: float = 0.0
    rounds: int = 0
    nodes: int = 0
    hits: int = 0
    taken: int = 0
    passes: int = 0
    run: int = 0
    wasted: int = 0
    draft_s: float = 0.0
    network_s: float = 0.0
    up_bytes: int = 0
    down_bytes: int = 0


class ServerEffort(Totals):
    """The work of the server, by its own metrics."""

    steps: float = 0.0
    rounds: float = 0.0
    """Sequences in all steps."""

    busy_s: float = 0.0
    """Seconds in steps."""

    starved_s: float = 0.0
    """Seconds with sessions, but none whose round had come."""

    @property
    def idle(self) -> float:
        """Share of the time with sessions in which no round waited."""
        with_sessions = self.busy_s + self.starved_s
        return self.starved_s / with_sessions if with_sessions else 0.0


class Lateness(Totals):
    """The passes with declared times that computed longer than declared; all 0 where none are declared."""

    passes: float = 0
    late: float = 0
    over_s: float = 0.0
    declared_s: float = 0.0

    @property
    def over_share(self) -> float:
        """How much longer than declared all passes took, as a share."""
        return self.over_s / self.declared_s if self.declared_s else 0.0

    @property
    def bottleneck(self) -> str | None:
        """The sentence that says that this machine set the pace, not the declared times; else None."""
        if self.over_share <= MOST_LAG_SHARE:
            return None
        return f"this machine was the bottleneck: passes took {self.over_share:.0%} longer than declared"


class EdgeWindow(WindowRecord):
    """The judge reads what every experiment stores. The work of the machines is shown beside it: an endpoint
    has no such figures, and no claim rests on them."""

    server: ServerEffort
    effort: ClientEffort
    late: Lateness
    """Of the target and the draft together."""


class EdgeWindows(BaseModel):
    """The part of `data` in a result that holds what was measured."""

    windows: tuple[EdgeWindow, ...]
