"""A measured cell as results store it, and cells put together: by load, by class, in the playbook's keys."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from specops import stats
from specops.load import request_times
from specops.load.answer import TokensFrom
from specops.load.arrivals import Level
from specops.load.request_drafts import pooled
from specops.load.request_times import Objectives, Observation, Part, behind_schedule, client_bound
from specops.prometheus.exposition import CacheCounts, DraftCounts
from specops.results import milliseconds, rounded

QUANTILES = (0.5, 0.95, 0.99)

NOT_THE_SERVERS = ("interrupted", "overrun")
"""Errors of requests that say nothing about the server: stopped by the run, or never sent."""


def positive(value: float | None) -> float | None:
    """Return `value`, or None: a latency or a token rate of 0 or less counts as unknown."""
    return value if value is not None and 0 < value < math.inf else None


Known = Annotated[float | None, AfterValidator(positive)]
"""A latency or a token rate, or None where it is not known."""


@dataclass(frozen=True)
class Cell:
    level: Level
    repeat: int
    observations: tuple[Observation, ...]
    """All requests that were sent, in the order in which they ended."""

    complete: bool
    """False when it was aborted or interrupted: prompts that were not sent have no observation, and those
    that were in flight have the failure `interrupted`."""

    aborted: str | None = None

    @property
    def started(self) -> float:
        return min((o.first_sent for o in self.counted), default=0.0)

    def after(self, warm_up: Sequence[Observation]) -> Cell:
        """Return the cell with the requests that were sent before it."""
        return replace(self, observations=(*warm_up, *self.observations))

    @property
    def counted(self) -> list[Observation]:
        return [o for o in self.observations if o.part == "counted"]

    @property
    def wall_s(self) -> float:
        """Seconds that the counted requests took: first sent to last ended. Where further requests filled
        all streams, the streams' busy time over their number: then no idle stream counts as load."""
        counted = self.counted
        streams = self.level.concurrency
        if streams is not None and any(o.part == "fill" for o in self.observations):
            return sum(o.ended - o.scheduled for o in counted) / streams
        return max((o.ended for o in counted), default=0.0) - min(
            (o.first_sent for o in counted), default=0.0
        )


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Spread(_Record):
    """Statistics of a set of samples. A quantile that they are too few for is null, its reason beside it."""

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
            **{name: rounded(value) for name, value in quantiles.items()},
        )


class Row(_Record):
    """One request. Durations in milliseconds; `request_times` has their definitions."""

    prompt: str
    traffic_class: str = Field(validation_alias="class", serialization_alias="class")
    part: Part = "counted"
    variant: str = ""
    """Which variant of the prompt was sent: variants differ in the text in front, or in the history."""

    turn: int = 1
    """Place in its conversation, from 1. The prompt of a later turn is the first one's, # and the turn."""

    temperature: float = 0.0
    connection: int = 0
    """Number of the connection that carried it, in the order in which they were opened; 0: none did."""

    due_s: float = 0.0
    """When it should have been sent, since the cell's first request; negative where the client made it
    wait."""

    sent_s: float
    """Since the cell's first request."""

    lag_ms: float
    """The client's own time before the request was sent, set-up of its connection included."""

    connecting_ms: float = 0.0
    """Part of the lag until the connection was there, where there was none to be used again."""

    ttft_ms: Known
    tpot_ms: Known
    e2e_ms: float
    """Milliseconds until the end of the answer; of a failed request until its failure."""

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

    refusal: int = 0
    """Those that came as a refusal."""

    tool_calls: int = 0
    """Those that are names and arguments of tool calls."""

    prompt_tokens: int | None = None
    """Number of prompt tokens by the server's usage; null where it reports none, and of a result of an
    earlier release."""

    cached_tokens: int | None = None
    """Those of them that the server had in its cache; null where its usage does not say."""

    drafted: int | None = None
    """Tokens that were drafted for it; null where its answer does not report that."""

    accepted: int | None = None
    draft_steps: int | None = None
    """Verifications that had a draft."""

    accepted_per_position: tuple[int, ...] | None = None
    """Accepted tokens by position, from 0."""

    error: str | None
    detail: str | None
    missing: dict[str, str] = Field(default_factory=dict)
    """Why a figure is unknown: `tokens`, `tpot_ms`, and `chunk_tokens` for those of each chunk."""

    @property
    def session(self) -> str:
        """The conversation; of a prompt by itself, the prompt."""
        return self.prompt.removesuffix(f"#{self.turn}") if self.turn > 1 else self.prompt

    @classmethod
    def from_observation(cls, observation: Observation, started: float) -> Self:
        answer = observation.answer
        reasons: dict[str, str | None] = {}
        if observation.ok:
            reasons = {
                "tokens": answer.tokens_missing,
                "chunk_tokens": answer.chunk_tokens_missing,
                "tpot_ms": request_times.tpot_missing(observation),
            }
        return cls(
            prompt=observation.prompt,
            traffic_class=observation.traffic_class,
            part=observation.part,
            variant=observation.variant,
            turn=observation.turn,
            temperature=observation.temperature,
            connection=observation.connection,
            due_s=round(observation.scheduled - started, 6),
            sent_s=round(observation.first_sent - started, 6),
            lag_ms=milliseconds(request_times.lag(observation)),
            connecting_ms=milliseconds(observation.connecting),
            ttft_ms=milliseconds(request_times.ttft(observation)),
            tpot_ms=milliseconds(request_times.tpot(observation)),
            e2e_ms=milliseconds(request_times.e2e(observation)),
            e2e_with_retries_ms=milliseconds(request_times.e2e_with_retries(observation)),
            retries=observation.retries,
            resent=observation.resent,
            chunks=len(answer.chunks),
            n_first=answer.chunks[0].tokens if answer.chunks else None,
            tokens=answer.tokens,
            tokens_from=answer.tokens_from,
            finish_reason=answer.finish_reason,
            text=answer.text,
            reasoning=answer.reasoning,
            refusal=answer.refusal,
            tool_calls=answer.tool_calls,
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            drafted=answer.drafts.drafted if answer.drafts else None,
            accepted=answer.drafts.accepted if answer.drafts else None,
            draft_steps=answer.drafts.steps if answer.drafts else None,
            accepted_per_position=answer.drafts.per_position if answer.drafts else None,
            error=answer.failure.kind if answer.failure else None,
            detail=answer.failure.detail if answer.failure else None,
            missing={name: reason for name, reason in reasons.items() if reason},
        )


