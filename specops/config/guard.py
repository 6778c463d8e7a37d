"""When `guard` takes speculation off, how it brings it back, and what it does for it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.actions import AnyAction
from specops.section import HostPort, Section

Share = Annotated[float, Field(gt=0.0, lt=1.0)]


class Guard(Section):
    interval_s: int = Field(default=60, ge=1, description="Between two evaluations.")
    consecutive: int = Field(default=3, ge=1, description="Bad evaluations in a row that it takes.")
    min_acceptance: Share | None = Field(
        default=None, description="Less is bad; left out: break-even as the sweep measured it, else 0.4."
    )
    max_regression: float = Field(
        default=0.20, gt=0.0, description="Mean latency above the baseline's by more than this is bad."
    )
    max_error_share: Share = Field(default=0.05, description="More failed requests than this are bad.")
    min_requests: int | None = Field(
        default=None, ge=1, description="Fewer within the window are no traffic; left out: what noise asks."
    )
    cooldown_s: int = Field(
        default=1800, ge=1, description="After a fall-back, before the first step back is tried."
    )
    canary_percents: list[Annotated[int, Field(ge=1, le=99)]] = Field(
        default=[5, 25, 50], description="Steps back, in per cent of what may be speculative; then 100."
    )
    hold_evaluations: int = Field(default=5, ge=1, description="Healthy ones that each step takes.")
    margin: float = Field(
        default=0.05,
        ge=0.0,
        lt=1.0,
        description="Of a threshold: at a step, healthy is better than it by this.",
    )
    attempts: int = Field(
        default=4, ge=0, le=20, description="To come back; then a person must act. 0: always a person."
    )
    backoff: float = Field(
        default=2.0, ge=1.0, le=100.0, description="The cool-down grows so after each failed attempt."
    )
    max_wait_s: int = Field(default=86400, ge=1, description="The longest that it grows to.")
    actions: list[AnyAction] = Field(
        default=[],
        description="What is switched, or notified; left out: the switch of addresses.routers.",
    )
    listen: HostPort = Field(
        default="127.0.0.1:9469", description="Of `specops guard run`: /metrics, /health, /alerts."
    )

    @model_validator(mode="after")
    def _steps_go_up(self) -> Guard:
        if self.canary_percents != sorted(set(self.canary_percents)):
            raise PydanticCustomError(
                "guard", "canary_percents must go up", {"hint": "such as canary_percents: [5, 25, 50]"}
            )
        return self
