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


@dataclass(frozen=True)
class Paid:
    """Up to which load of a server the comparison deploys speculation, for any class."""

    up_to: int
    """Streams; 0 where it deploys it nowhere."""

    source: str


def compared(folder: Path) -> list[Compared]:
    """The rollout's own challenger, else the best one, by load; empty where there is no finished comparison.
    That it is missing or damaged is said where acceptance is read."""
    found = _challenger(folder)
    if found is None:
        return []
    challenger, source = found
    return [
        Compared(each.speedups.level.concurrency, Figure(each.speedups.e2e.estimate, source))
        for each in challenger.levels
        if each.speedups.e2e is not None and each.speedups.level.concurrency is not None
    ]


def paid(folder: Path) -> Paid | None:
    """None where there is no finished comparison, or it was measured at rates only."""
    found = _challenger(folder)
    if found is None:
        return None
    challenger, source = found
    if all(each.speedups.level.concurrency is None for each in challenger.levels):
        return None
    streams = [one.level.concurrency for one in challenger.deploy if one.level.concurrency is not None]
    return Paid(max(streams, default=0), source)


def _challenger(folder: Path) -> tuple[ab_report.Challenger, str] | None:
    path = folder / "ab.json"
    try:
        result = results.read(path)
        if result.phase != "ab" or result.verdict == "partial":
            return None
        found = ab_report.read(result, str(path))
    except SpecopsError:
        return None
    arm = "speculative" if "speculative" in found.challengers else found.best
    return (found.challengers[arm], f"ab.json of {result.created:%Y-%m-%d}") if arm is not None else None


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
