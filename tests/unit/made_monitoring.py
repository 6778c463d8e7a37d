"""Rollouts to be watched, and what a run folder would say of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specops.config import Rollout
from specops.config.monitor import AlertName
from specops.phases.monitor.render import texts
from specops.phases.monitor.thresholds import Figure, Measurements, limits
from specops.render.prometheus.alerts import Limit
from specops.render.prometheus.rules import Load

ADDRESSES = {
    "standard": ["127.0.0.1:8000"],
    "speculative": ["127.0.0.1:8001", "127.0.0.1:8002"],
    "routers": ["127.0.0.1:9145", "127.0.0.1:9146"],
    "guard": "127.0.0.1:9469",
    "gpus": ["127.0.0.1:9400"],
    "alertmanagers": ["127.0.0.1:9093"],
}
POOLS: dict[str, Any] = {
    "standard": {"engine": "embedded"},
    "speculative": {"engine": "embedded", "speculation": {"tree": "chain:3"}},
}


def rollout(**changes: Any) -> Rollout:
    made = {"rollout": "made", "pools": POOLS, "addresses": ADDRESSES}
    return Rollout.model_validate(made | changes)


def load(concurrency: int, ttft: float, tpot: float, token: float) -> Load:
    return Load(
        concurrency,
        {("ttft", "mean"): ttft, ("tpot", "mean"): tpot, ("e2e", "p95"): 60 * token},
        token,
    )


NOTHING = Measurements(
    (), None, None, None, branches=False, read={}, missing={"baseline": "there is no baseline.json"}
)
MEASURED = replace(
    NOTHING,
    baseline="baseline.json of 2026-11-21 (sha256 00112233445566)",
    loads=(load(1, 0.05, 0.01, 0.01), load(4, 0.08, 0.016, 0.016), load(8, 0.2, 0.026, 0.026)),
    break_even=Figure(0.4, "sweep.json of 2026-11-21 (sha256 0123456789ab)"),
    acceptance=Figure(0.7, "ab.json of 2026-11-21 (sha256 ba9876543210)"),
    missing={},
)


@dataclass(frozen=True)
class Watched:
    rollout: Rollout
    before: Measurements

    @property
    def limits(self) -> dict[AlertName, Limit]:
        return limits(self.rollout, self.before)

    def texts(self) -> dict[str, str]:
        return texts(self.rollout, self.before, self.limits)


FULL = Watched(rollout(), MEASURED)
