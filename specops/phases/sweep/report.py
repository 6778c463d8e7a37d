"""What sweep.json holds beside the cells as they were measured: what was made of them, and how it is read."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops.errors import FileError
from specops.phases.ab.speedups import Shown, Speedups
from specops.phases.ab.verdict import Decision
from specops.phases.measurement import checked
from specops.phases.sweep.answers import Answers
from specops.phases.sweep.costs import Line, Step
from specops.phases.sweep.crossover import Crossover
from specops.phases.sweep.records import Stage
from specops.phases.sweep.schedule import Range, Schedule
from specops.results import Result, Verdict


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cell(_Part):
    """A setting at one load, all rungs together, in the playbook's words. Null is not known."""

    setting: str
    num_speculative_tokens: int
    tree: str | None
    draft: str | None
    concurrency: int
    temperature: float
    length: str
    requests: int
    failed: int
    accept_ratio: float | None
    """Of drafted tokens."""

    accept_length: float | None
    """Tokens that the verification of a draft yields."""

    accept_missing: str | None
    ttft_p50_ms: float | None
    tpot_p50_ms: float | None
    e2e_p50_ms: float | None
    tokens_per_sec: float | None
    """Of all streams."""

    e2e_speedup: float | None
    """Over the standard, paired by prompt; null of the standard itself."""

    e2e_interval: Shown | None
    gpu_memory_gb: float | None
    """At its most, in GiB, as nvidia-smi counts."""

    gpu_memory_share: float | None
    resident_gb: float | None
    """Of the server's processes on the host, at its most, in GiB."""


class OfSetting(_Part):
    """A setting at one concurrency, all temperatures and lengths together."""

    setting: str
    concurrency: int
    stage: Stage | None
    """What its figures are of: where the confirmation measured it, of that. None of the standard: of both."""

    requests: int
    """Answered, that the figures are of."""

    decision: Decision | None
    """None of the standard."""

    speedups: Speedups | None
    ttft_p50_ms: float | None
    tpot_p50_ms: float | None
    e2e_p50_ms: float | None
    tokens_per_sec: float | None
    """Of all streams."""

    user_tokens_per_sec: float | None
    """Of one stream while it is being answered: 1000 / the median TPOT."""


class Confirmed(_Part):
    """A setting that was measured again, at the load that decides."""

    setting: str
    prompts: int
    """That it and the standard both answered."""

    speedup: Shown | None
    """By the confirmation alone. Null with too few prompts, or none."""

    at_choice: Shown | None
    """By the evidence that it was chosen by, which is too high; null where there was but one setting."""


class Confirmation(_Part):
    """The second stage: the chosen setting, then its runner-up."""

    concurrency: int
    only: list[str]
    """Traffic classes that it was measured for; empty for all."""

    fresh: bool
    """Its prompts had no part in the choice."""

    rungs: int
    """Measured; 0 where no time was left for it."""

    looks: int
    """Times that it was judged, this one included."""

    confidence_of_each: float
    settings: list[Confirmed]


class Rival(_Part):
    """How many times as fast the recommended setting is as another that pays as well."""

    setting: str
    ratio: Shown | None
    apart: bool
    """Whether the two can be told apart."""


class OfGroup(_Part):
    """A traffic class, a length of prompts or a temperature, at the load that decided."""

    verdict: Verdict
    """On the recommended setting; on the best for this group where none is recommended."""

    reason: str
    setting: str | None
    speedup: Shown | None
    best: str | None
    """The best setting for this group alone; null where none is shown to pay."""

    k: int | None
    """Its K; 0 where nothing pays for this group, null where that is undecided."""


class Change(_Part):
    """Of the standard's E2E between its two turns, before the others of a rung and after them."""

    rung: int
    machine: str
    change: Shown | None
    """How many times as long the second took."""


class Report(_Part):
    standard: str
    confidence: float
    """Of all intervals of a kind together."""

    confidence_of_each: float
    """Of one of `together` and of `cells`."""

    looks: int
    """Rungs after which it was chosen what to measure next; 1 where everything was planned beforehand."""

    confirmation: Confirmation | None
    """Null where nothing was worth confirming. Figures of the settings that it measured, everywhere in this
    report, are its figures."""

    decided_at: int | None
    """Streams: the lightest load at which something pays, else the lightest that was measured at all."""

    recommended: str | None
    nearest: str | None
    """The setting whose costs come first: the recommended, else the one with the highest speed-up."""

    only_for: list[str]
    """Traffic classes that it is recommended for, where all together do not show that it pays; else empty."""

    cells: list[Cell]
    together: list[OfSetting]
    answers: list[Answers] = []
    """Of each setting at each concurrency, at temperature 0."""

    rivals: list[Rival]
    by_class: dict[str, OfGroup]
    by_length: dict[str, OfGroup]
    by_temperature: dict[str, OfGroup]
    steps: list[Step]
    lines: list[Line]
    crossover: Crossover | None
    schedule: Schedule | None
    schedule_missing: str | None
    standards: list[Change]
    starts: int
    """Of servers that were measured at the load that decides."""

    start_sd: float | None
    """One start of a server differs from another by so much of its latency (standard deviation); null where
    there were neither two turns of a standard nor two rungs."""


class Cost(_Part):
    draft_ms: float | None
    target_ms: float | None


class Streams(_Part):
    on_max: int | None
    off_min: int | None
    per: Literal["replica"] = "replica"


class Recommendation(_Part):
    """What other phases and programs read of a sweep."""

    verdict: Verdict
    setting: str | None
    method: str | None
    """As the engine calls it; null where specops does not know the server's method."""

    k: int | None
    """0: do not speculate. Null: undecided."""

    tree: str | None
    draft: str | None
    only_for: list[str]
    """Traffic classes, where it is not recommended for all."""

    schedule: list[Range] | None
    break_even_acceptance: float | None
    """Of accepted over drafted tokens, at `decided_at`; below it a token takes longer than without."""

    cost: Cost
    crossover: Streams
    by_class: dict[str, OfGroup]


def read(result: Result, name: str) -> Report:
    """The report in a finished sweep that is called `name` in the message of the FileError."""
    if "together" in result.data and "confirmation" not in result.data:
        raise FileError(
            f"{name} was written by an earlier version of specops, whose sweeps confirmed nothing",
            hint="sweep again with --fresh",
        )
    known = {key: value for key, value in result.data.items() if key in Report.model_fields}
    return checked(Report, known, f"{name} is damaged: data")


def recommendation(result: Result, name: str) -> Recommendation:
    """What a sweep recommends; FileError where `result`, called `name`, recommends nothing readable."""
    return checked(Recommendation, result.recommendation or {}, f"{name} is damaged: recommendation")
