"""Settings of the live effect: the requests that stay without speculation, to compare with."""

from __future__ import annotations

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from specops.quantities import Share
from specops.section import Section

LEAST_HOLDOUT, MOST_HOLDOUT = 0.01, 0.1


class Effect(Section):
    """The randomised comparison of live traffic, which `specops effect` reports and the guard reads first."""

    holdout: Share = Field(
        default=0.05,
        ge=0.0,
        le=MOST_HOLDOUT,
        description="Share of the eligible requests that chance keeps on the standard pool, "
        "0.01 to 0.1; 0: none, and no live effect.",
    )

    @field_validator("holdout")
    @classmethod
    def _is_enough(cls, holdout: float) -> float:
        if 0 < holdout < LEAST_HOLDOUT:
            raise PydanticCustomError(
                "holdout",
                "holdout must be 0, or a share from 0.01 to 0.1",
                {"advice": "with fewer requests, a slowdown takes hours to find"},
            )
        return holdout
