"""The playbook's guard, ported with its faults, to be set beside ours in simulations. Nothing else uses it.

Its faults, all of them included: no data is 0.0, and so is bad; NaN compares false, and so is never caught;
one sample of latency is enough, where acceptance takes three; it takes the first series that it is given; it
never comes back, and triggers again at every evaluation; the baseline's p95 is of whatever load it was
measured at."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

ACCEPTANCE = "vllm:spec_decode_draft_acceptance_rate"
P95 = "histogram_quantile(0.95, rate(vllm:e2e_request_latency_seconds_bucket[5m]))"
BASELINE_P95 = "vllm:baseline_e2e_p95_seconds"
"""What it asks, as it asks it. vLLM has had no metric of the first name since 0.10; `monitor render` writes
rules that record the first and the last."""

MIN_ACCEPTANCE = 0.4
REGRESSION_PCT = 20.0
CONSECUTIVE = 3


@dataclass(frozen=True)
class Answers:
    """What its three queries gave at each instant: 0.0 where there was no series, NaN where Prometheus said
    so. Arrays; the last axis is time."""

    acceptance: NDArray[np.float64]
    p95: NDArray[np.float64]
    baseline_p95: NDArray[np.float64]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(found.name for found in fields(cls))


@dataclass
class PlaybookGuard:
    failures: int = 0

    def should_fall_back(self, acceptance: float, p95: float, baseline_p95: float) -> tuple[bool, str]:
        if acceptance < MIN_ACCEPTANCE:
            self.failures += 1
            if self.failures >= CONSECUTIVE:
                return True, f"accept_ratio={acceptance:.2f} < {MIN_ACCEPTANCE}"
        else:
            self.failures = 0
        if baseline_p95 > 0:
            regression = (p95 - baseline_p95) / baseline_p95 * 100
            if regression > REGRESSION_PCT:
                return True, f"latency regression {regression:.1f}% > {REGRESSION_PCT}%"
        return False, "healthy"


def falls(answers: Answers) -> NDArray[np.bool_]:
    """The same for arrays: whether it would fall back, at each instant."""
    low = answers.acceptance < MIN_ACCEPTANCE
    third = low.copy()
    for back in range(1, CONSECUTIVE):
        third[..., back:] &= low[..., :-back]
        third[..., :back] = False
    with np.errstate(divide="ignore", invalid="ignore"):
        slower = (answers.p95 - answers.baseline_p95) / answers.baseline_p95 * 100
    return np.asarray(third | ((answers.baseline_p95 > 0) & (slower > REGRESSION_PCT)))
