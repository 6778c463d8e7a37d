"""Observations of a rollout, gathered once. A part that could not be observed is None; `missing` has why."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specops.section import Frozen


class Live(Frozen):
    """Figures of a pool's servers together, as they are now. None is not known, never zero."""

    source: str
    over: str
    """How long it is of, in words."""

    age_s: float = 0.0
    """Seconds since a token was made; without any, since the newest sample."""

    answers: float | None = None
    """Number of answers that ended."""

    drafted: float | None = None
    """Tokens."""

    acceptance: float | None = None
    per_position: tuple[float, ...] = ()
    """Share of drafts accepted that far, by position from the first."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    """Means."""

    answer_tokens: float | None = None
    load: float | None = None
    """Requests that a server has at a time, as a request sees it."""

    kv_usage: float | None = None
    preemptions_per_s: float | None = None
    aborted: float | None = None
    """Share of the requests that ended: the engine aborted or failed them."""

    not_drafting: tuple[str, ...] = ()
    """Servers that made tokens and drafted none."""

    stuck: tuple[str, ...] = ()
    """Servers that had requests running all the time and made no token."""


class RoutedShare(Frozen):
    """The share that routers send to the speculative pool, of what their rules allow."""

    source: str
    percent: float
    """Percentage of the router that sends most."""


class RoutedErrors(Frozen):
    """The routers' answers to requests, by the pool that a request was sent to."""

    source: str
    over: str
    requests: float
    """Number of requests to the speculative pool."""

    failed: float
    """Share of them: answered 5xx."""

    saved: float
    """Share of them that the standard pool answered in its place."""

    standard_failed: float | None = None
    """Share of the requests to the standard pool that were answered 5xx; None: it had none."""


class EarlierAcceptance(Frozen):
    """Acceptance of other times, by Prometheus."""

    source: str
    week: float | None = None
    """Acceptance of the 7 days before."""

    after_start: float | None = None
    """Acceptance of the first hour after the servers' last start, where that is over."""

    up_hours: float | None = None


class BaselineLoad(Frozen):
    """Figures of the baseline at one number of streams; means in milliseconds."""

    concurrency: int
    ttft_ms: float | None
    tpot_ms: float | None
    token_ms: float | None
    """Milliseconds of a token after the first, over all tokens."""


class BaselineFigures(Frozen):
    source: str
    loads: tuple[BaselineLoad, ...]


class SpeedupInterval(Frozen):
    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.2f}× [{self.low:.2f}, {self.high:.2f}]"


class ClassVerdict(Frozen):
    verdict: str
    reason: str
    e2e: SpeedupInterval | None


class AcceptanceAtLoad(Frozen):
    """Acceptance at one number of streams, and the number of drafts that it is of."""

    streams: int
    rate: float
    drafts: float


class AbFigures(Frozen):
    """ab.json, of the arm called speculative."""

    source: str
    e2e: SpeedupInterval | None
    """Speed-up at the lightest load, all classes together."""

    streams: int | None = None
    """The lightest load; None where it was a rate of arrivals."""

    up_to: int | None = None
    """The most streams at which it was decided to deploy it, for any class; 0: none; None: not measured."""

    ttft: SpeedupInterval | None
    """The standard's over the challenger's: below 1 is later."""

    ttft_change_ms: float | None
    acceptance: float | None
    drafts: float
    """Number of drafts that `acceptance` is of."""

    by_streams: tuple[AcceptanceAtLoad, ...] = ()
    """From few streams to many."""

    classes: dict[str, ClassVerdict]
    equal: int | None
    """Greedy answers that are the standard's, of `compared`; near ties count as equal."""

    compared: int | None
    control: float | None
    """The share of the standard's own that are, when repeated."""

    mixed: bool = False
    """These answers were given while sampled requests shared the batch."""


