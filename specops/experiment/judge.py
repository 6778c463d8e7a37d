"""A claim on times is tested over every factor by one function: claim × factor → Finding. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specops.experiment.factors import FACTORS, NOTABLE, OF_TRAFFIC, Factor, Parts
from specops.experiment.findings import Finding, Part
from specops.experiment.samples import Sample, ratio_of
from specops.stats import Interval


def judge(
    whole: Finding,
    samples: Sequence[Sample],
    figure: str,
    estimate: Callable[[Sequence[Sample]], Finding],
    confidence: float,
    factors: Sequence[Factor] = FACTORS,
) -> Finding:
    """Return `whole`, unless one of `factors` divides the samples into parts of which one does not hold.

    `estimate` makes the same finding from some of the samples. A factor whose second part alone is what
    production has restricts the samples to it; any other leaves open what one of its parts does not show,
    and is the cause where the whole is open: more of the same samples would not settle it. Parts have the
    confidence of a single interval.
    """
    for factor in factors:
        if whole.verdict not in ("shown", "open") and factor not in OF_TRAFFIC:
            return whole
        parts = factor.split(samples, figure)
        if parts is None or parts.change is None or 1 / NOTABLE < parts.change.estimate < NOTABLE:
            continue
        surely = parts.change.low > 1 or parts.change.high < 1
        if whole.verdict == "against":  # named, too: it says where it pays, and where not
            if surely:
                return _with_parts(whole, factor, parts, figure, confidence)
            continue
        if factor.restrict:
            if surely and whole.verdict == "shown":
                samples = parts.samples[1]
                whole = _with_parts(estimate(samples), factor, parts, figure, confidence)
            continue
        doubtful = whole.model_copy(update={"verdict": "open"})
        if surely and (
            whole.verdict == "open" or any(estimate(part).verdict != "shown" for part in parts.samples)
        ):
            return _with_parts(doubtful, factor, parts, figure, confidence)
        if factor.over_time and whole.verdict == "shown" and not _exceeds_drift(whole.ratio, parts.change):
            # More requests make the change surer, or smaller.
            return doubtful.model_copy(update={"cause": "drift", "needs": len(samples)})
    return whole


def _exceeds_drift(speedup: Interval | None, change: Interval) -> bool:
    """Return whether the gain is larger than an even change of one server would have made it: of a latency
    that grows evenly to R times, the mean is (1 + R) / 2 of what it was at first. Noise that lasts as long as
    the run looks the same, so the change need not be sure."""
    growth = max(change.estimate, 1 / change.estimate)
    return speedup is not None and speedup.low > (1 + growth) / 2


def _with_parts(finding: Finding, factor: Factor, parts: Parts, figure: str, confidence: float) -> Finding:
    described = [
        Part(name=name, ratio=ratio_of(samples, figure, confidence))
        for name, samples in zip(parts.names, parts.samples, strict=True)
    ]
    return finding.model_copy(update={"cause": factor.name, "parts": described, "needs": None})
