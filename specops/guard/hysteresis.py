"""Healthy enough to go a step up: better than every threshold by a margin, and no class of traffic bad."""

from __future__ import annotations

from collections.abc import Iterator

from specops.guard.evaluation import Evaluation, Finding


def short_of(evaluation: Evaluation, margin: float) -> str | None:
    """The first thing that keeps a healthy evaluation from counting at a step; None where it counts."""
    return next(_shortfalls(evaluation, margin), None)


def _shortfalls(evaluation: Evaluation, margin: float) -> Iterator[str]:
    for finding in evaluation.findings:
        if finding.verdict == "bad":
            yield finding.why
        elif finding.value is not None and finding.threshold is not None and finding.verdict == "healthy":
            threshold = finding.threshold.value
            if finding.signal == "acceptance":
                # Of what is left above it, where that is less: no share is better than 1.
                short = finding.value < threshold + margin * min(threshold, 1 - threshold)
            else:
                short = finding.value > threshold * (1 - margin)
            if short:
                side = "above" if finding.signal == "acceptance" else "below"
                yield f"{_name(finding)} {finding.value:.2f} is not {side} {threshold:.2f} by {margin:.0%}"


def _name(finding: Finding) -> str:
    return f"{finding.signal} of {finding.traffic_class}" if finding.traffic_class else finding.signal
