"""A real server's answers against its counters: what requests report of their drafts, and what both sum up
to."""

from __future__ import annotations

from pathlib import Path

from specops.load.record import CellRecord
from specops.load.request_drafts import PooledDrafts, pooled
from specops.load.settings import BaselineSettings
from specops.phases.baseline import measure
from specops.progress import SilentProgress
from specops.prometheus.exposition import DraftCounts

CLOSE = 0.001
"""Relative difference between counters and pooled answers that the docs promise."""


def counted_and_reported(
    base_url: str, model: str, prompts: Path, temperature: float = 0.0
) -> list[tuple[DraftCounts, PooledDrafts]]:
    """Of each cell of a baseline: its counters, and its answers."""
    asked = BaselineSettings(
        base_url=base_url,
        model=model,
        prompts=prompts,
        warmup=0,
        repeats=1,
        concurrency=[1, 4],
        temperature=temperature,
        endpoint="completions",
        same_prompts=True,  # and nothing beside them, so that the counters count these answers alone
    )
    cells = [CellRecord.model_validate(cell) for cell in measure(asked, SilentProgress()).data["cells"]]
    pairs = [(cell.drafts, pooled(cell.rows)) for cell in cells]
    assert all(drafts is not None and answers is not None for drafts, answers in pairs)
    return [(drafts, answers) for drafts, answers in pairs if drafts is not None and answers is not None]
