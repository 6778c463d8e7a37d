"""A measured cell, and how it is stored in a result: what resuming, comparing and reporting read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from specops import stats
from specops.load import metrics
from specops.load.answer import TokensFrom
from specops.load.arrivals import Level
from specops.load.metrics import Objectives, Observation, client_bound

QUANTILES = (0.5, 0.95, 0.99)

NOT_THE_SERVERS = ("interrupted", "overrun")
"""Errors of requests that say nothing about the server: stopped by the run, or never sent."""


def positive(value: float | None) -> float | None:
    """`value`, or None: a latency or a token rate of 0 or less is no evidence, but unknown."""
    return value if value is not None and 0 < value < math.inf else None


Known = Annotated[float | None, AfterValidator(positive)]
"""A latency or a token rate, or None where it is not known."""


@dataclass(frozen=True)
class Cell:
    level: Level
    repeat: int
    observations: tuple[Observation, ...]
    complete: bool
    """False when it was aborted or interrupted: prompts that were not sent have no observation, and those
    that were in flight have the failure `interrupted`."""

    aborted: str | None = None

    @property
    def started(self) -> float:
        return min((o.first_sent for o in self.observations), default=0.0)

    @property
    def wall_s(self) -> float:
        """First request sent to last answer ended."""
        return max((o.ended for o in self.observations), default=0.0) - self.started


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Spread(_Record):
    """How a set of samples is spread. A quantile that they are too few for is null, its reason beside it."""

    n: int
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    missing: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        quantiles = {f"p{q * 100:g}": stats.percentile(samples, q) for q in QUANTILES}
        reasons = {f"p{q * 100:g}": stats.shortage(len(samples), q) for q in QUANTILES}
        return cls(
            n=len(samples),
            mean=round(sum(samples) / len(samples), 4) if samples else None,
            max=round(max(samples), 4) if samples else None,
            missing={name: reason for name, reason in reasons.items() if reason},
            **{name: None if value is None else round(value, 4) for name, value in quantiles.items()},
        )


class Row(_Record):
    """One request. Durations in milliseconds; `metrics` has their definitions."""

    prompt: str
    traffic_class: str = Field(validation_alias="class", serialization_alias="class")
    sent_s: float
    """Since the cell's first request."""

    lag_ms: float
    """The client's own time before the request was sent, set-up of its connection included."""

    connecting_ms: float = 0.0
    """Of the lag: until the connection was there, where there was none to be used again."""

    ttft_ms: Known
    tpot_ms: Known
    e2e_ms: float
    """Until the end of the answer; of a failed request until its failure."""

    e2e_with_retries_ms: float
    retries: int
    resent: bool = False
    """Sent again at once, on a new connection: the server had closed the one that it had left open."""

    chunks: int
    n_first: int | None
    tokens: int | None
    tokens_from: TokensFrom
    finish_reason: str | None
    text: str
    reasoning: int = 0
    """Characters of the text that are reasoning."""

    error: str | None
    detail: str | None
    missing: dict[str, str] = Field(default_factory=dict)
    """Why a figure is unknown: `tokens`, `tpot_ms`, and `chunk_tokens` for those of each chunk."""

    @classmethod
    def of(cls, observation: Observation, started: float) -> Self:
        answer = observation.answer
        reasons: dict[str, str | None] = {}
        if observation.ok:
            reasons = {
                "tokens": answer.tokens_missing,
                "chunk_tokens": answer.chunk_tokens_missing,
                "tpot_ms": metrics.tpot_missing(observation),
            }
        return cls(
            prompt=observation.prompt,
            traffic_class=observation.traffic_class,
            sent_s=round(observation.first_sent - started, 6),
            lag_ms=_ms(metrics.lag(observation)),
            connecting_ms=_ms(observation.connecting),
            ttft_ms=_optional_ms(metrics.ttft(observation)),
            tpot_ms=_optional_ms(metrics.tpot(observation)),
            e2e_ms=_ms(metrics.e2e(observation)),
            e2e_with_retries_ms=_ms(metrics.e2e_with_retries(observation)),
            retries=observation.retries,
            resent=observation.resent,
            chunks=len(answer.chunks),
            n_first=answer.chunks[0].tokens if answer.chunks else None,
            tokens=answer.tokens,
            tokens_from=answer.tokens_from,
            finish_reason=answer.finish_reason,
            text=answer.text,
            reasoning=answer.reasoning,
            error=answer.failure.kind if answer.failure else None,
            detail=answer.failure.detail if answer.failure else None,
            missing={name: reason for name, reason in reasons.items() if reason},
        )


