"""Measured cells put together: by level of load, by traffic class, and in the playbook's own keys. Pure."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specops import stats
from specops.load.arrivals import Level
from specops.load.record import NOT_THE_SERVERS, CellRecord, DraftCountsRecord, Row, Spread
from specops.prometheus.exposition import DraftCounts

LATENCIES = ("ttft_ms", "tpot_ms", "e2e_ms")

SLOW = 10
"""A request that takes this many times the median of its like is called slow."""


@dataclass(frozen=True)
class SlowTail:
    """How many of a number of requests took over `times` the median, and the slowest of them."""

    slow: int
    requests: int
    times: float = SLOW
    slowest_ms: float | None = None

    @property
    def sentence(self) -> str | None:
        """None where no request was slow."""
        if not self.slow or self.slowest_ms is None:
            return None
        return (
            f"{self.slow} of {self.requests} requests took over {self.times:g} times the median "
            f"(the slowest {self.slowest_ms / 1000:.1f} s)"
        )


def slow_tail(rows: Iterable[Row]) -> SlowTail:
    """Of requests at one level: each is compared with the median of its traffic class, by E2E latency.

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
    ours = [cell for cell in cells if cell.level == level]
    rows = [row for cell in ours for row in cell.rows if row.error is None]
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
    rates = [cell.tokens_per_sec for cell in ours if cell.complete]
    known = [rate for rate in rates if rate is not None]
    summary["avg_tokens_per_sec"] = round(sum(known) / len(known), 4) if known else None
    if summary["total_tokens"] is None:
        reasons["total_tokens"] = reasons["avg_tokens_per_sec"] = (
            f"{_why_unknown(rows, 'tokens')}; give its tokenizer.json to have its answers counted"
        )
    elif not known:
        reasons["avg_tokens_per_sec"] = "no repeat was measured to its end"
    if chunks := _why_unknown(rows, "chunk_tokens"):
        reasons["peak_tokens_per_sec"] = chunks
    summary["slow_tail"] = asdict(slow_tail(row for cell in ours for row in cell.rows))
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


def by_level(cells: Sequence[CellRecord]) -> list[dict[str, Any]]:
    """For each level: latencies over all its requests, and every figure's interval over its repeats."""
    found = []
    for level in _levels(cells):
        ours = [cell for cell in cells if cell.level == level]
        whole = [cell for cell in ours if cell.complete]
        counts, missing = acceptance(ours)
        found.append(
            _head(level, [row for cell in ours for row in cell.rows])
            | {
                "repeats": len(whole),
                "over_repeats": {name: _over_repeats(whole, read) for name, read in _PER_REPEAT.items()},
                "acceptance": counts,
                "acceptance_missing": missing,
            }
        )
    return found


def by_class(cells: Sequence[CellRecord]) -> dict[str, list[dict[str, Any]]]:
    """For each traffic class, what `by_level` says of latencies, at each level."""
    classes = sorted({row.traffic_class for cell in cells for row in cell.rows})
    return {
        name: [
            _head(
                level,
                [r for cell in cells if cell.level == level for r in cell.rows if r.traffic_class == name],
            )
            for level in _levels(cells)
        ]
        for name in classes
    }


def errors(cells: Sequence[CellRecord]) -> dict[str, Any]:
    """Failures by kind with one example each, and what was retried.

    A request that was in flight when the run was stopped is `interrupted`, and not among the failed.
    """
    rows = [row for cell in cells for row in cell.rows]
    interrupted = sum(row.error == "interrupted" for row in rows)
    failed = [row for row in rows if row.error is not None and row.error != "interrupted"]
    examples: dict[str, str | None] = {}
    for row in failed:
        examples.setdefault(str(row.error), row.detail)
    return {
        "requests": len(rows),
        "failed": len(failed),
        "interrupted": interrupted,
        "by_kind": dict(Counter(str(row.error) for row in failed).most_common()),
        "examples": examples,
        "retried_requests": sum(row.retries > 0 for row in rows),
        "retries": sum(row.retries for row in rows),
        "resent_requests": sum(row.resent for row in rows),
    }


def acceptance(cells: Sequence[CellRecord]) -> tuple[dict[str, Any] | None, str | None]:
    """What the server's counters say of its drafts over these cells' windows, or None and why."""
    records = [cell.drafts for cell in cells if cell.drafts is not None]
    if not records:
        return None, next((c.drafts_missing for c in cells if c.drafts_missing), "nothing was measured")
    total = sum((_counts(record) for record in records[1:]), _counts(records[0]))
    mine = sum(cell.tokens or 0 for cell in cells if cell.server_tokens)
    servers = sum(cell.server_tokens or 0 for cell in cells)
    return (
        asdict(total)
        | {
            "length": total.length,
            "rate": total.rate,
            "per_position": total.per_position,
            "conditional": total.conditional,
            "share_of_server_tokens": round(mine / servers, 4) if servers else None,
        },
        None,
    )


def _head(level: Level, rows: Sequence[Row]) -> dict[str, Any]:
    good = [row for row in rows if row.error is None]
    tokens = _total([row.tokens for row in good])
    chunks = sum(row.chunks for row in good)
    return {
        "concurrency": level.concurrency,
        "rate": level.rate,
        "requests": len(rows),
        "failed": len(rows) - len(good),
        "total_tokens": tokens,
        "tokens_per_chunk": round(tokens / chunks, 4) if tokens is not None and chunks else None,
        "slow_tail": asdict(slow_tail(rows)),
        "lag_ms": _spread(good, "lag_ms").model_dump(),
    } | {latency: _spread(good, latency).model_dump() for latency in (*LATENCIES, "e2e_with_retries_ms")}


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
) -> dict[str, Any] | None:
    """Mean and 95% interval of a figure over the repeats that have it; null where none has."""
    values = [value for value in map(read, cells) if value is not None]
    if not values:
        return None
    interval = stats.mean_interval(values)
    if interval is None:
        return {"estimate": values[0], "low": None, "high": None, "n": 1, "missing": "needs two repeats"}
    ends = {name: round(getattr(interval, name), 4) for name in ("estimate", "low", "high")}
    return {**ends, "n": interval.n}


def _spread(rows: Sequence[Row], name: str) -> Spread:
    return Spread.of([value for row in rows if (value := getattr(row, name)) is not None])


def _levels(cells: Sequence[CellRecord]) -> list[Level]:
    return list(dict.fromkeys(cell.level for cell in cells))


def _counts(record: DraftCountsRecord) -> DraftCounts:
    return DraftCounts(**record.model_dump())


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