class CellRecord(_Record):
    concurrency: int | None
    rate: float | None
    burstiness: float
    replay: str = ""
    """The trace or the ramp, in words; empty for other loads."""

    repeat: int
    """Which of the cells at this load it is; of a replay in several windows, each is one."""

    complete: bool
    aborted: str | None
    wall_s: float
    tokens: int | None
    """Number of tokens of the whole answers; null where the endpoint does not say and no tokenizer was
    given."""

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
    """Number of tokens that the server generated in the window: more than `tokens` where others used it
    too."""

    verified: float | None = None
    """Drafts that the server verified in the window, by vLLM's counter or SGLang's; 0 where it surely
    verified none, null where its metrics do not say."""

    drafts: DraftCounts | None = None
    drafts_missing: str | None = None
    cache_counts: CacheCounts | None = None
    """What its prefix cache had, by the server's counters; None where it shows none."""

    rows: tuple[Row, ...]
    """The requests whose times are compared."""

    beside: tuple[Row, ...] = ()
    """All others that were sent for this cell: warm-up, and what filled the streams."""

    @classmethod
    def from_cell(cls, cell: Cell, objectives: Objectives) -> Self:
        counted = cell.counted
        good = [o for o in counted if o.ok]
        tokens = request_times.output_tokens(good)
        wall = cell.wall_s
        met = [o for o in good if request_times.meets(o, objectives)] if objectives else None

        def per_second(count: float | None) -> float | None:
            return round(count / wall, 4) if count is not None and wall > 0 else None

        peak = request_times.peak_throughput(good)
        lags = [request_times.lag(o) - o.connecting for o in counted]
        delays = [delay for o in counted for delay in o.delays]
        return cls(
            concurrency=cell.level.concurrency,
            rate=cell.level.rate,
            burstiness=cell.level.burstiness,
            replay=cell.level.replay,
            repeat=cell.repeat,
            complete=cell.complete,
            aborted=cell.aborted,
            wall_s=round(wall, 6),
            tokens=tokens,
            tokens_per_sec=per_second(tokens),
            requests_per_sec=per_second(len(good)),
            goodput_per_sec=per_second(None if met is None else len(met)),
            goodput_tokens_per_sec=per_second(None if met is None else request_times.output_tokens(met)),
            peak_tokens_per_sec=rounded(peak),
            chunk_tokens_missing=_chunk_tokens_missing(good),
            client_lag_ms=Spread.of([lag * 1000 for lag in lags]),
            read_delay_ms=Spread.of([delay * 1000 for delay in delays]),
            client_bound=(behind_schedule(counted) if cell.level.replay else None) or client_bound(counted),
            chunk_gap_ms=Spread.of([gap * 1000 for o in good for gap in request_times.chunk_gaps(o)]),
            amortised_itl_ms=Spread.of([itl * 1000 for o in good for itl in request_times.amortised_itl(o)]),
            tokens_per_chunk=Spread.of(
                [n for o in good if (n := request_times.tokens_per_chunk(o)) is not None]
            ),
            rows=tuple(Row.from_observation(o, cell.started) for o in counted),
            beside=tuple(
                Row.from_observation(o, cell.started) for o in cell.observations if o.part != "counted"
            ),
        )

    @property
    def failed(self) -> int:
        return sum(row.error is not None and row.error != "interrupted" for row in self.sent)

    @property
    def sent(self) -> tuple[Row, ...]:
        """Every request that was sent for this cell."""
        return (*self.rows, *self.beside)

    @property
    def level(self) -> Level:
        return Level(self.concurrency, self.rate, self.burstiness, self.replay)


