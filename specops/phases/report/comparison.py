"""The window against earlier measurements: speed-up and savings, days, drift. The last part reads a folder.

The speed-up of an hour is expected time over measured time. The expected time is the baseline's mean at the
load that the hour's requests met. It is interpolated between the measured loads, never extrapolated. The
speed-up of the window is the ratio of the sums over all hours at a comparable load. The last part takes the
results of `ab` and `sweep` from the run folder; the rest is pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specops.config.rollout import Costs
from specops.economics import StepCost
from specops.phases.baseline_at_load import at_load, e2e
from specops.phases.monitor.thresholds import Figure
from specops.phases.report.pools import divided, extremes, hours, increases, load, ratio, sums
from specops.phases.report.prometheus_data import Floats, PoolData
from specops.phases.report.report import (
    Day,
    Drift,
    LatencySpeedup,
    LiveSpeedup,
    PoolAcceptance,
    ReportWindow,
    SavedTime,
)
from specops.phases.run_folder import Missing, RunFolder
from specops.prometheus.promql import LATENCIES, Latency
from specops.render.prometheus.alerts import MIN_REQUESTS
from specops.render.prometheus.rules import Load

ASSUMED = (
    "A server counts only while it has requests, and without speculation it would have had as many at a time:"
    " so it is worth money where the number of servers follows the load."
)


@dataclass(frozen=True)
class HourlySeconds:
    """One latency, hour for hour, in seconds: as it was, and by the baseline at that load."""

    was: Floats
    expected: Floats
    """NaN at a load that was not measured."""

    n: Floats
    load: Floats


def speedup(
    observed: PoolData, window: ReportWindow, which: slice, loads: Sequence[Load], source: str | None
) -> LiveSpeedup:
    return LiveSpeedup(
        source=source,
        loads=[level.concurrency for level in loads],
        by={
            latency: _latency_speedup(
                hourly_seconds(observed, latency, window, which, loads), window, bool(loads)
            )
            for latency in LATENCIES
        },
    )


def hourly_seconds(
    observed: PoolData, latency: Latency, window: ReportWindow, which: slice, loads: Sequence[Load]
) -> HourlySeconds:
    met = load(observed, window, which)
    was, n = sums(observed, latency, which)
    if latency == "e2e":
        answers = increases(observed, observed.names.finished, which).hourly
        tokens = divided(increases(observed, observed.names.generated, which).hourly, answers)
        first = at_load(met, [(level.concurrency, level.seconds.get(("ttft", "mean"))) for level in loads])
        later = at_load(met, [(level.concurrency, level.token_s) for level in loads])
        each_s = e2e(first, later, tokens)
    else:
        each_s = at_load(met, [(level.concurrency, level.seconds.get((latency, "mean"))) for level in loads])
    return HourlySeconds(was, each_s * n, n, met)


def _latency_speedup(seconds: HourlySeconds, window: ReportWindow, measured: bool) -> LatencySpeedup:
    overall = ratio(seconds.expected, seconds.was)
    by_hour = divided(seconds.expected, seconds.was)
    comparable = ~np.isnan(by_hour)
    lowest, highest = extremes(window, by_hour, seconds.n >= MIN_REQUESTS)
    busy = np.nan_to_num(seconds.n)
    return LatencySpeedup(
        ratio=overall.value if overall else None,
        error=overall.error if overall else None,
        lowest=lowest,
        highest=highest,
        by_hour=hours(by_hour),
        comparable_hours=int(comparable.sum()),
        comparable_share=float(busy[comparable].sum() / busy.sum()) if busy.sum() > 0 else None,
        why_not=None if overall else _why_not(seconds, measured, float(busy.sum())),
    )


def _why_not(seconds: HourlySeconds, measured: bool, busy: float) -> str:
    if not measured:
        return "there is no baseline"
    if not busy:
        return "there were no requests"
    met = seconds.load[~np.isnan(seconds.load)]
    between = f"{met.min():.3g} to {met.max():.3g}" if met.size else "unknown"
    return f"no hour had a load that the baseline was measured at: it was {between} requests at a server"


def saved(seconds: HourlySeconds, tokens: Floats, costs: Costs | None) -> SavedTime | None:
    """`seconds` end to end. A server's time is its requests' seconds over how many it has at a time."""
    comparable = ~np.isnan(seconds.expected) & (seconds.was > 0)
    if not comparable.any():
        return None
    was = float((seconds.was[comparable] / seconds.load[comparable]).sum()) / 3600
    without = float((seconds.expected[comparable] / seconds.load[comparable]).sum()) / 3600
    money = None if costs is None else without * costs.standard_per_hour - was * costs.speculative
    return SavedTime(
        requests=float(seconds.n[comparable].sum()),
        tokens=float(np.nansum(tokens[comparable])),
        server_hours=was,
        without_server_hours=without,
        currency=costs.currency if costs else None,
        money=money,
        assumption=ASSUMED,
    )


def days(observed: PoolData, window: ReportWindow, which: slice, loads: Sequence[Load]) -> list[Day]:
    finished = increases(observed, observed.names.finished, which).hourly
    drafting = observed.drafting.during(which)
    accepted, drafted = drafting.accepted.hourly, drafting.drafted.hourly
    e2e = hourly_seconds(observed, "e2e", window, which, loads)
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


def _value(parts: Floats, wholes: Floats) -> float | None:
    quotient = ratio(parts, wholes)
    return quotient.value if quotient else None


LEAST = 0.02
"""Smallest change of a share, or of a ratio: less is nothing that anyone would act on, however surely it is
there."""
BEFORE = "the window before"
AT_POSITION = "acceptance at position"
BEYOND = 1.25
"""Times the heaviest load of the comparison, above which its speed-ups are not compared with the window's."""