class SweepFigures(Frozen):
    """sweep.json, of the setting that is deployed."""

    source: str
    setting: str | None
    """None: the deployed setting was not swept, and figures of a setting are not known."""

    k: int | None
    break_even: float | None
    draft_ms: float | None
    """Milliseconds of one token more: to draft it, and to verify it. From a line through measured steps."""

    target_ms: float | None
    per_position: tuple[float, ...]
    on_max: int | None
    """Streams of a server up to which it surely pays, and from which on it does not."""

    off_min: int | None
    by_length: dict[str, float]
    """Acceptance by class of prompt length, at the lightest load."""

    by_temperature: dict[float, float]
    classes_off: dict[str, str]
    """Traffic classes for which nothing pays, and why."""

    def lacks(self, otherwise: str) -> str:
        """Return why a figure of the deployed setting is missing."""
        return "the sweep did not measure the deployed setting" if self.setting is None else otherwise


class DraftFigures(Frozen):
    source: str
    verdict: str
    reason: str
    wrong: tuple[str, ...]
    """What was found that is not compatible."""


class CanaryCheck(Frozen):
    name: str
    status: str
    message: str
    request: str | None


class CanaryFigures(Frozen):
    source: str
    checks: tuple[CanaryCheck, ...]


class LintFinding(Frozen):
    level: Literal["error", "warning", "note"]
    flag: str
    why: str
    replacement: str | None


class LintFigures(Frozen):
    """The lint of the command that starts the speculative pool."""

    source: str
    findings: tuple[LintFinding, ...]


class MissingNames(Frozen):
    """Names that rules and panels need, and a Prometheus lacks."""

    source: str
    requested: int
    lacking: tuple[str, ...]
    fixes: tuple[str, ...]


class VocabularyLogLines(Frozen):
    """Lines of servers' logs that name unlike vocabularies."""

    source: str
    files: int
    lines: tuple[str, ...]


class GpuFigures(Frozen):
    """The memory of the fullest device here that is in use."""

    source: str
    used_gib: float
    total_gib: float

    @property
    def share(self) -> float:
        return self.used_gib / self.total_gib


class StreamFigures(Frozen):
    """The timing of a few streamed answers."""

    source: str
    requests: int
    chunks: int
    tokens_per_chunk: float
    """Mean over chunks."""

    tokens_per_chunk_p95: float | None
    gap_p50_ms: float | None
    gap_p95_ms: float | None
    tokens_per_s: float
    """Tokens a second of one stream, after its first chunk."""

    buffer_ms: float | None
    """What a reader at that pace has to hold back, so that none of these answers runs dry on the way."""


class Fallbacks(Frozen):
    source: str
    week: int
    """Number in the 7 days before."""

    last: str | None


class DeployedSettings(Frozen):
    """The speculative pool by its settings."""

    engine: str
    version: str | None = None
    model: str | None = None
    method: str | None = None
    k: int | None = None
    ends_speculation: str | None = None
    """What may end its speculation until it is restarted."""


class Observations(Frozen):
    rollout: str
    deployed: DeployedSettings | None = None
    branches: bool = False
    """Whether its drafts are trees that branch: most of what is drafted cannot be accepted."""

    classes: dict[str, dict[str, object]] = Field(default={})
    """`route.classes` of the rollout file by name, as written there."""

    live: Live | None = None
    """Figures of the speculative pool."""

    standard: Live | None = None
    routed_share: RoutedShare | None = None
    routed_errors: RoutedErrors | None = None
    earlier: EarlierAcceptance | None = None
    baseline: BaselineFigures | None = None
    compared: AbFigures | None = None
    sweep: SweepFigures | None = None
    drafts: DraftFigures | None = None
    canary: CanaryFigures | None = None
    lint: LintFigures | None = None
    names: MissingNames | None = None
    vocabulary_log: VocabularyLogLines | None = None
    gpu: GpuFigures | None = None
    stream: StreamFigures | None = None
    fallbacks: Fallbacks | None = None
    missing: dict[str, str] = Field(default={})
    ages: dict[str, float] = Field(default={})
    """Seconds since what a source says was so, by `source`."""

    def why_not(self, *parts: str) -> str:
        """Return why the first of these parts that is missing is, in words."""
        for part in parts:
            if getattr(self, part) is None:
                return self.missing.get(part, f"no observation of {part}")
        return "the observations do not include it"
