"""What a server costs, so that a report can say what was saved in money."""

from __future__ import annotations

from pydantic import Field

from specops.section import Section


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
