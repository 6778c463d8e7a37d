"""What earlier phases measured, as far as the run folder has it: what rules and thresholds are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from specops import results
from specops.config import Pool, Rollout
from specops.errors import FileError, SpecopsError
from specops.guard.signals.criteria import break_even
from specops.load.record import Spread
from specops.phases.ab import report as ab_report
from specops.phases.measurement import checked
from specops.phases.sweep import report as sweep_report
from specops.prometheus.promql import LATENCIES, Latency
from specops.render.prometheus.baseline import Load, Stat
from specops.results import Result
from specops.trees import parse_tree

STATS: tuple[Stat, ...] = ("mean", "p50", "p95")
AGAIN: Mapping[str, str] = {
    "baseline": "specops run ROLLOUT --only baseline",
    "ab": "specops run ROLLOUT",
    "sweep": "specops sweep ROLLOUT",
}


NONE: Mapping[str, str] = {}


@dataclass(frozen=True)
class Figure:
    value: float
    source: str


@dataclass(frozen=True)
class Before:
    loads: tuple[Load, ...]
    """Of the baseline, by concurrency."""

    baseline: str | None
    """Where the loads come from."""

    break_even: Figure | None
    """Accepted over drafted tokens below which a token takes longer than without speculation."""

    acceptance: Figure | None
    """What the speculative pool's drafts had before it went live."""

    branches: bool
    """Its drafts are trees that branch: most of what is drafted cannot be accepted, and it may pay well."""

    read: Mapping[str, str]
    """SHA-256 of each result that was read, by phase."""

    missing: Mapping[str, str]
    """By phase: why there is nothing of it, and how to get it."""


@dataclass(frozen=True)
class _Read:
    result: Result
    path: Path
    sha256: str

    @property
    def source(self) -> str:
        return f"{self.path.name} of {self.result.created:%Y-%m-%d} (sha256 {self.sha256[:12]})"


Made = TypeVar("Made")


def before(rollout: Rollout, folder: Path, unfit: Mapping[str, str] = NONE) -> Before:
    """What the run folder has. `unfit`: by phase, why a result is not a yardstick. Such a one, or one that is
    damaged, is told like one that is not there: the rest can be rendered without it."""
    read: dict[str, str] = {}
    missing: dict[str, str] = {}

    def made(phase: str, make: Callable[[_Read], Made]) -> Made | None:
        try:
            found = _finished(folder / f"{phase}.json", phase)
            if phase in unfit:
                raise FileError(f"{found.path.name} does not count: {unfit[phase]}")
            value = make(found)
        except SpecopsError as error:
            missing[phase] = f"{error.message}: {AGAIN[phase]}"
            return None
        read[phase] = found.sha256
        return value

    pool = rollout.pools.speculative
    loads, source = made("baseline", lambda baseline: (_loads(baseline), baseline.source)) or ((), None)
    compared, swept = made("ab", _compared), made("sweep", _swept)
    paying = made("sweep", lambda sweep: _break_even(sweep, pool))
    return Before(loads, source, paying, compared or swept, _branches(pool), read, missing)


def _finished(path: Path, phase: str) -> _Read:
    if not path.exists():
        raise FileError(f"there is no {path.name}")
    result = results.read(path)
    if result.phase != phase:
        raise FileError(f"{path.name} is a result of {result.phase}")
    if result.verdict == "partial" or (phase == "baseline" and result.verdict != "yes"):
        raise FileError(f"{path.name} does not count: {result.reason}")
    return _Read(result, path, results.sha256(path))


class _Level(BaseModel):
    concurrency: int | None
    requests: int
    failed: int
    total_tokens: int | None
    ttft_ms: Spread
    tpot_ms: Spread
    e2e_ms: Spread


class _Levels(BaseModel):
    by_concurrency: list[_Level]


def _loads(read: _Read) -> tuple[Load, ...]:
    levels = checked(_Levels, read.result.data, f"{read.path} is damaged: data").by_concurrency
    loads = [_load(level, level.concurrency) for level in levels if level.concurrency is not None]
    return tuple(sorted(loads, key=lambda load: load.concurrency))


def _load(level: _Level, concurrency: int) -> Load:
    seconds: dict[tuple[Latency, Stat], float] = {}
    for latency in LATENCIES:
        for stat in STATS:
            ms = getattr(getattr(level, f"{latency}_ms"), stat)
            if ms:
                seconds[latency, stat] = ms / 1000
    return Load(concurrency, seconds, _token_s(level))


def _token_s(level: _Level) -> float | None:
    """Of a token after the first: with it, TTFT and the tokens of an answer give the mean E2E back."""
    answered = level.requests - level.failed
    if level.total_tokens is None or level.total_tokens <= answered:
        return None
    if level.e2e_ms.mean is None or level.ttft_ms.mean is None:
        return None
    later = level.total_tokens / answered - 1
    return max(0.0, level.e2e_ms.mean - level.ttft_ms.mean) / 1000 / later


def _compared(read: _Read) -> Figure | None:
    """Over all loads of the challenger that is the rollout's, else of the one that won."""
    report = ab_report.read(read.result, str(read.path))
    arm = "speculative" if "speculative" in report.arms else report.best
    counted = [m.acceptance for m in report.arms.get(arm or "", []) if m.acceptance is not None]
    drafted = sum(acceptance.draft_tokens for acceptance in counted)
    if not drafted:
        return None
    return Figure(sum(acceptance.accepted_tokens for acceptance in counted) / drafted, read.source)


def _swept(read: _Read) -> Figure | None:
    """Of the recommended setting, at the load that decided."""
    report = sweep_report.read(read.result, str(read.path))
    rates = [
        cell.accept_ratio
        for cell in report.cells
        if cell.setting == report.recommended
        and cell.concurrency == report.decided_at
        and cell.accept_ratio is not None
    ]
    return Figure(sum(rates) / len(rates), read.source) if rates else None


def _break_even(read: _Read, pool: Pool) -> Figure | None:
    share = break_even(pool, read.result)
    return None if share is None else Figure(share, read.source)


def _branches(pool: Pool) -> bool:
    return pool.own is not None and pool.own.tree is not None and parse_tree(pool.own.tree).branches
