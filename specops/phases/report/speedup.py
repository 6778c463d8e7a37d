"""How many times as fast as the baseline, at the load that there was; and what that saved. Pure.

Of every hour: the load as a request met it, the baseline's means at that load, interpolated between the loads
that it was measured at and never beyond them, and the means that there were. Over the window it is the time
that its requests would have taken over the time that they took, of hours at a comparable load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specops.config.report import Costs
from specops.phases.report.grown import Floats
from specops.phases.report.pools import grown, load, sums
from specops.phases.report.ratios import divided, extremes, hours, ratio
from specops.phases.report.report import Saved, Speedup, SpeedupOf
from specops.phases.report.seen import SeenPool
from specops.phases.report.window import Window
from specops.prometheus.promql import LATENCIES, Latency
from specops.render.prometheus.baseline import Load
from specops.render.prometheus.conditions import MIN_REQUESTS

ASSUMED = (
    "A server counts only while it has requests, and without speculation it would have had as many at a time:"
    " so it is worth money where the number of servers follows the load."
)


@dataclass(frozen=True)
class Taken:
    """Of one latency, hour for hour: seconds in all, as they were, and by the baseline at that load."""

    was: Floats
    expected: Floats
    """NaN at a load that was not measured."""

    n: Floats
    load: Floats


def speedup(
    seen: SeenPool, window: Window, which: slice, loads: Sequence[Load], source: str | None
) -> Speedup:
    return Speedup(
        source=source,
        loads=[each.concurrency for each in loads],
        by={
            latency: _of(taken(seen, latency, window, which, loads), window, bool(loads))
            for latency in LATENCIES
        },
    )


def taken(seen: SeenPool, latency: Latency, window: Window, which: slice, loads: Sequence[Load]) -> Taken:
    met = load(seen, window, which)
    was, n = sums(seen, latency, which)
    if latency == "e2e":
        answers = grown(seen, seen.names.finished, which).hourly
        tokens = divided(grown(seen, seen.names.generated, which).hourly, answers)
        first = _interpolated(met, [(each.concurrency, each.seconds.get(("ttft", "mean"))) for each in loads])
        later = _interpolated(met, [(each.concurrency, each.token_s) for each in loads])
        each_s = first + later * np.maximum(tokens - 1, 0)
    else:
        each_s = _interpolated(
            met, [(each.concurrency, each.seconds.get((latency, "mean"))) for each in loads]
        )
    return Taken(was, each_s * n, n, met)


def _interpolated(at: Floats, points: Sequence[tuple[int, float | None]]) -> Floats:
    known = sorted((load, value) for load, value in points if value is not None)
    if not known:
        return np.full(at.size, np.nan)
    loads, values = zip(*known, strict=True)
    return np.asarray(np.interp(at, loads, values, left=np.nan, right=np.nan), dtype=np.float64)


def _of(of: Taken, window: Window, measured: bool) -> SpeedupOf:
    found = ratio(of.expected, of.was)
    by_hour = divided(of.expected, of.was)
    comparable = ~np.isnan(by_hour)
    lowest, highest = extremes(window, by_hour, of.n >= MIN_REQUESTS)
    busy = np.nan_to_num(of.n)
    return SpeedupOf(
        ratio=found.value if found else None,
        error=found.error if found else None,
        lowest=lowest,
        highest=highest,
        by_hour=hours(by_hour),
        comparable_hours=int(comparable.sum()),
        comparable_share=float(busy[comparable].sum() / busy.sum()) if busy.sum() > 0 else None,
        why_not=None if found else _why_not(of, measured, float(busy.sum())),
    )


def _why_not(of: Taken, measured: bool, busy: float) -> str:
    if not measured:
        return "there is no baseline"
    if not busy:
        return "there were no requests"
    met = of.load[~np.isnan(of.load)]
    between = f"{met.min():.3g} to {met.max():.3g}" if met.size else "unknown"
    return f"no hour had a load that the baseline was measured at: it was {between} requests at a server"


def saved(of: Taken, tokens: Floats, costs: Costs | None) -> Saved | None:
    """`of` end to end. A server's time is its requests' seconds over how many it has at a time."""
    comparable = ~np.isnan(of.expected) & (of.was > 0)
    if not comparable.any():
        return None
    was = float((of.was[comparable] / of.load[comparable]).sum()) / 3600
    without = float((of.expected[comparable] / of.load[comparable]).sum()) / 3600
    money = None if costs is None else without * costs.standard_per_hour - was * costs.speculative
    return Saved(
        requests=float(of.n[comparable].sum()),
        tokens=float(np.nansum(tokens[comparable])),
        server_hours=was,
        without_server_hours=without,
        currency=costs.currency if costs else None,
        money=money,
        assumption=ASSUMED,
    )