def drift(
    now: PoolAcceptance | None,
    then: PoolAcceptance | None,
    recorded: Figure | None,
    faster: LiveSpeedup,
    faster_then: LiveSpeedup,
    comparisons: Sequence[MeasuredSpeedup],
    load: float | None,
) -> list[Drift]:
    """Return the drift of the figures. `load`: the one that the window's requests met on average; the
    comparison's nearest to it is taken."""
    drifts = [*_acceptance(now, then, recorded)]
    e2e, e2e_then = faster.by["e2e"], faster_then.by["e2e"]
    if e2e.ratio is not None:
        if e2e_then.ratio is not None:
            noise = _noise(e2e.error, e2e_then.error)
            drifts.append(_drift("speed-up end to end", e2e_then.ratio, e2e.ratio, noise, BEFORE))
        drifts += _against_comparison(e2e, comparisons, load)
    return drifts


def _acceptance(
    now: PoolAcceptance | None, then: PoolAcceptance | None, recorded: Figure | None
) -> Iterator[Drift]:
    if now is None or now.rate is None:
        return
    if then is not None and then.rate is not None:
        yield _drift("acceptance", then.rate, now.rate, _noise(now.error, then.error), BEFORE)
        pairs = zip(then.per_position, now.per_position, strict=False)
        for position, (before, after) in enumerate(pairs, start=1):
            if before is not None and after is not None:
                yield _drift(f"{AT_POSITION} {position}", before, after, None, BEFORE)
    if recorded is not None:
        yield _drift("acceptance", recorded.value, now.rate, _noise(now.error, 0.0), recorded.source)


def _against_comparison(
    e2e: LatencySpeedup, comparisons: Sequence[MeasuredSpeedup], load: float | None
) -> Iterator[Drift]:
    if not comparisons or load is None or e2e.ratio is None:
        return
    if load > BEYOND * max(measured.concurrency for measured in comparisons):
        return  # a speed-up at a light load says nothing of a heavier one
    nearest = min(comparisons, key=lambda measured: abs(measured.concurrency - load))
    source = f"{nearest.speedup.source}, {nearest.concurrency} at a time"
    yield _drift("speed-up end to end", nearest.speedup.value, e2e.ratio, _noise(e2e.error, 0.0), source)


def _noise(error: float | None, error_then: float | None) -> float | None:
    return None if error is None or error_then is None else 2 * math.hypot(error, error_then)


def _drift(figure: str, then: float, now: float, noise: float | None, source: str) -> Drift:
    beyond = noise is not None and abs(now - then) > max(noise, LEAST)
    return Drift(what=figure, then=then, now=now, noise=noise, beyond=beyond, source=source)


@dataclass(frozen=True)
class MeasuredSpeedup:
    """The speed-up end to end that was measured at one load."""

    concurrency: int
    speedup: Figure


def measured_speedups(run: RunFolder) -> list[MeasuredSpeedup]:
    """The speed-ups of the main challenger by load; empty where there is no finished comparison.
    That it is missing or damaged is said where acceptance is read."""
    if isinstance(run.finished_comparison, Missing):
        return []
    report, source = run.finished_comparison.part, run.finished_comparison.source
    return [
        MeasuredSpeedup(level.speedups.level.concurrency, Figure(level.speedups.e2e.estimate, source))
        for level in report.challengers[report.main_challenger].levels
        if level.speedups.e2e is not None and level.speedups.level.concurrency is not None
    ]


def step_cost(run: RunFolder) -> StepCost | None:
    """Return the cost of a step that the sweep measured; None where there is no sweep, or it could not fit
    one."""
    if isinstance(run.recommendation, Missing):
        return None
    cost = run.recommendation.part.cost
    if cost.target_ms is None or cost.draft_ms is None:
        return None
    return StepCost(cost.target_ms, cost.draft_ms, None, ())
