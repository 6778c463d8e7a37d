"""The last page of a run: one line a phase and level, the verdict in words, the next command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specops.cli.ab_page import accepted, following, measured, parity
from specops.cli.figures import NONE, aligned, count, milliseconds, sentence, times
from specops.config import EndpointPool, Rollout
from specops.phases.ab.report import Report, read
from specops.phases.playbook import Step, Walk
from specops.results import Result

CHALLENGER = "speculative"


def page(walk: Walk, rollout: Rollout, path: Path) -> list[str]:
    """The page's lines. Every figure on it is in the file of its phase, in `walk.folder`."""
    by_phase = {step.phase: step for step in walk.steps}
    lines = [_headline(walk)]
    if "ab" in by_phase:
        report = read(by_phase["ab"].result, str(by_phase["ab"].path))
        lines += _compared(report)
    else:
        lines += aligned(list(_baseline(by_phase["baseline"].result)))
    lines += [f"  reused    {line}" for line in _reused(walk, rollout)]
    last = walk.steps[-1]
    lines.append(_verdict(last))
    lines.append(f"next: {_next(last, rollout, path)}")
    return lines


def _headline(walk: Walk) -> str:
    last = walk.steps[-1]
    parts = [walk.rollout, f"{last.result.environment.get('cores')} cores"]
    prompts = last.result.data.get("prompts")
    if prompts:
        classes = count(len(prompts["classes"]), "class", "classes")
        parts.append(f"{count(prompts['count'], 'prompt')} in {classes}")
    return " · ".join([*parts, str(walk.folder)])


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
    """Both arms as they were measured in turn, which is what their speed-ups are made of."""
    challenger = report.challengers[CHALLENGER]
    speedups = [f"{name}  {times(found.levels[0].e2e)}" for name, found in challenger.classes.items()]
    return [
        *aligned([row for arm, levels in report.arms.items() for row in measured(arm, levels)]),
        f"  compared  {'   '.join(speedups)}",
        f"  parity    {parity(report, challenger)}",
        *(f"  accepted  {line}" for line in accepted(report, CHALLENGER)),
        *(f"  drift     {drift.told}" for drift in report.drift if drift.flagged),
    ]


def _reused(walk: Walk, rollout: Rollout) -> Iterator[str]:
    """When a running server was measured. No hash shows that it was configured anew under its address."""
    pools = {"baseline": [rollout.pools.standard], "ab": [rollout.pools.standard, rollout.pools.speculative]}
    for step in walk.steps:
        when = f"{step.result.created:%Y-%m-%d %H:%M} UTC"
        for pool in pools[step.phase] if step.reused else ():
            if isinstance(pool, EndpointPool):
                yield f"{pool.base_url} as it was on {when} ({step.phase}); --fresh measures it again"


def _verdict(last: Step) -> str:
    said = sentence(last.result.reason)
    if last.phase != "ab" or last.result.verdict != "yes":
        return said
    return f"{said} {read(last.result, str(last.path)).challengers[CHALLENGER].load}".rstrip()


def _next(last: Step, rollout: Rollout, path: Path) -> str:
    again = f"specops run {path}"
    if last.phase != "ab":
        return again if last.result.verdict == "yes" else f"mend what failed, then {again}; it resumes"
    if last.result.verdict == "undecided":
        more = last.result.summary.get("more_prompts")
        return f"add {f'about {more}' if more else 'many'} prompts in {path}, then {again}"
    if last.result.verdict == "no":
        return f"change pools.speculative in {path}, then {again}"
    return following(rollout.pools.speculative.model_dump(mode="json"))
