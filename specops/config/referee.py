"""Settings of the referee: the load programme, and the fixed settings that an adaptive pool must match."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.quantities import Count, Factor, Rate, Share, Streams, Tokens
from specops.section import Section, Tree

RAMP = r"^[0-9]+([.][0-9]+)?-[0-9]+([.][0-9]+)?/[0-9][0-9.a-z]*$"


class LoadPhase(Section):
    """One phase of the load programme: its load, which is streams, rate or ramp, and its requests."""

    streams: Annotated[Streams, Field(ge=1, le=1000)] | None = Field(
        default=None, description="Load as concurrent streams, all busy; default: none."
    )
    rate: Annotated[Rate, Field(gt=0.0)] | None = Field(
        default=None, description="Load as requests per second, in a Poisson process; default: none."
    )
    ramp: str | None = Field(
        default=None,
        pattern=RAMP,
        description="Load as a ramp: 1-20/60s is 1 to 20 requests per second in a minute; default: none.",
    )
    requests: Annotated[Count, Field(ge=8, le=2000)] | None = Field(
        default=None,
        description="Number of requests in each pass, for streams and rate; default: that of `referee`.",
    )
    mix: dict[str, Annotated[Factor, Field(gt=0.0)]] | None = Field(
        default=None,
        min_length=1,
        description="Traffic classes of the requests, with their weights; default: all prompts alike.",
    )
    context: Annotated[Tokens, Field(ge=1)] | None = Field(
        default=None,
        description="Tokens of other text in front of each prompt, about; default: none.",
    )

    @model_validator(mode="after")
    def _one_load(self) -> LoadPhase:
        loads = [load for load in (self.streams, self.rate, self.ramp) if load is not None]
        if len(loads) != 1:
            raise PydanticCustomError(
                "load_phase",
                "a phase has one load, and {count} of streams, rate and ramp are set",
                {"count": len(loads), "advice": "write one of them: streams: 16"},
            )
        if self.ramp is not None and self.requests is not None:
            raise PydanticCustomError(
                "load_phase",
                "the requests of a ramp follow from its rates and its time",
                {"advice": "remove requests"},
            )
        return self

    @property
    def load(self) -> str:
        if self.streams is not None:
            return f"{self.streams} stream{'s' if self.streams > 1 else ''}"
        return f"{self.rate:g} requests/s" if self.rate is not None else f"ramp {self.ramp} requests/s"

    @property
    def traffic(self) -> str:
        """What is sent, in words; empty for all prompts as they are."""
        mix = " and ".join(f"{name}:{weight:g}" for name, weight in (self.mix or {}).items())
        context = f"{self.context} tokens of context" if self.context else ""
        return ", ".join(filter(None, (mix, context)))

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.load, self.traffic)))


class Referee(Section):
    """Comparison of an adaptive speculative pool with fixed settings, by `specops referee`, under a load that
    changes."""

    k: list[Annotated[Tokens, Field(ge=1, le=64)]] = Field(
        default=[3, 5],
        min_length=1,
        description="Draft lengths of the fixed settings, in tokens, of the speculative pool.",
    )
    trees: list[Tree] | None = Field(
        default=None,
        min_length=1,
        description="Draft trees of the fixed settings instead of k, on the embedded engine; default: none.",
    )
    static: dict[str, str] | None = Field(
        default=None,
        min_length=1,
        description="Fixed settings instead of k, by name: arms as in `specops ab`, such as the URLs of "
        "running servers; default: none.",
    )
    phases: list[LoadPhase] | None = Field(
        default=None,
        min_length=1,
        description="Load programme, repeated in each pass; default: the levels of measure.concurrency.",
    )
    passes: Count = Field(
        default=12,
        ge=4,
        le=100,
        description="Number of times that the programme is sent to each server.",
    )
    requests: Count = Field(
        default=16,
        ge=8,
        le=2000,
        description="Least number of requests of a phase in each pass; a phase sends two per stream or more.",
    )
    margin: Share = Field(
        default=0.05,
        gt=0.0,
        lt=0.5,
        description="Share of time by which the best fixed setting may be faster in a phase, 0 to 0.5.",
    )