def _chunk_tokens_missing(observations: Sequence[Observation]) -> str | None:
    reasons = [reason for o in observations if (reason := o.answer.chunk_tokens_missing)]
    return f"{len(reasons)} of {len(observations)} answers: {reasons[0]}" if reasons else None


LATENCIES = ("ttft_ms", "tpot_ms", "e2e_ms")

SLOW = 10
"""A request that takes this many times the median of its like is called slow."""


@dataclass(frozen=True)
class SlowTail:
    """The number of requests that took over `times` the median, and the slowest of them."""

    slow: int
    requests: int
    times: float = SLOW
    slowest_ms: float | None = None

    @property
    def sentence(self) -> str | None:
        """Return the tail as a sentence; None where no request was slow."""
        if not self.slow or self.slowest_ms is None:
            return None
        return (
            f"{self.slow} of {self.requests} requests took over {self.times:g} times the median "
            f"(the slowest {self.slowest_ms / 1000:.1f} s)"
        )


def slow_tail(rows: Iterable[Row]) -> SlowTail:
    """Return the slow tail of requests at one level: each is compared with the median of its traffic class,
    by E2E latency.

    A request that failed counts with the time until its failure, which it took at least.
    """
    by_class: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.error not in NOT_THE_SERVERS:
            by_class[row.traffic_class].append(row.e2e_ms)
    slow = [
        value for values in by_class.values() for value in values if value > SLOW * statistics.median(values)
    ]
    return SlowTail(len(slow), sum(map(len, by_class.values())), SLOW, max(slow, default=None))


def playbook_summary(cells: Sequence[CellRecord]) -> dict[str, Any]:
    """The playbook's keys, at the first level, repeats pooled; `reasons` explains what is null."""
    level = cells[0].level
    level_cells = [cell for cell in cells if cell.level == level]
    rows = [row for cell in level_cells for row in cell.rows if row.error is None]
    summary: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for latency in LATENCIES:
        spread = _spread(rows, latency)
        for quantile in ("p50", "p95", "p99"):
            key = latency.replace("_ms", f"_{quantile}_ms")
            summary[key] = getattr(spread, quantile)
            if quantile in spread.missing:
                unknown = None if spread.n else _why_unknown(rows, latency)
                reasons[key] = unknown or spread.missing[quantile]
    summary["total_tokens"] = _total([row.tokens for row in rows])
    rates = [cell.tokens_per_sec for cell in level_cells if cell.complete]
    measured = [rate for rate in rates if rate is not None]
    summary["avg_tokens_per_sec"] = round(sum(measured) / len(measured), 4) if measured else None
    if summary["total_tokens"] is None:
        reasons["total_tokens"] = reasons["avg_tokens_per_sec"] = (
            f"{_why_unknown(rows, 'tokens')}; give its tokenizer.json to have its answers counted"
        )
    elif not measured:
        reasons["avg_tokens_per_sec"] = "no repeat was measured to its end"
    if chunks := _why_unknown(rows, "chunk_tokens"):
        reasons["peak_tokens_per_sec"] = chunks
    summary["slow_tail"] = asdict(slow_tail(row for cell in level_cells for row in cell.sent))
    summary["concurrency"] = level.concurrency
    summary["rate"] = level.rate
    summary["reasons"] = reasons
    return summary


def _why_unknown(rows: Sequence[Row], figure: str) -> str | None:
    """The usual reason for which `rows` have no such figure; None where they have it."""
    reasons = Counter(reason for row in rows if (reason := row.missing.get(figure)))
    if not reasons:
        return None
    (reason, count), *_ = reasons.most_common(1)
    return reason if count == len(rows) else f"{reason} ({count} of {len(rows)} answers)"


