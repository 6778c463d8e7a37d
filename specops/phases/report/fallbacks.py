"""Fall-backs: when the guard took speculation off, or a person did, by the guard's journal. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specops.guard.journal import Entry
from specops.guard.state import FULL
from specops.phases.report.ratios import iso
from specops.phases.report.report import Fallback
from specops.phases.report.window import Window

GUARD = "the guard"


@dataclass
class _Standing:
    """A fall-back that is being read."""

    at: float
    by: str
    why: str
    percent: int
    ended: float | None = None
    full: float | None = None


def fallbacks(window: Window, entries: Iterable[Entry]) -> list[Fallback]:
    """Those that began within the window, and one that held when it began. While one is not over, falling
    further is the same one; falling at a step back is another."""
    found: list[_Standing] = []
    for entry in _once(entries):
        if entry.ts > window.end:
            break
        _take(entry, found)
    return [_kept(window, one) for one in found if _within(window, one)]


def _once(entries: Iterable[Entry]) -> Iterable[Entry]:
    """A decision's first line: what it came to has the same id, and a journal begins with old ones."""
    seen: set[int] = set()
    for entry in entries:
        if entry.id not in seen:
            seen.add(entry.id)
            yield entry


def _take(entry: Entry, found: list[_Standing]) -> None:
    last = found[-1] if found else None
    wanted = entry.state.wanted
    if last is not None and last.full is None and wanted > last.percent:
        last.ended = last.ended or entry.ts
        if wanted == FULL:
            last.full = entry.ts
    pinned = entry.state.override
    by_person = "override" in entry.evidence.events and pinned is not None and pinned.pool == "standard"
    if by_person or "fell_back" in entry.evidence.events:
        holds = last is not None and last.ended is None
        if by_person and holds:
            return  # nothing changes: it was off already
        by = pinned.by if by_person and pinned is not None else GUARD
        found.append(_Standing(entry.ts, by, entry.evidence.why, wanted))
    elif last is not None and last.ended is None and wanted < last.percent:
        last.percent = wanted


def _within(window: Window, one: _Standing) -> bool:
    return window.start < one.at <= window.end or (
        one.at <= window.start and (one.ended or window.end) > window.start
    )


def _kept(window: Window, one: _Standing) -> Fallback:
    return Fallback(
        at=iso(window, one.at),
        by=one.by,
        why=one.why,
        percent=one.percent,
        ended=None if one.ended is None else iso(window, one.ended),
        seconds=(window.end if one.ended is None else one.ended) - one.at,
        full=None if one.full is None else iso(window, one.full),
    )
