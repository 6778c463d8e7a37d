"""Settings of the guard: when it takes speculation off, how it brings it back, and the actions for that."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.actions import AnyAction
from specops.defaults import LEAST_ACCEPTANCE
from specops.quantities import Count, Ratio, Share, WholePercentage, WholeSeconds
from specops.section import HostPort, Section


class Guard(Section):
    """Evaluation, fallback and recovery by `specops guard`, and the actions that it takes."""

    interval_s: WholeSeconds = Field(
        default=60, ge=1, description="Interval between two evaluations, in seconds."
    )
    consecutive: Count = Field(
        default=3, ge=1, description="Number of bad evaluations in a row that cause a fallback."
    )
    min_acceptance: Share | None = Field(
        default=None,
        gt=0.0,
        lt=1.0,
        description="Acceptance rate below which an evaluation is bad; default: break-even of the sweep, "
        f"else {LEAST_ACCEPTANCE:g}.",
    )
    max_regression: Share = Field(
        default=0.20,
        gt=0.0,
        lt=1.0,
        description="Relative increase of mean latency over the baseline above which an evaluation is bad.",
    )
    max_error_share: Share = Field(
        default=0.05,
        gt=0.0,
        lt=1.0,
        description="Share of failed requests, 0 to 1, above which an evaluation is bad.",
    )
    min_requests: Count | None = Field(
        default=None,
        ge=1,
        description="Smallest number of requests in the window that counts as traffic; "
        "default: from the baseline's noise.",
    )
    cooldown_s: WholeSeconds = Field(
        default=1800, ge=1, description="Time from a fallback to the first attempt to re-enable, in seconds."
    )
    canary_percents: list[Annotated[WholePercentage, Field(ge=1, le=99)]] = Field(
        default=[5, 25, 50],
        description="Shares on the way back to 100, in percent of the eligible requests, ascending.",
    )
    hold_evaluations: Count = Field(
        default=5, ge=1, description="Number of healthy evaluations that complete a step."
    )
    margin: Share = Field(
        default=0.05,
        ge=0.0,
        lt=1.0,
        description="Relative margin by which a step must be better than a threshold to be healthy, 0 to 1.",
    )
    attempts: Count = Field(
        default=4,
        ge=0,
        le=20,
        description="Number of attempts to turn speculation on before "
        "a person must act; 0: a person always must.",
    )
    backoff: Ratio = Field(
        default=2.0,
        ge=1.0,
        le=100.0,
        description="Factor by which the cool-down grows after each failed attempt.",
    )
    max_wait_s: WholeSeconds = Field(default=86400, ge=1, description="Longest cool-down, in seconds.")
    actions: list[AnyAction] = Field(
        default=[],
        description="Actions that switch speculation or notify; empty: the switch of addresses.routers.",
    )
    listen: HostPort = Field(
        default="127.0.0.1:9469",
        description="HOST:PORT on which `specops guard run` serves /metrics, /health and /alerts.",
    )

    @model_validator(mode="after")
    def _steps_go_up(self) -> Guard:
        if self.canary_percents != sorted(set(self.canary_percents)):
            raise PydanticCustomError(
                "guard", "canary_percents must go up", {"advice": "such as canary_percents: [5, 25, 50]"}
            )
        return self
