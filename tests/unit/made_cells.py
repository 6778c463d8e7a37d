"""Rows and cells as a measurement stores them, with figures that a test chooses."""

from __future__ import annotations

from typing import Any

from specops.load.arrivals import Level
from specops.load.record import CellRecord, Row, Spread

NOTHING = Spread(n=0)


def row(prompt: str, traffic_class: str, e2e: float, sent_s: float = 0.0, **fields: Any) -> Row:
    known: dict[str, Any] = {
        "prompt": prompt,
        "class": traffic_class,
        "due_s": sent_s,
        "sent_s": sent_s,
        "lag_ms": 0.0,
        "ttft_ms": 20.0,
        "tpot_ms": e2e / 10,
        "e2e_ms": e2e,
        "e2e_with_retries_ms": e2e,
        "retries": 0,
        "chunks": 5,
        "n_first": 1,
        "tokens": 10,
        "tokens_from": "usage",
        "prompt_tokens": 30,
        "finish_reason": "length",
        "text": f"answer to {prompt}",
        "error": None,
        "detail": None,
    }
    return Row(**known | fields)


def cell(rows: list[Row], level: Level, round_: int, **fields: Any) -> CellRecord:
    wall = sum(row.e2e_ms for row in rows) / 1000 / (level.concurrency or 1)
    tokens = sum(row.tokens or 0 for row in rows)
    known: dict[str, Any] = {
        "concurrency": level.concurrency,
        "rate": level.rate,
        "burstiness": level.burstiness,
        "repeat": round_,
        "complete": True,
        "aborted": None,
        "wall_s": wall,
        "tokens": tokens,
        "tokens_per_sec": tokens / wall,
        "requests_per_sec": len(rows) / wall,
        "goodput_per_sec": None,
        "goodput_tokens_per_sec": None,
        "peak_tokens_per_sec": None,
        "chunk_gap_ms": NOTHING,
        "amortised_itl_ms": NOTHING,
        "tokens_per_chunk": NOTHING,
        "drafts_missing": "the server exposes no counters",
        "rows": tuple(rows),
    }
    return CellRecord(**known | fields)
