"""Latencies and acceptance of two runs, each with its interval; what surely changed. Pure.

All classes together, by arm and load. Requests of one visit are not independent, so intervals are clustered
by visit. All intervals of latencies hold together, and so do those of acceptance. A change of a latency is
sure as a difference between the two measurements; whether the machine or the settings caused it is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from specops import stats
from specops.experiment.findings import StoredInterval
from specops.load.arrivals import Level
from specops.load.record import CellRecord
from specops.phases.run_folder import RunFolder
from specops.phases.run_page.conclusion import challenger_of
from specops.section import Frozen
from specops.stats import Interval

Moved = Literal["higher", "lower", "no sure change", "unknown"]
"""`unknown`: a run has too few requests for an interval."""

LATENCIES = (("E2E", "e2e_ms"), ("TTFT", "ttft_ms"))
QUANTILES = (0.5, 0.95, 0.99)
Key = tuple[str, Level]
"""The role of an arm and a load."""

Cells = Mapping[Key, Sequence[CellRecord]]


class Figure(Frozen):
    """A latency in milliseconds, or acceptance, of one arm at one load in both runs."""

    figure: str
    """`E2E p50` to `TTFT p99`, or `acceptance`."""

    arm: str
    """standard or speculative."""

    load: str
    a: float | None
    b: float | None
    a_interval: StoredInterval | None
    """Null where the requests or visits are too few for an interval."""

    b_interval: StoredInterval | None
    change: StoredInterval | None
    """A latency of B over that of A; acceptance of B less that of A."""

    outcome: Moved


def cells_of(run: RunFolder) -> Cells:
    """Return what was measured: by the visits of the comparison; without one, by the baseline."""
    cells: dict[Key, list[CellRecord]] = {}
    report = run.comparison
    if report is None:
        for cell in run.baseline_cells():
            cells.setdefault(("standard", cell.level), []).append(cell)
        return cells
    roles = {report.standard: "standard", challenger_of(report): "speculative"}
    for window in run.windows():
        if window.arm in roles and window.kind == "measured":
            cells.setdefault((roles[window.arm], window.level), []).append(window.cell)
    return cells


def latencies(a: Cells, b: Cells) -> list[Figure]:
    """E2E and TTFT at p50, p95 and p99, of what both runs measured."""
    shared = sorted((key for key in a if key in b), key=lambda key: key[0] != "standard")
    level = 1 - (1 - stats.LEVEL) / max(1, len(shared) * len(LATENCIES) * len(QUANTILES))
    return [
        _figure(f"{name} p{100 * q:g}", key, _quantile(a[key], field, q, level),
                _quantile(b[key], field, q, level), ratio, 1.0)
        for key in shared
        for name, field in LATENCIES
        for q in QUANTILES
    ]  # fmt: skip


def acceptances(a: Cells, b: Cells) -> list[Figure]:
    """Accepted over drafted tokens, of arms whose counters showed drafts in both runs."""
    counts = {key: (_drafts(a[key]), _drafts(b[key])) for key in a if key in b}
    shared = {key: drafts for key, drafts in counts.items() if drafts[0] and drafts[1]}
    level = 1 - (1 - stats.LEVEL) / max(1, len(shared))
    return [
        _figure("acceptance", key, _rate(drafts_a, level), _rate(drafts_b, level), difference, 0.0)
        for key, (drafts_a, drafts_b) in shared.items()
    ]


Measured = tuple[float | None, Interval | None]


def _quantile(cells: Sequence[CellRecord], field: str, q: float, level: float) -> Measured:
    visits = [[v for row in cell.rows if row.error is None and (v := getattr(row, field)) is not None]
              for cell in cells]  # fmt: skip
    estimate = stats.percentile([value for visit in visits for value in visit], q)
    return estimate, stats.quantile_interval(visits, q, level)


def _drafts(cells: Sequence[CellRecord]) -> list[tuple[float, float]]:
    counted = [cell.drafts for cell in cells if cell.drafts is not None]
    return [(drafts.accepted_tokens, drafts.draft_tokens) for drafts in counted if drafts.draft_tokens]


def _rate(counts: Sequence[tuple[float, float]], level: float) -> Measured:
    estimate = sum(part for part, _ in counts) / sum(whole for _, whole in counts)
    return estimate, stats.rate_interval(counts, level)


def ratio(after: Interval, before: Interval) -> Interval:
    """The interval of a ratio of two independent positive estimates, on logarithms (MOVER).

    >>> ratio(Interval(2.0, 1.8, 2.2, 64, 0.95), Interval(2.0, 1.8, 2.2, 64, 0.95)).low < 1
    True
    """
    a, la, ua = (math.log(value) for value in (before.estimate, before.low, before.high))
    b, lb, ub = (math.log(value) for value in (after.estimate, after.low, after.high))
    low, high = _mover(a, la, ua, b, lb, ub)
    return Interval(
        math.exp(b - a), math.exp(low), math.exp(high), min(after.n, before.n), min(after.level, before.level)
    )


def difference(after: Interval, before: Interval) -> Interval:
    """Return the interval of `after` - `before` (MOVER)."""
    low, high = _mover(before.estimate, before.low, before.high, after.estimate, after.low, after.high)
    return Interval(
        after.estimate - before.estimate, low, high, min(after.n, before.n), min(after.level, before.level)
    )


def _mover(a: float, la: float, ua: float, b: float, lb: float, ub: float) -> tuple[float, float]:
    """Ends of the interval of b - a."""
    return b - a - math.hypot(b - lb, ua - a), b - a + math.hypot(ub - b, a - la)


def _figure(
    name: str,
    key: Key,
    a: Measured,
    b: Measured,
    compare: Callable[[Interval, Interval], Interval],
    same: float,
) -> Figure:
    """`same` is what `compare` gives for two equal figures."""
    (value_a, before), (value_b, after) = a, b
    change = compare(after, before) if before is not None and after is not None else None
    outcome: Moved = "no sure change"
    if change is None:
        outcome = "unknown"
    elif change.low > same:
        outcome = "higher"
    elif change.high < same:
        outcome = "lower"
    arm, level = key
    return Figure(
        figure=name,
        arm=arm,
        load=str(level),
        a=_rounded(value_a),
        b=_rounded(value_b),
        a_interval=before,
        b_interval=after,
        change=change,
        outcome=outcome,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
