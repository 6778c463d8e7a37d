"""The page of `guard drill`: there and back, and what became of requests."""

from __future__ import annotations

from pathlib import Path

from specops.phases.guard_drill import Rehearsal, Turned
from specops.phases.measurement import checked
from specops.render.figures import aligned, milliseconds, sentence
from specops.results import Result


def page(result: Result, path: Path) -> list[str]:
    """The page's lines."""
    seen = checked(Rehearsal, result.data, f"{path} is damaged: data")
    rows = [_row("fell back", seen.there), _row("returned", seen.back)]
    if seen.answered is not None:
        lost = seen.answered.get("lost", 0.0)
        rows.append(["  requests", f"{sum(seen.answered.values()):.0f} ended, {lost:.0f} lost", ""])
    return [f"guard drill · {path}", *aligned(rows), sentence(result.reason)]


def _row(what: str, turned: Turned) -> list[str]:
    began = sorted((turned.began or {}).items())
    counts = ", ".join(f"{count:.0f} on {pool}" for pool, count in began if count)
    watched = f"in {turned.watched_s:g} s began {counts or 'no request'}" if turned.began is not None else ""
    return [f"  {what}", f"{len(turned.targets)} switched in {milliseconds(turned.took_ms)}", watched]
