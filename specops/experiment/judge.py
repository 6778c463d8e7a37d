"""One function tests a claim on times over every factor: claim × factor → Finding. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specops.experiment.factors import FACTORS, NOTABLE, Factor, Parts
from specops.experiment.findings import Finding, Part
from specops.experiment.samples import Sample, ratio_of
from specops.stats import Interval

Holds = Callable[[Interval], bool]


def judge(
    whole: Finding,
    samples: Sequence[Sample],
    figure: str,
    estimate: Callable[[Sequence[Sample]], Finding],
    confidence: float,
) -> Finding:
    """Return `whole`, unless a factor divides the samples into parts of which one does not hold.

    `estimate` makes the same finding from some of the samples. A factor whose second part alone is what
    production has restricts the samples to it; any other leaves open what one of its parts does not show,
    and is the cause where the whole is open: more of the same samples would not settle it. Parts have the
    confidence of a single interval.
    """
    for factor in FACTORS:
        if whole.verdict not in ("shown", "open"):
            return whole
        parts = factor.split(samples, figure)
        if parts is None or not _differs(parts):
            continue
        if factor.restrict:
            if whole.verdict == "shown":
                samples = parts.samples[1]
                whole = _with_parts(estimate(samples), factor, parts, figure, confidence)
            continue
        if any(estimate(part).verdict != "shown" for part in parts.samples):
            return _with_parts(
                whole.model_copy(update={"verdict": "open"}), factor, parts, figure, confidence
            )
    return whole


def _differs(parts: Parts) -> bool:
    change = parts.change
    sure = change is not None and (change.low > 1 or change.high < 1)
    return change is not None and sure and not 1 / NOTABLE < change.estimate < NOTABLE


def _with_parts(finding: Finding, factor: Factor, parts: Parts, figure: str, confidence: float) -> Finding:
    described = [
        Part(name=name, ratio=ratio_of(samples, figure, confidence))
        for name, samples in zip(parts.names, parts.samples, strict=True)
    ]
    return finding.model_copy(update={"cause": factor.name, "parts": described, "needs": None})