def by_level(cells: Sequence[CellRecord]) -> list[LevelFigures]:
    """Return for each level the latencies over all its requests, and every figure's interval over its
    repeats."""
    figures = []
    for level in _levels(cells):
        level_cells = [cell for cell in cells if cell.level == level]
        whole = [cell for cell in level_cells if cell.complete]
        counts, missing = acceptance(level_cells)
        figures.append(
            LevelFigures(
                **_latencies(level, [row for cell in level_cells for row in cell.rows]),
                repeats=len(whole),
                over_repeats={name: _over_repeats(whole, read) for name, read in _PER_REPEAT.items()},
                acceptance=counts,
                acceptance_missing=missing,
            )
        )
    return figures


def by_class(cells: Sequence[CellRecord]) -> dict[str, list[Latencies]]:
    """Return for each traffic class what `by_level` says of latencies, at each level."""
    rows = [(cell.level, row) for cell in cells for row in cell.rows]
    return {
        name: [
            Latencies(
                **_latencies(
                    level,
                    [row for row_level, row in rows if row_level == level and row.traffic_class == name],
                )
            )
            for level in _levels(cells)
        ]
        for name in sorted({row.traffic_class for _, row in rows})
    }


def errors(cells: Sequence[CellRecord]) -> Errors:
    """Failures by kind with one example each, and what was retried, over all requests that were sent.

    A request that was in flight when the run was stopped is `interrupted`, and not among the failed.
    """
    rows = [row for cell in cells for row in cell.sent]
    interrupted = sum(row.error == "interrupted" for row in rows)
    failed = [row for row in rows if row.error is not None and row.error != "interrupted"]
    examples: dict[str, str | None] = {}
    for row in failed:
        examples.setdefault(str(row.error), row.detail)
    return Errors(
        requests=len(rows),
        failed=len(failed),
        interrupted=interrupted,
        by_kind=dict(Counter(str(row.error) for row in failed).most_common()),
        examples=examples,
        retried_requests=sum(row.retries > 0 for row in rows),
        retries=sum(row.retries for row in rows),
        resent_requests=sum(row.resent for row in rows),
    )


def acceptance(cells: Sequence[CellRecord]) -> tuple[Acceptance | None, str | None]:
    """Return what the server's counters say of its drafts over these cells' windows, else what its answers
    report of them; or None and why."""
    records = [cell.drafts for cell in cells if cell.drafts is not None]
    reported = pooled(row for cell in cells for row in cell.rows if row.error is None)
    counted = sum(records[1:], records[0]) if records else None
    if counted is not None and not counted.estimated:
        total = counted
    elif reported is not None and not reported.silent and reported.drafted:
        total = DraftCounts(reported.steps or 0.0, reported.drafted, reported.accepted, reported.per_position)
    elif counted is not None:
        total = counted
    else:
        missing = next((cell.drafts_missing for cell in cells if cell.drafts_missing), "nothing was measured")
        if reported is not None and reported.silent:
            missing += (
                f"; {reported.silent} of {reported.requests + reported.silent} answers report no drafts"
            )
        return None, missing
    mine = sum(cell.tokens or 0 for cell in cells if cell.server_tokens)
    servers = sum(cell.server_tokens or 0 for cell in cells)
    counts = Acceptance(
        **asdict(total) | {"drafts": total.drafts or None},  # llama.cpp's answers do not say how many
        length=total.length,
        rate=total.rate,
        per_position=total.per_position,
        conditional=total.conditional,
        share_of_server_tokens=round(mine / servers, 4) if servers else None,
    )
    return counts, None


