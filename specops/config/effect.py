"""Settings of the live effect: what stays without speculation, to compare with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.quantities import SECONDS, Share, WholeSeconds
from specops.section import Section

LEAST_HOLDOUT, MOST_HOLDOUT = 0.01, 0.1
MOST_OF_WINDOWS = 0.5


class Effect(Section):
    """The randomised comparison of live traffic, which `specops effect` reports and the guard reads first."""

    holdout: Share = Field(
        default=0.05,
        ge=0.0,
        le=MOST_OF_WINDOWS,
        description="Share of the eligible requests that chance keeps on the standard pool, "
        "0.01 to 0.1, or of random windows, 0.01 to 0.5; 0: none, and no live effect.",
    )
    mode: Literal["requests", "windows"] = Field(
        default="requests",
        description="Unit that chance draws: requests, or windows of time without speculation, "
        "for pools that share hardware.",
    )
    window_s: WholeSeconds = Field(
        default=300, ge=2, le=3600, description="Length of a random window, in seconds."
    )
    burn_in_s: Annotated[int, Field(ge=1, le=1800), SECONDS] | None = Field(
        default=None,
        description="Part of a window, from its start, whose requests do not count, in seconds; default: "
        "the longest answer of baseline.json, else 60.",
    )

    @property
    def block(self) -> int:
        """Number of consecutive windows of which one is the holdout's."""
        return round(1 / self.holdout)

    @property
    def block_s(self) -> float:
        """Length of a block, in seconds."""
        return float(self.window_s * self.block)

    @model_validator(mode="after")
    def _is_enough(self) -> Effect:
        most = MOST_HOLDOUT if self.mode == "requests" else MOST_OF_WINDOWS
        if self.holdout and not LEAST_HOLDOUT <= self.holdout <= most:
            raise PydanticCustomError(
                "holdout",
                "holdout must be 0, or a share of {mode} from {least} to {most}",
                {
                    "mode": self.mode,
                    "least": LEAST_HOLDOUT,
                    "most": most,
                    "advice": "with fewer requests, a slowdown takes hours to find",
                },
            )
        if self.mode == "windows" and self.holdout and abs(self.holdout * self.block - 1) > 0.04:
            raise PydanticCustomError(
                "holdout",
                "holdout must be one of so many windows: {holdout} is not 1/2, 1/3, 1/4 and so on",
                {"holdout": self.holdout, "advice": f"write {1 / self.block:.4g}"},
            )
        return self
