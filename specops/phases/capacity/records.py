"""The objective of a capacity, the probes that are measured, and the answer."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from specops.errors import UsageError
from specops.hints import with_options
from specops.load.request_times import Objectives
from specops.load.workload import StoredProvenance
from specops.quantities import seconds_of
from specops.section import Frozen

ArmName = Literal["standard", "speculative"]
ARMS: tuple[ArmName, ArmName] = ("standard", "speculative")

EXAMPLE = "ttft_p95<300ms, tpot_p95<30ms"
_TERM = re.compile(r"(ttft|tpot|e2e)(?:_p([0-9]+(?:\.[0-9]+)?))?\s*<=?\s*([0-9][0-9.a-z]*)")


class Objective(Frozen):
    """Limits that a request must meet, all of them, and the share of requests that must."""

    limits: Objectives
    attain: Annotated[float, Field(gt=0.5, lt=1)]

    def __str__(self) -> str:
        limits = self.limits.model_dump(exclude_none=True).items()
        terms = (f"{name.removesuffix('_ms').upper()} {limit:g} ms" for name, limit in limits)
        return f"{self.attain:.4g} of the requests within the limits: {', '.join(terms)}"


UNBOUNDED = "no limit on the time to the first token or to the end, and no other limits the time in a queue"


def bounds_the_wait(limits: Objectives) -> bool:
    """Whether a limit counts the time in a queue. Without one, a limit on TPOT is met at any rate."""
    return limits.ttft_ms is not None or limits.e2e_ms is not None


def parse_objective(text: str, attain: float) -> dict[str, float]:
    """The limits in ms that `text` such as `EXAMPLE` names, by their keys of `slo`. Raises UsageError for
    another text, and for a quantile that is not `attain`."""
    limits: dict[str, float] = {}
    for term in text.split(","):
        match = _TERM.fullmatch(term.strip().lower())
        name = f"{match[1]}_ms" if match else ""
        limit = _milliseconds(match[3]) if match else None
        if match is None or limit is None or name in limits:
            wrong = "is named twice" if name in limits else "is not an objective"
            raise UsageError(
                f"{term.strip()!r} {wrong}: expected NAME<TIME with a unit, where NAME is ttft, tpot or e2e",
                hint=with_options({"--objective": EXAMPLE}),
            )
        if match[2] is not None and abs(float(match[2]) / 100 - attain) > 1e-9:
            raise UsageError(
                f"{term.strip()!r} is about {float(match[2]):g}% of the requests, and --attain about"
                f" {100 * attain:g}%: expected the same, since a request counts that meets all limits",
                hint=with_options({"--attain": f"{float(match[2]) / 100:g}"}),
            )
        limits[name] = limit
    if not bounds_the_wait(Objectives(**limits)):
        raise UsageError(
            f"the objective has {UNBOUNDED}: expected ttft or e2e in it",
            hint=with_options({"--objective": EXAMPLE}),
        )
    return limits


def _milliseconds(text: str) -> float | None:
    """Milliseconds of a time with its unit; None for another text, and for 0."""
    try:
        return 1000 * seconds_of(text) or None
    except ValueError:
        return None


Place = Literal["alone", "locate", "low", "high"]
"""alone: requests one after the other. locate: the search for about the right rate. low, high: of a block,
below and above the rate that is expected to meet the objective exactly."""


class ProbePlan(Frozen):
    arm: ArmName
    place: Place
    number: int
    """Of the block, or of the arm's probe that locates. Probes of one block have the same arrivals and
    prompts, scaled to their rate."""

    rate: float
    """Requests/s; 0 of requests one after the other."""

    before: int
    """Requests that are sent first and not counted, so that the counted ones meet a server in balance."""

    counted: int
    after: int
    """Requests that are sent last and not counted: the last counted ones have company, too."""


class Probe(Frozen):
    """A probe that was measured. Only counted requests are in its figures."""

    plan: ProbePlan
    attained: int
    """Requests that met all limits. Latencies begin when a request was due."""

    unknown: int
    """Answered requests of which a limited figure is not known, and no other limit was missed."""

    failed: int
    tokens: int | None
    """Output tokens of the answered requests; None where the server does not say."""

    answered: int
    mean_s: float
    """Mean time from due to the end of the answered requests, in seconds."""

    seconds: float
    """Time that the probe took, with the requests that are not counted."""

    began: float
    """Seconds since the epoch."""

    ended_by: str | None
    """Why it was ended early: over-saturation, in words. Counted requests that were not answered then count
    as outside the objective."""

    client_bound: str | None
    """Where this client set the pace, the sentence that says so: then its block decides nothing."""

    missing: str | None
    """Why a figure is not known, of one such request."""

    detail: str | None
    """The failure of one request."""


class Estimate(TypedDict):
    """An estimate with the ends of its interval. A rate in requests/s, or a ratio."""

    estimate: float
    low: float
    high: float


class ArmCapacity(TypedDict):
    rate: Estimate | None
    """The highest rate at the objective; None where it was not found."""

    in_flight: float | None
    """Requests of one server at a time, on average, at that rate."""

    tokens_a_request: float | None
    cost_per_million: Estimate | None
    """Money for a million output tokens at that rate; None without prices or tokens."""

    requests: int
    """Counted requests of all blocks that the answer rests on."""

    failed: int
    attained: float | None
    """Share inside the objective in these blocks; about `attain`, since the search stays near it."""

    saturated: int
    """Probes that over-saturation ended."""

    at_the_lowest: float | None
    """Share inside the objective where requests come one after the other."""


class CapacityStored(BaseModel):
    """What a run stores from its first probe on."""

    run: str
    """Names the run in the nonces of its prompts."""

    prompts: StoredProvenance
    probes: list[Probe]


class CapacityAnswer(BaseModel):
    """What a finished run says."""

    objective: Objective
    ratio: Estimate | None
    """Speculative over standard; None where a rate was not found."""

    arms: dict[ArmName, ArmCapacity]
    blocks: int
    """Blocks that the answer rests on."""

    left_out: int
    """Blocks that it does not rest on: too far from the rate that meets the objective, or bound by this
    client."""

    currency: str | None
    cost_ratio: Estimate | None
    unsteady: str | None
    """Why the servers changed while they were measured, in words."""


class Summary(TypedDict):
    ratio: Estimate | None
    standard_rate: float | None
    speculative_rate: float | None
    objective: str
