"""Challengers of a comparison's report, cell by cell, as a test writes them down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specops.experiment.findings import Decision, Finding
from specops.load.arrivals import Level
from specops.load.record import Spread
from specops.phases.ab.report import (
    Acceptance,
    ArmFigures,
    Challenger,
    ClassFigures,
    ClassLevel,
    DeployTarget,
    EqualCounts,
    LevelComparison,
    ParityCounts,
    Report,
    Speedups,
)
from specops.render.figures import times
from specops.stats import Interval

NOTHING = Spread(n=0)


def interval(estimate: float, low: float, high: float, n: int = 64) -> Interval:
    return Interval(estimate=estimate, low=low, high=high, n=n, level=0.95)


def faster(estimate: float, basis: Any = "e2e") -> Decision:
    shown = interval(estimate, estimate - 0.1, estimate + 0.1)
    return Decision(verdict="yes", reason=times(shown), speedup=shown, basis=basis)


def slower(estimate: float) -> Decision:
    shown = interval(estimate, estimate - 0.05, estimate + 0.05)
    return Decision(verdict="no", reason=f"{times(shown)}: slower", speedup=shown, findings=[wait("against")])


def no_gain(estimate: float, low: float, high: float, more: int | None = 40) -> Decision:
    shown = interval(estimate, low, high)
    reason = f"{times(shown)} includes 1 (about {more} more prompts would decide)"
    return Decision(
        verdict="undecided", reason=reason, speedup=shown, more_prompts=more, findings=[wait("open")]
    )


def wait(verdict: Any) -> Finding:
    return Finding(claim="wait", verdict=verdict)


def because(verdict: Any, reason: str) -> Decision:
    return Decision(verdict=verdict, reason=reason)


def streams(*numbers: int) -> list[Level]:
    return [Level(concurrency=number) for number in numbers]


def challenger(
    levels: Sequence[Level],
    classes: Mapping[str, Sequence[Decision]],
    together: Sequence[Decision],
    decision: Decision | None = None,
    **fields: Any,
) -> Challenger:
    """`classes` and `together` have a decision for each of `levels`. What pays is deployed, unless
    `decision`, the challenger's own, is another than yes."""
    deploy = [
        DeployTarget(traffic_class=name, level=level)
        for name, decisions in classes.items()
        for level, each in zip(levels, decisions, strict=True)
        if each.verdict == "yes"
    ]
    verdict: Any = "yes" if deploy else "undecided"
    if not deploy and classes and all(one[0].verdict == "no" for one in classes.values()):
        verdict = "no"
    own = decision or Decision(verdict=verdict, reason="by its classes", more_prompts=40)
    known: dict[str, Any] = {
        "decision": own,
        "deploy": deploy if own.verdict == "yes" else [],
        "failed": None,
        "pays_up_to": None,
        "load": "",
        "classes": {
            name: ClassFigures(
                decision=decisions[0],
                levels=[
                    ClassLevel(**vars(_speedups(level)), decision=each)
                    for level, each in zip(levels, decisions, strict=True)
                ],
            )
            for name, decisions in classes.items()
        },
        "levels": [
            LevelComparison(
                decision=each,
                speedups=_speedups(level),
                throughput=None,
                lengths=Finding(claim="length", verdict="shown"),
            )
            for level, each in zip(levels, together, strict=True)
        ],
        "parity": [parity(level) for level in levels],
        "prompts": [],
        "findings": [],
    }
    return Challenger(**known | fields)


def _speedups(level: Level) -> Speedups:
    return Speedups(
        level=level, prompts=64, e2e=None, tpot=None, ttft=None, ttft_change_ms=None, stream_throughput=None
    )


def parity(level: Level, equal: int = 64, control: int | None = 64, **fields: Any) -> ParityCounts:
    known: dict[str, Any] = {
        "mixed": False,
        "level": level,
        "equal": equal,
        "compared": 64,
        "control": None if control is None else EqualCounts(equal=control, compared=64),
        "near_ties": 0,
        "witnesses": [],
    }
    return ParityCounts(**known | fields)


def measured(level: Level, rate: float | None = 0.66, missing: str | None = None) -> ArmFigures:
    counts = None
    if rate is not None:
        counts = Acceptance(
            rate=rate,
            length=3.0,
            drafts=100,
            draft_tokens=300,
            accepted_tokens=200,
            per_position=[],
            conditional=[],
            share_of_server_tokens=1.0,
        )
    return ArmFigures(
        level=level,
        requests=128,
        failed=0,
        failures={},
        late=0,
        slowest_ms=[],
        ttft_ms=NOTHING,
        tpot_ms=NOTHING,
        e2e_ms=NOTHING,
        tokens_per_sec=None,
        acceptance=counts,
        acceptance_missing=missing,
    )


def report(name: str, found: Challenger, **fields: Any) -> Report:
    levels = [each.speedups.level for each in found.levels]
    known: dict[str, Any] = {
        "standard": "standard",
        "best": None,
        "expected": {},
        "arms": {name: [measured(level) for level in levels]},
        "challengers": {name: found},
        "differences": [],
    }
    return Report(**known | fields)
