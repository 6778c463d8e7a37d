"""The section on prefix caches: what each arm had in its cache, and the speed-up by what a cache may know."""

from __future__ import annotations

from collections.abc import Iterator

from specops.phases.ab.report import CacheComparison, Report
from specops.render.figures import NONE, times
from specops.render.report.document import Cell, Section, Table


def cache_section(report: Report, source: str) -> Iterator[Section]:
    """Yield the section; nothing where no arm reports a cache and all requests have one state."""
    tables = [table for table in (_by_arm(report), _differences(report), _by_state(report)) if table.rows]
    if tables:
        yield Section("Cache", (), (), tuple(tables), sources=(source,), guide="docs/conversations.md")


def _by_arm(report: Report) -> Table:
    rows = tuple(
        (
            f"{arm}, {figures.level}",
            NONE if figures.cached_share is None else f"{figures.cached_share:.0%}",
            NONE
            if figures.cache_counts is None
            else f"{figures.cache_counts.hits / max(1.0, figures.cache_counts.lookups):.0%}",
        )
        for arm, levels in report.arms.items()
        for figures in levels
        if figures.cached_share is not None or figures.cache_counts is not None
    )
    counted = any(figures.cache_counts for levels in report.arms.values() for figures in levels)
    note = "Counters include requests whose times are not compared, and those of other clients."
    columns = ("arm, load", "by its answers", "by its counters")
    return Table("Share of the prompts that was in the cache", columns, rows, note if counted else "")


def _differences(report: Report) -> Table:
    rows = tuple(
        (
            f"{_named(report, name)}{cache.level}",
            f"{cache.standard:.0%}",
            f"{cache.challenger:.0%}",
            _points(cache),
            _meaning(cache),
        )
        for name, challenger in report.challengers.items()
        for cache in challenger.caches
    )
    columns = ("load", "standard", "challenger", "difference, percentage points", "meaning")
    return Table("Cache hits compared", columns, rows, prose=(4,))


def _points(cache: CacheComparison) -> str:
    if cache.difference is None:
        return NONE
    estimate, low, high = (
        100 * end for end in (cache.difference.estimate, cache.difference.low, cache.difference.high)
    )
    return f"{estimate:+.0f} [{low:+.0f}, {high:+.0f}]"


def _meaning(cache: CacheComparison) -> str | Cell:
    """What the difference means for first tokens: in percentage points, beyond its interval."""
    if cache.difference is None:
        return "too few windows to compare"
    if cache.difference.low <= 0 <= cache.difference.high:
        return "no difference is shown"
    more = f"the {'challenger' if cache.difference.low > 0 else 'standard'} had more in its cache"
    if cache.equal:
        return f"{more}, by too little to matter"
    return Cell(f"{more}, which brings its first tokens sooner", "open")


def _by_state(report: Report) -> Table:
    unequal = {
        (name, cache.level)
        for name, challenger in report.challengers.items()
        for cache in challenger.caches
        if not cache.equal
    }
    rows = tuple(
        (
            f"{_named(report, name)}{figures.state}, {figures.level}",
            str(figures.prompts),
            times(figures.e2e),
            times(figures.tpot),
            "not compared" if (name, figures.level) in unequal else times(figures.ttft),
        )
        for name, challenger in report.challengers.items()
        for figures in challenger.cache_states
    )
    columns = ("requests", "n", "end to end", "per output token", "first token")
    note = (
        "Speed-ups by what a cache may know of a prompt: nothing (cold), a prefix that other prompts share, "
        "or the earlier turns. First tokens are compared only at equal cache state."
    )
    return Table("Speed-up by cache state", columns, rows, note)


def _named(report: Report, name: str) -> str:
    return f"{name}, " if len(report.challengers) > 1 else ""
