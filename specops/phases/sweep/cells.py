"""What was measured of a setting at one load, put together for people and programs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specops import stats
from specops.load import summary
from specops.load.record import CellRecord, Row
from specops.phases.ab.speedups import Pairs, Speedups
from specops.phases.ab.verdict import Decision
from specops.phases.sweep.jobs import Load, Setting
from specops.phases.sweep.records import Memory, Stage, SweptCell
from specops.phases.sweep.report import Cell, OfSetting


def cell_of(
    setting: Setting, load: Load, cells: Sequence[SweptCell], pairs: Pairs, confidence: float
) -> Cell:
    """Of all rungs, and both turns of the standard; `pairs` are its own with the standard, at this load."""
    records = [cell.cell for cell in cells]
    rows = [row for record in records for row in record.rows]
    good = [row for row in rows if row.error is None]
    counts, missing = summary.acceptance(records)
    interval = pairs.ratio("e2e", confidence) if setting.k else None
    memories = [cell.memory for cell in cells]
    used = _most(memories, lambda memory: memory.gpu_gib)
    total = _most(memories, lambda memory: memory.gpu_total_gib)
    return Cell(
        setting=setting.name,
        num_speculative_tokens=setting.k,
        tree=setting.tree,
        draft=setting.draft,
        concurrency=load.concurrency,
        temperature=load.temperature,
        length=load.length,
        requests=len(rows),
        failed=len(rows) - len(good),
        accept_ratio=_rounded(counts["rate"]) if counts else None,
        accept_length=_rounded(counts["length"]) if counts else None,
        accept_missing=missing,
        ttft_p50_ms=_median(good, "ttft_ms"),
        tpot_p50_ms=_median(good, "tpot_ms"),
        e2e_p50_ms=_median(good, "e2e_ms"),
        tokens_per_sec=_tokens_per_sec(records),
        e2e_speedup=_rounded(interval.estimate) if interval else None,
        e2e_interval=interval,
        gpu_memory_gb=used,
        gpu_memory_share=_rounded(used / total) if used is not None and total else None,
        resident_gb=_most(memories, lambda memory: memory.resident_gib),
    )


def of_setting(
    setting: Setting,
    streams: int,
    stage: Stage | None,
    cells: Sequence[CellRecord],
    decision: Decision | None,
    found: Speedups | None,
) -> OfSetting:
    """Of all loads of one concurrency together."""
    good = [row for cell in cells for row in cell.rows if row.error is None]
    tpot = _median(good, "tpot_ms")
    return OfSetting(
        setting=setting.name,
        concurrency=streams,
        stage=stage,
        requests=len(good),
        decision=decision,
        speedups=found,
        ttft_p50_ms=_median(good, "ttft_ms"),
        tpot_p50_ms=tpot,
        e2e_p50_ms=_median(good, "e2e_ms"),
        tokens_per_sec=_tokens_per_sec(cells),
        user_tokens_per_sec=round(1000 / tpot, 4) if tpot else None,
    )


def _tokens_per_sec(cells: Sequence[CellRecord]) -> float | None:
    """Of all streams; None where the tokens of no cell are known."""
    known = [(cell.tokens, cell.wall_s) for cell in cells if cell.tokens is not None and cell.wall_s > 0]
    wall = sum(seconds for _, seconds in known)
    return round(sum(tokens for tokens, _ in known) / wall, 4) if wall else None


def _median(rows: Sequence[Row], name: str) -> float | None:
    return _rounded(stats.percentile([v for row in rows if (v := getattr(row, name)) is not None], 0.5))


def _most(memories: Sequence[Memory], read: Callable[[Memory], float | None]) -> float | None:
    known = [value for memory in memories if (value := read(memory)) is not None]
    return _rounded(max(known)) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
