"""The page of `guard drill`: there and back, and what became of requests."""

from __future__ import annotations

from pathlib import Path

from specops.phases.guard_drill import Leg, Rehearsal
from specops.phases.measurement import checked
from specops.render.figures import aligned, milliseconds, sentence
from specops.results import Result


def page(result: Result, path: Path) -> list[str]:
    """The page's lines."""
    rehearsal = checked(Rehearsal, result.data, f"{path} is damaged: data")
    rows = [_row("fell back", rehearsal.fall_back), _row("releg", rehearsal.restoration)]
    if rehearsal.ended is not None:
        lost = rehearsal.ended.get("lost", 0.0)
        rows.append(["  requests", f"{sum(rehearsal.ended.values()):.0f} ended, {lost:.0f} lost", ""])
    return [f"guard drill · {path}", *aligned(rows), sentence(result.reason)]


def _row(what: str, leg: Leg) -> list[str]:
    began = sorted((leg.begun or {}).items())
    counts = ", ".join(f"{count:.0f} on {pool}" for pool, count in began if count)
    watched = f"in {leg.watched_s:g} s began {counts or 'no request'}" if leg.begun is not None else ""
    return [f"  {what}", f"{len(leg.targets)} switched in {milliseconds(leg.took_ms)}", watched]
