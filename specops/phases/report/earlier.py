"""What the comparison and the sweep had measured, as far as a report is held against it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from specops import results
from specops.economics import StepCost
from specops.errors import SpecopsError
from specops.phases.ab import report as ab_report
from specops.phases.monitor.before import Figure


@dataclass(frozen=True)
class Compared:
    """The speed-up end to end that was measured at one load."""

    concurrency: int
    speedup: Figure


def compared(folder: Path) -> list[Compared]:
    """Of the rollout's own challenger, else of the one that won, by load; none where there is no finished
    comparison. That it is missing or damaged is said where acceptance is read."""
    path = folder / "ab.json"
    try:
        result = results.read(path)
        if result.phase != "ab" or result.verdict == "partial":
            return []
        found = ab_report.read(result, str(path))
    except SpecopsError:
        return []
    arm = "speculative" if "speculative" in found.challengers else found.best
    if arm is None:
        return []
    source = f"ab.json of {result.created:%Y-%m-%d}"
    return [
        Compared(each.speedups.level.concurrency, Figure(each.speedups.e2e.estimate, source))
        for each in found.challengers[arm].levels
        if each.speedups.e2e is not None and each.speedups.level.concurrency is not None
    ]


class _Cost(BaseModel):
    target_ms: float
    draft_ms: float


class _Recommended(BaseModel):
    cost: _Cost


def step_cost(folder: Path) -> StepCost | None:
    """That the sweep measured; None where there is no sweep, or it could not fit one."""
    try:
        result = results.read(folder / "sweep.json")
        found = _Recommended.model_validate(result.recommendation).cost
    except (SpecopsError, ValidationError):
        return None
    return StepCost(found.target_ms, found.draft_ms, None, ())