def _latencies(level: Level, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the fields of `Latencies`."""
    good = [row for row in rows if row.error is None]
    tokens = _total([row.tokens for row in good])
    chunks = sum(row.chunks for row in good)
    return {
        "concurrency": level.concurrency,
        "rate": level.rate,
        "replay": level.replay,
        "requests": len(rows),
        "failed": len(rows) - len(good),
        "total_tokens": tokens,
        "tokens_per_chunk": round(tokens / chunks, 4) if tokens is not None and chunks else None,
        "slow_tail": slow_tail(rows),
        "lag_ms": _spread(good, "lag_ms"),
    } | {latency: _spread(good, latency) for latency in (*LATENCIES, "e2e_with_retries_ms")}


def _latency(name: str, quantile: str) -> Callable[[CellRecord], float | None]:
    def read(cell: CellRecord) -> float | None:
        value: float | None = getattr(_spread([r for r in cell.rows if r.error is None], name), quantile)
        return value

    return read


_PER_REPEAT: dict[str, Callable[[CellRecord], float | None]] = {
    **{
        latency.replace("_ms", f"_{quantile}_ms"): _latency(latency, quantile)
        for latency in LATENCIES
        for quantile in ("mean", "p50", "p95", "p99")
    },
    "chunk_gap_p50_ms": lambda cell: cell.chunk_gap_ms.p50,
    "chunk_gap_p99_ms": lambda cell: cell.chunk_gap_ms.p99,
    "amortised_itl_p50_ms": lambda cell: cell.amortised_itl_ms.p50,
    "amortised_itl_p99_ms": lambda cell: cell.amortised_itl_ms.p99,
    "tokens_per_chunk": lambda cell: cell.tokens_per_chunk.mean,
    "tokens_per_sec": lambda cell: cell.tokens_per_sec,
    "requests_per_sec": lambda cell: cell.requests_per_sec,
    "goodput_per_sec": lambda cell: cell.goodput_per_sec,
    "goodput_tokens_per_sec": lambda cell: cell.goodput_tokens_per_sec,
    "peak_tokens_per_sec": lambda cell: cell.peak_tokens_per_sec,
}


def _over_repeats(
    cells: Sequence[CellRecord], read: Callable[[CellRecord], float | None]
) -> RepeatMean | None:
    """Mean and 95% interval of a figure over the repeats that have it; null where none has."""
    values = [value for value in map(read, cells) if value is not None]
    if not values:
        return None
    interval = stats.mean_interval(values)
    if interval is None:
        return RepeatMean(estimate=values[0], n=1, missing="needs two repeats")
    ends = {name: round(getattr(interval, name), 4) for name in ("estimate", "low", "high")}
    return RepeatMean(**ends, n=interval.n)


def _spread(rows: Sequence[Row], name: str) -> Spread:
    return Spread.of([value for row in rows if (value := getattr(row, name)) is not None])


def _levels(cells: Sequence[CellRecord]) -> list[Level]:
    return list(dict.fromkeys(cell.level for cell in cells))


def _total(counts: Sequence[int | None]) -> int | None:
    counted = [count for count in counts if count is not None]
    return sum(counted) if len(counted) == len(counts) else None


if TYPE_CHECKING:
    PerRepeat = str
else:
    PerRepeat = Literal[tuple(_PER_REPEAT)]


class RepeatMean(_Record):
    """The mean of a figure over the repeats, with its 95% interval; of one repeat without."""

    estimate: float
    low: float | None = None
    high: float | None = None
    n: int
    missing: str | None = None


class Acceptance(_Record):
    """Acceptance by the server's counters, or, where it shows none, by its answers."""

    drafts: float | None
    draft_tokens: float
    accepted_tokens: float
    accepted_per_position: list[float] = []
    estimated: bool = False
    length: float | None
    rate: float | None
    per_position: list[float | None]
    conditional: list[float | None]
    share_of_server_tokens: float | None
    """Less than 1 where others used the server too."""


class Latencies(_Record):
    """Requests at one level of load: of one class, or of all."""

    concurrency: int | None
    rate: float | None
    replay: str = ""
    requests: int
    failed: int
    total_tokens: int | None
    tokens_per_chunk: float | None
    slow_tail: SlowTail | None = None
    """None in results of earlier versions."""

    lag_ms: Spread
    ttft_ms: Spread
    tpot_ms: Spread
    e2e_ms: Spread
    e2e_with_retries_ms: Spread


class LevelFigures(Latencies):
    """All requests at one level of load, with what differs between repeats."""

    repeats: int
    over_repeats: dict[PerRepeat, RepeatMean | None]
    acceptance: Acceptance | None
    acceptance_missing: str | None


class Errors(_Record):
    """Failed requests by kind, with an example of each; and what was sent again."""

    requests: int
    failed: int
    interrupted: int
    by_kind: dict[str, int]
    examples: dict[str, str | None]
    retried_requests: int
    retries: int
    resent_requests: int


class PlaybookSummary(TypedDict):
    """The playbook's keys, at the first level; `reasons` says why a figure is null."""

    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    ttft_p99_ms: float | None
    tpot_p50_ms: float | None
    tpot_p95_ms: float | None
    tpot_p99_ms: float | None
    e2e_p50_ms: float | None
    e2e_p95_ms: float | None
    e2e_p99_ms: float | None
    total_tokens: int | None
    avg_tokens_per_sec: float | None
    slow_tail: SlowTail
    concurrency: int | None
    rate: float | None
    reasons: dict[str, str]
