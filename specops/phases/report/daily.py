"""The speculative pool day by day, as the zone has its days. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specops.phases.report.grown import Floats
from specops.phases.report.pools import grown
from specops.phases.report.ratios import ratio
from specops.phases.report.report import Day
from specops.phases.report.seen import SeenPool
from specops.phases.report.speedup import taken
from specops.phases.report.window import Window
from specops.render.prometheus.baseline import Load
from specops.serving import Drafts


def days(seen: SeenPool, window: Window, which: slice, loads: Sequence[Load]) -> list[Day]:
    finished = grown(seen, seen.names.finished, which).hourly
    accepted, drafted = _drafts(seen, which)
    e2e = taken(seen, "e2e", window, which, loads)
    return [
        Day(
            date=day.isoformat(),
            hours=hours.stop - hours.start,
            requests=None if np.isnan(finished[hours]).all() else float(np.nansum(finished[hours])),
            acceptance=_value(accepted[hours], drafted[hours]),
            speedup=_value(e2e.expected[hours], e2e.was[hours]),
        )
        for day, hours in window.days()
    ]


def _drafts(seen: SeenPool, which: slice) -> tuple[Floats, Floats]:
    """Accepted and drafted tokens; of an engine that does not count them, not known."""
    counted = seen.names.acceptance
    if not isinstance(counted, Drafts):
        unknown = np.full_like(grown(seen, seen.names.finished, which).hourly, np.nan)
        return unknown, unknown
    accepted, drafted = (grown(seen, name, which) for name in (counted.accepted_tokens, counted.draft_tokens))
    return accepted.hourly, drafted.hourly


def _value(parts: Floats, wholes: Floats) -> float | None:
    found = ratio(parts, wholes)
    return found.value if found else None
