"""What a run measured, as its page shows it: both pools by load, and their speed-ups."""

from __future__ import annotations

from collections.abc import Iterator

from specops.cli.ab_page import accepted, measured, parity
from specops.cli.figures import NONE, aligned, count, milliseconds, times
from specops.config import EndpointPool, Rollout
from specops.phases import Phase
from specops.phases.ab.report import Report, read
from specops.phases.playbook import Walk
from specops.results import Result

CHALLENGER = "speculative"
ASKED: dict[Phase, tuple[str, ...]] = {
    "baseline": ("standard",),
    "ab": ("standard", "speculative"),
    "canary": ("standard", "speculative"),
}
"""The pools whose figures a phase measures."""


def figures(walk: Walk) -> list[str]:
    """Of the comparison where there is one: its speed-ups are made of both pools asked in turn."""
    compared, baseline = walk.step("ab"), walk.step("baseline")
    if compared is not None:
        return _compared(read(compared.result, str(compared.path)))
    return aligned(list(_baseline(baseline.result))) if baseline is not None else []


def _baseline(result: Result) -> Iterator[list[str]]:
    for level in result.data["by_concurrency"]:
        rate = level["over_repeats"]["tokens_per_sec"]
        yield [
            "  measured",
            "standard",
            count(level["concurrency"], "stream"),
            f"TTFT {milliseconds(level['ttft_ms']['p50'])}",
            f"TPOT {milliseconds(level['tpot_ms']['p50'])}",
            f"p95 {milliseconds(level['tpot_ms']['p95'])}",
            f"E2E {milliseconds(level['e2e_ms']['p50'])}",
            f"{rate['estimate']:.0f} tok/s" if rate else NONE,
            f"{level['failed']} of {level['requests']} failed" if level["failed"] else "",
        ]


def _compared(report: Report) -> list[str]:
    challenger = report.challengers[CHALLENGER]
    speedups = [f"{name}  {times(found.levels[0].e2e)}" for name, found in challenger.classes.items()]
    return [
        *aligned([row for arm, levels in report.arms.items() for row in measured(arm, levels)]),
        f"  compared  {'   '.join(speedups)}",
        f"  parity    {parity(report, challenger)}",
        *(f"  accepted  {line}" for line in accepted(report, CHALLENGER)),
        *(f"  drift     {drift.told}" for drift in report.drift if drift.flagged),
    ]


def reused(walk: Walk, rollout: Rollout) -> Iterator[str]:
    """When a running server was measured. No hash shows that it was configured anew under its address."""
    for step in walk.steps:
        when = f"{step.result.created:%Y-%m-%d %H:%M} UTC"
        for name in ASKED.get(step.phase, ()) if step.reused else ():
            pool = getattr(rollout.pools, name)
            if isinstance(pool, EndpointPool):
                yield f"{pool.base_url} as it was on {when} ({step.phase}); --fresh measures it again"
