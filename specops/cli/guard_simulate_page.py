"""What two guards would have done with a trace, for people."""

from __future__ import annotations

from datetime import UTC, datetime

from specops.guard.simulation.simulate import Fallback, Simulated
from specops.render.figures import aligned, count, sentence

RIGHTLY = {"yes": "rightly", "no": "falsely", "unknown": "whether rightly is not known"}
MOST = 20
"""Steps that are shown; --json has them all."""


def page(rollout: str, found: Simulated) -> list[str]:
    """The page's lines."""
    seen = ", ".join(f"{number} {verdict.replace('_', ' ')}" for verdict, number in found.verdicts.items())
    rightly = {one.ts: RIGHTLY[one.rightly] for one in found.fallbacks}
    rows = []
    for step in found.steps[:MOST]:
        told = f" {rightly[step.ts]}" if step.event == "fell_back" else ""
        rows.append(["  guard", _at(step.ts), f"{step.event.replace('_', ' ')}{told}: {step.why}"])
    if len(found.steps) > MOST:
        rows.append(["  guard", "", f"and {len(found.steps) - MOST} steps more"])
    rows += [
        ["  missed", _at(ts), "from here on it did not pay, and the guard left it on"] for ts in found.missed
    ]
    if found.playbook is not None:
        told = f"fell back {RIGHTLY[found.playbook.rightly]}: {found.playbook.why}"
        rows.append(["  playbook", _at(found.playbook.ts), told])
        rows.append(["  playbook", "", f"{found.playbook_triggers} triggers in all"])
    span = f"{_at(found.began)} to {_at(found.ended)} UTC"
    return [
        f"simulated · {rollout} · {span} · {found.evaluations} evaluations: {seen}",
        *aligned(rows),
        sentence(_summary(found)),
    ]


def _summary(found: Simulated) -> str:
    ours = count(len(found.fallbacks), "fall-back")
    theirs = "falls back too" if found.playbook is not None else "does not fall back"
    if found.playbook is not None and not found.fallbacks:
        theirs = "falls back"
    missed = f", {count(len(found.missed), 'incident')} missed" if found.missed else ""
    return f"the guard: {ours}{_false(found.fallbacks)}{missed}; the playbook's {theirs}"


def _false(fallbacks: list[Fallback]) -> str:
    false = sum(one.rightly == "no" for one in fallbacks)
    return f", {false} of them false" if false else ""


def _at(ts: float) -> str:
    return f"{datetime.fromtimestamp(ts, UTC):%Y-%m-%d %H:%M}"
