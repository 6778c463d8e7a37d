"""The last page of a run: one line a phase and level, the verdict in words, the next command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specops.config import EmbeddedPool, EndpointPool, Rollout
from specops.phases.playbook import Step, Walk
from specops.results import Result

BARS = "▁▂▃▄▅▆▇█"
NONE = "–"
"""In place of a figure that there were too few samples for; the result says how many it needs."""


def page(walk: Walk, rollout: Rollout, path: Path) -> list[str]:
    """The page's lines. Every figure on it is in the file of its phase, in `walk.folder`."""
    by_phase = {step.phase: step for step in walk.steps}
    measured = [
        (arm, by_phase[phase].result)
        for phase, arm in (("baseline", "standard"), ("speculative", "speculative"))
        if phase in by_phase
    ]
    lines = [_headline(walk)]
    lines += _aligned([row for arm, result in measured for row in _measured(arm, result)])
    if "compare" in by_phase:
        lines.append(f"  compared  {_compared(by_phase['compare'].result)}")
    if "speculative" in by_phase:
        lines.append(f"  accepted  {_accepted(by_phase['speculative'].result)}")
    lines += [f"  reused    {line}" for line in _reused(walk, rollout)]
    lines.append(_verdict(walk.steps[-1]))
    lines.append(f"next: {_next(walk, rollout, path)}")
    return lines


def _headline(walk: Walk) -> str:
    result = walk.steps[-1].result
    parts = [walk.rollout, f"{result.environment.get('cores')} cores"]
    for step in walk.steps:
        prompts = step.result.data.get("prompts")
        if prompts:
            classes = len(step.result.data["by_class"])
            parts.append(f"{_count(prompts['count'], 'prompt')} in {_count(classes, 'class', 'classes')}")
            break
    return " · ".join([*parts, str(walk.folder)])


def _measured(arm: str, result: Result) -> Iterator[list[str]]:
    for level in result.data["by_concurrency"]:
        rate = level["over_repeats"]["tokens_per_sec"]
        failed = f"{level['failed']} of {level['requests']} failed" if level["failed"] else ""
        yield [
            "  measured",
            arm,
            _count(level["concurrency"], "stream"),
            *(f"{name} {_ms(level[key]['p50'])}" for name, key in (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"))),
            f"p95 {_ms(level['tpot_ms']['p95'])}",
            f"E2E {_ms(level['e2e_ms']['p50'])}",
            f"{rate['estimate']:.0f} tok/s" if rate else NONE,
            failed,
        ]


def _compared(result: Result) -> str:
    parts = [
        f"{name}  {_speedup(found['levels'][0]['e2e'])}" for name, found in result.data["by_class"].items()
    ]
    return "   ".join([*parts, f"parity {_parity(result)}"])


def _parity(result: Result) -> str:
    found = result.data["parity"]
    if found is None:
        return f"not asked: {result.data['parity_missing']}"
    control = found["control"]
    of_itself = f"{control['equal']}/{control['compared']}" if control else "needs two repeats"
    return f"{found['equal']}/{found['compared']} (control {of_itself})"


def _accepted(result: Result) -> str:
    counts = result.data["acceptance"]
    if counts is None:
        return f"not known: {result.data['acceptance_missing']}"
    curve = "".join(bar(share) for share in counts["per_position"])
    return f"{counts['rate']:.2f} of drafts, {counts['length']:.1f} tokens a step" + (
        f"  {curve} by position" if curve else ""
    )


def _reused(walk: Walk, rollout: Rollout) -> Iterator[str]:
    """When a running server was measured. No hash shows that it was configured anew under its address."""
    pools = {"baseline": rollout.pools.standard, "speculative": rollout.pools.speculative}
    for step in walk.steps:
        pool = pools.get(step.phase)
        if step.reused and isinstance(pool, EndpointPool):
            when = f"{step.result.created:%Y-%m-%d %H:%M} UTC"
            yield f"{pool.base_url} as it was on {when} ({step.phase}); --fresh measures it again"


def _verdict(last: Step) -> str:
    said = last.result.reason
    sentence = f"{said[:1].upper()}{said[1:]}."
    if last.phase != "compare" or last.result.verdict != "yes":
        return sentence
    levels = [entry["concurrency"] for entry in last.result.data["by_concurrency"]]
    pays_up_to = last.result.summary["pays_up_to"]
    if pays_up_to is None or len(levels) == 1:
        return sentence
    if pays_up_to == max(levels):
        return f"{sentence} It pays at every load measured, up to {_count(pays_up_to, 'stream')}."
    beyond = [
        entry["e2e"] for entry in last.result.data["by_concurrency"] if entry["concurrency"] > pays_up_to
    ]
    surely = all(speedup is not None and speedup["high"] < 1 for speedup in beyond)
    found = "it stops paying" if surely else "it is not shown to pay"
    return f"{sentence} Above {_count(pays_up_to, 'stream')} {found}."


def _next(walk: Walk, rollout: Rollout, path: Path) -> str:
    last, pool = walk.steps[-1], rollout.pools.speculative
    again = f"specops run {path}"
    if last.phase != "compare":
        return again if last.result.verdict == "yes" else f"mend what failed, then {again}; it resumes"
    if last.result.verdict == "undecided":
        return f"raise measure.repeats or add prompts in {path}, then {again}"
    if last.result.verdict == "no":
        return f"change pools.speculative in {path}, then {again}; only that pool is measured again"
    if isinstance(pool, EmbeddedPool) and pool.speculation is not None:
        options = (
            ("--target", pool.target),
            ("--draft", pool.speculation.draft),
            ("--tree", pool.speculation.tree),
            ("--verifier", pool.speculation.verifier),
        )
        return " ".join(
            ["specops serve", *(f"{flag} {value}" for flag, value in options if value is not None)]
        )
    return f"send the traffic of those classes to {getattr(pool, 'base_url', 'the speculative pool')}"


def bar(share: float | None) -> str:
    """One character for a share from 0 to 1."""
    if share is None:
        return " "
    return BARS[min(int(max(share, 0.0) * len(BARS)), len(BARS) - 1)]


def _speedup(interval: dict[str, Any] | None) -> str:
    if interval is None:
        return f"{NONE} (too few prompts)"
    return f"{interval['estimate']:.2f}× [{interval['low']:.2f}, {interval['high']:.2f}]"


def _ms(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.2f} ms" if value < 10 else f"{value:.0f} ms"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    return [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