class DraftCountsRecord(_Record):
    drafts: float
    draft_tokens: float
    accepted_tokens: float
    accepted_per_position: tuple[float, ...]


class CellRecord(_Record):
    concurrency: int | None
    rate: float | None
    burstiness: float
    repeat: int
    complete: bool
    aborted: str | None
    wall_s: float
    tokens: int | None
    """Of the whole answers; null where the endpoint does not say and no tokenizer was given."""

    tokens_per_sec: Known
    requests_per_sec: float | None
    goodput_per_sec: float | None
    """Requests a second that met every objective; null where no objective was set."""

    goodput_tokens_per_sec: float | None
    peak_tokens_per_sec: Known
    chunk_tokens_missing: str | None = None
    """Why there is no peak, and no amortised ITL of some answers: how many of them, and the reason."""

    chunk_gap_ms: Spread
    amortised_itl_ms: Spread
    tokens_per_chunk: Spread
    """One sample for each request."""

    client_lag_ms: Spread | None = None
    """The client's own time before each request was sent, without the set-up of connections."""

    read_delay_ms: Spread | None = None
    """How long what had arrived waited to be read. Instants of arrival do not contain it."""

    client_bound: str | None = None
    """Where this client was the bottleneck, the sentence that says so: then the cell decides nothing."""

    server_tokens: float | None = None
    """All the server generated in the window: more than `tokens` where others used it too."""

    verified: float | None = None
    """Drafts that the server verified in the window, by vLLM's counter or SGLang's; 0 where it surely
    verified none, null where its metrics do not say."""

    drafts: DraftCountsRecord | None = None
    drafts_missing: str | None = None
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, cell: Cell, objectives: Objectives) -> Self:
        good = [o for o in cell.observations if o.ok]
        tokens = metrics.output_tokens(good)
        wall = cell.wall_s
        met = [o for o in good if metrics.meets(o, objectives)] if objectives else None

        def per_second(count: float | None) -> float | None:
            return round(count / wall, 4) if count is not None and wall > 0 else None

        peak = metrics.peak_throughput(good)
        lags = [metrics.lag(o) - o.connecting for o in cell.observations]
        delays = [delay for o in cell.observations for delay in o.delays]
        return cls(
            concurrency=cell.level.concurrency,
            rate=cell.level.rate,
            burstiness=cell.level.burstiness,
            repeat=cell.repeat,
            complete=cell.complete,
            aborted=cell.aborted,
            wall_s=round(wall, 6),
            tokens=tokens,
            tokens_per_sec=per_second(tokens),
            requests_per_sec=per_second(len(good)),
            goodput_per_sec=per_second(None if met is None else len(met)),
            goodput_tokens_per_sec=per_second(None if met is None else metrics.output_tokens(met)),
            peak_tokens_per_sec=None if peak is None else round(peak, 4),
            chunk_tokens_missing=_chunk_tokens_missing(good),
            client_lag_ms=Spread.of([lag * 1000 for lag in lags]),
            read_delay_ms=Spread.of([delay * 1000 for delay in delays]),
            client_bound=client_bound(cell.observations),
            chunk_gap_ms=Spread.of([gap * 1000 for o in good for gap in metrics.chunk_gaps(o)]),
            amortised_itl_ms=Spread.of([itl * 1000 for o in good for itl in metrics.amortised_itl(o)]),
            tokens_per_chunk=Spread.of([n for o in good if (n := metrics.tokens_per_chunk(o)) is not None]),
            rows=tuple(Row.of(o, cell.started) for o in cell.observations),
        )

    @property
    def failed(self) -> int:
        return sum(row.error is not None and row.error != "interrupted" for row in self.rows)

    @property
    def level(self) -> Level:
        return Level(self.concurrency, self.rate, self.burstiness)


def _chunk_tokens_missing(observations: Sequence[Observation]) -> str | None:
    reasons = [reason for o in observations if (reason := o.answer.chunk_tokens_missing)]
    return f"{len(reasons)} of {len(observations)} answers: {reasons[0]}" if reasons else None


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 4)


def _optional_ms(seconds: float | None) -> float | None:
    return None if seconds is None else _ms(seconds)
