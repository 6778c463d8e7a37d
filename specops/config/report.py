"""The weekly report: its span, its time, its thresholds; and what a server costs."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from specops.section import Section

SPAN = r"^[1-9][0-9]{0,3}[hdw]$"
AT = r"^((Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?([01][0-9]|2[0-3]):[0-5][0-9]$"


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there, no name of one, or a folder's
        raise PydanticCustomError(
            "timezone",
            "this machine knows no time zone {name}",
            {"name": name, "hint": "as in Asia/Seoul; on Debian, apt-get install tzdata"},
        ) from None
    return name


Zone = Annotated[str, AfterValidator(_zone)]


class Report(Section):
    window: str = Field(default="7d", pattern=SPAN, description="What it is of: 7d, 24h, 2w.")
    timezone: Zone = Field(default="UTC", description="Of its days and hours.")
    at: str = Field(default="Mon 09:00", pattern=AT, description="When `report schedule` has it made.")
    min_acceptance: float = Field(
        default=0.55, gt=0.0, lt=1.0, description="Below it another draft is recommended."
    )
    min_speedup: float = Field(default=1.3, gt=0.0, description="Below it the cost is questioned.")
    max_fallbacks: int = Field(default=5, ge=0, description="A week; with more the draft is to be checked.")


class Costs(Section):
    currency: str = Field(default="USD", pattern=r"^\S{1,8}$", description="As it is to be printed.")
    standard_per_hour: float = Field(gt=0.0, description="Of one server of the standard pool, all included.")
    speculative_per_hour: float | None = Field(
        default=None, gt=0.0, description="Left out: the same as a standard one."
    )
    edge_per_hour: float | None = Field(
        default=None, ge=0.0, description="Of one edge machine that drafts; 0 where users own it anyway."
    )

    @property
    def speculative(self) -> float:
        return self.standard_per_hour if self.speculative_per_hour is None else self.speculative_per_hour
