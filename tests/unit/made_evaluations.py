"""Evaluations as the guard's look would make them."""

from __future__ import annotations

from typing import Any

from specops.guard.state import Evaluation, SignalFinding, Threshold

THRESHOLDS = {"acceptance": 0.4, "tpot": 1.2, "errors": 0.05}
VERDICTS = ("healthy", "bad", "degraded", "no_data", "no_traffic", "unknown")


def seen(
    verdict: str,
    signal: str = "acceptance",
    value: float | None = None,
    of: str | None = None,
    observed_at: float | None = None,
    repeated: bool | None = None,
) -> Any:
    finding = SignalFinding.model_validate(
        {
            "signal": signal,
            "traffic_class": of,
            "verdict": verdict,
            "value": value,
            "threshold": Threshold(value=THRESHOLDS[signal], source="the test"),
            "why": f"{signal} was {verdict}",
        }
    )
    return Evaluation(
        ts=0,
        verdict="healthy" if of else finding.verdict,
        reason="r",
        findings=(finding,),
        observed_at=observed_at,
        repeated=repeated,
    )
