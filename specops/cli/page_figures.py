"""What a run measured, as its page shows it: both pools by load."""

from __future__ import annotations

from collections.abc import Iterator

from specops.cli.ab_page import caches, lengths, measured, tails
from specops.config import Rollout
from specops.phases import Phase
from specops.phases.ab.report import Report, read
from specops.phases.playbook import Walk
from specops.phases.run_page.conclusion import challenger_of
from specops.render.figures import NONE, aligned, count, milliseconds
from specops.results import Result

MEASURES: dict[Phase, tuple[str, ...]] = {
    "baseline": ("standard",),
    "ab": ("standard", "speculative"),
    "canary": ("standard", "speculative"),
}
"""The pools whose figures a phase measures."""


def figures(walk: Walk) -> list[str]:
    """The comparison's where there is one, else the baseline's."""
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
    found = report.challengers[challenger_of(report)]
    return [
        *aligned([row for arm, levels in report.arms.items() for row in measured(arm, levels)]),
        *(f"  tail      {line}" for line in tails(report)),
        *(f"  lengths   {line}" for line in lengths(found)),
        *(f"  cache     {line}" for line in caches(found)),
        *(f"  drift     {drift.message}" for drift in report.drift if drift.flagged),
    ]


def reused(walk: Walk, rollout: Rollout) -> Iterator[str]:
    """When a running server was measured: a new configuration under its address shows in no hash."""
    for step in walk.steps:
        when = f"{step.result.created:%Y-%m-%d %H:%M} UTC"
        for name in MEASURES.get(step.phase, ()) if step.reused else ():
            at = getattr(rollout.pools, name).endpoint
            if at is not None:
                yield f"{at.base_url} as it was on {when} ({step.phase}); --fresh measures it again"
