"""What a prediction holds: acceptance by setting and class, speed-ups, capacity, what is not predicted."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from specops.experiment.findings import StoredInterval
from specops.section import Frozen

How = Literal["copied", "forced"]
"""copied: from the text alone. forced: by the draft model, along the logged answers (teacher forcing)."""


class PredictedAcceptance(Frozen):
    """Acceptance of one setting over some answers. A step is one pass of the target for one request."""

    answers: int
    conversations: int
    tokens: int
    steps: int
    """The step that reads the end of a prompt is the first of its answer."""

    draft_steps: int
    """Steps with a draft."""

    drafted: int
    accepted: int
    """Drafted tokens that are the answer's."""

    beyond_end: int
    """Drafted tokens behind the ends of answers. The engine may accept and count them, and drops them."""

    tokens_per_step: float
    """The accepted length over all steps, also those without a draft, with the target's own token."""

    interval: StoredInterval | None
    """Of tokens_per_step, over conversations; null with too few."""

    rate: float | None
    """Accepted over drafted tokens; null where nothing was drafted."""

    per_position: list[float]
    """Share of the steps with a draft whose token at each position, from the first, was accepted."""


class PredictedSetting(Frozen):
    setting: str
    k: int
    """Tokens drafted in a step at most, `nextn` of capacity planners; of a tree, its nodes."""

    how: How
    exact: bool
    """Whether each answer is greedy and its tokens are verified."""

    assumes: str
    """What the counts assume of the server beyond the log; empty: nothing."""

    overall: PredictedAcceptance
    by_class: dict[str, PredictedAcceptance]


class NotPredicted(Frozen):
    setting: str
    why: str
    command: str
    """What measures it."""


class PredictedSpeedup(Frozen):
    setting: str
    streams: int
    e2e: StoredInterval | None
    """Null with too few conversations; the interval is of the log, and takes the costs as they are."""

    estimate: float
    by_class: dict[str, float]
    requests_per_s: float
    """With all streams busy."""

    standard_requests_per_s: float


class PredictedCapacity(Frozen):
    """The highest rate of Poisson arrivals at which the p95 of each limit of `slo` is met."""

    setting: str
    """`standard` without speculation."""

    most_streams: int
    """The highest measured level: more requests wait."""

    requests_per_s: float
    ratio: float | None
    """Over the standard's; null of the standard, and where the standard meets the limits at no rate."""


class StepCosts(Frozen):
    """Costs at one level: a step takes step_ms, draft_ms more with a draft, and token_ms for each drafted
    token. The first token takes first_ms and prompt_ms for each token of the prompt."""

    streams: int
    step_ms: float
    draft_ms: float
    token_ms: float
    first_ms: float
    prompt_ms: float
    requests: int
    """Measured requests that the costs are fitted to."""

    largest_k: int
    """The largest K that was measured: costs of a longer draft are not known."""


class MeasuredCosts(Frozen):
    source: str
    context: float | None
    """Mean tokens before a step of the measured requests; null where the server does not report prompts."""

    by_kind: dict[str, list[StepCosts]]
    """By kind of draft, `standard` without one; by level."""


class LogFacts(Frozen):
    path: str
    answers: int
    conversations: int
    prompt_tokens: int
    answer_tokens: int
    greedy: int
    sampled: int
    unknown_temperature: int
    verified: int
    """Answers whose tokens, or their number, are in the log, and those of their prompts."""

    mean_context: float
    left_out: dict[str, int]
    """By reason."""

    classes: dict[str, int]


class PredictData(TypedDict, total=False):
    """`data` of the result."""

    log: LogFacts
    settings: list[PredictedSetting]
    not_predicted: list[NotPredicted]
    costs: MeasuredCosts | None
    costs_missing: str | None
    speedups: list[PredictedSpeedup]
    capacity: list[PredictedCapacity]
    capacity_missing: str | None


class Summary(TypedDict):
    answers: int
    setting: str | None
    """The fastest, where costs are known; else the one with the most tokens a step."""

    tokens_per_step: float | None
    speedup: float | None
    """At the lightest level; null where costs are not known."""
