"""Recommendations of the report: each with the rule it comes from, its threshold, and the command to go on
with. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from specops import economics
from specops.config import Rollout
from specops.config.monitor import OURS
from specops.defaults import MEMORY_FULL
from specops.economics import StepCost
from specops.phases.monitor.thresholds import Measurements
from specops.phases.report.comparison import LEAST
from specops.phases.report.events import GUARD
from specops.phases.report.report import (
    HOUR_S,
    AlertIncident,
    Drift,
    FallbackPeriod,
    LiveSpeedup,
    Pools,
    ReportAdvice,
    ReportWindow,
    speculative_acceptance,
)
from specops.phases.report.tables import when
from specops.phases.run_folder import PayingLoad
from specops.prometheus.series import PoolName
from specops.render.figures import count

DEFAULT = "default"
UNCOMPARED = 0.5
"""Share of the requests: with more at a load that was not measured, the speed-up is not of most of them."""
ROOM = 1.25
"""Times the load that pays, which the mean load of a window may be above it."""
UNSEEN = 0.02
"""Share of the window: with more that was not scraped, its figures are of the rest."""


@dataclass(frozen=True)
class RecommendationInputs:
    """The figures that recommendations are made from."""

    rollout: Rollout
    path: Path
    """Path of the rollout file."""

    sweep: str
    """The command of the sweep; for pools that run already with their endpoints."""

    window: ReportWindow
    before: Measurements
    pools: Pools
    speedup: LiveSpeedup
    incidents: Sequence[AlertIncident] | None
    fallbacks: Sequence[FallbackPeriod] | None
    drift: Sequence[Drift]
    gpu_share: float | None
    cost: StepCost | None
    load: float | None = None
    """Requests at a time of a server, as the window's requests met them on average."""

    paying: PayingLoad | None = None
    carried: CarriedRate | None = None


@dataclass(frozen=True)
class CarriedRate:
    """The highest rate at which one speculative server meets the objective."""

    rate: float
    """Requests/s."""

    source: str


def recommendations(inputs: RecommendationInputs) -> list[ReportAdvice]:
    """The gravest first."""
    return [*_off(inputs), *_firing(inputs), *_watching(inputs), *_idle(inputs), *_acceptance(inputs),
            *_speedup(inputs), *_heavy(inputs), *_over_capacity(inputs), *_fallbacks(inputs),
            *_memory(inputs), *_drift(inputs), *_shorter(inputs)]  # fmt: skip


def _off(inputs: RecommendationInputs) -> Iterator[ReportAdvice]:
    standing = next((fallback for fallback in inputs.fallbacks or [] if fallback.ended is None), None)
    if standing is not None:
        left = f"down to {standing.percent}%" if standing.percent else "off"
        yield ReportAdvice(
            rule="speculation is off",
            value=standing.seconds / 3600,
            threshold=None,
            source="the guard's journal",
            message=f"speculation is {left} since {when(standing.at)}, by {standing.by}: {standing.why}",
            command=f"specops guard status {inputs.path}",
        )


def _firing(inputs: RecommendationInputs) -> Iterator[ReportAdvice]:
    still = {
        incident.alert
        for incident in inputs.incidents or []
        if incident.end is None and incident.severity != "info"
    }
    if still:
        yield ReportAdvice(
            rule="open incidents",
            value=len(still),
            threshold=0.0,
            source=OURS,
            message=f"{', '.join(sorted(still))} still fired at the end: follow the runbook",
            command=f"specops diagnose {inputs.path}",
        )


def _over_capacity(inputs: RecommendationInputs) -> Iterator[ReportAdvice]:
    pool, carried = inputs.pools.get("speculative"), inputs.carried
    hours = [requests for requests in pool.requests_by_hour if requests is not None] if pool else []
    if pool is None or carried is None or not hours or not pool.servers:
        return
    busiest = max(hours) / HOUR_S / pool.servers
    if busiest > carried.rate:
        yield ReportAdvice(
            rule="capacity",
            value=busiest,
            threshold=carried.rate,
            source=carried.source,
            message=f"the busiest hour had {busiest:.2g} requests/s a server, and the highest rate at the"
            f" objective is {carried.rate:.2g}: add servers, or route less to the pool",
            command=f"specops capacity {inputs.path}",
        )


def _idle(inputs: RecommendationInputs) -> Iterator[ReportAdvice]:
    pool = inputs.pools.get("speculative")
    if pool is not None and not pool.requests:
        yield ReportAdvice(
            rule="traffic",
            value=None,
            threshold=None,
            source=OURS,
            message="no request ended at the speculative pool, so nothing is known of speculation",
            command=f"specops monitor check {inputs.path}",
        )


def _by(inputs: RecommendationInputs, key: str) -> str:
    return f"report.{key} of the rollout file" if key in inputs.rollout.report.model_fields_set else DEFAULT


def _acceptance(inputs: RecommendationInputs) -> Iterator[ReportAdvice]:
    accepted, limit = speculative_acceptance(inputs.pools), inputs.rollout.report.min_acceptance
    if accepted is None or accepted.rate is None or accepted.rate >= limit or inputs.before.branches:
        return
    yield ReportAdvice(
        rule="acceptance",
        value=accepted.rate,
        threshold=limit,
        source=_by(inputs, "min_acceptance"),
        message=f"only {accepted.rate:.2f} of the drafted tokens are accepted: try another draft, or train an"
        " EAGLE-3 head on this traffic",
        command=inputs.sweep,
    )


def _speedup(inputs: RecommendationInputs) -> Iterator[ReportAdvice]:
    e2e, limit = inputs.speedup.by["e2e"], inputs.rollout.report.min_speedup
    if e2e.ratio is not None and e2e.ratio < limit:
        slower = e2e.ratio < 1
        yield ReportAdvice(
            rule="speed-up",
            value=e2e.ratio,
            threshold=limit,
            source=_by(inputs, "min_speedup"),
            message=f"answers are {e2e.ratio:.2f}× as fast as the baseline's: "
            + ("speculation costs time" if slower else "ask whether that is worth what it costs"),
            command=f"specops diagnose {inputs.path}",
        )
    uncompared = None if e2e.comparable_share is None else 1 - e2e.comparable_share
    if uncompared is not None and uncompared > UNCOMPARED:
        yield _unmeasured_load(inputs, uncompared)


def _heavy(inputs: RecommendationInputs) -> Iterator[ReportAdvice]:
    """A load at which speculation was not shown to pay."""
    load, paying = inputs.load, inputs.paying
    if load is None or paying is None or load <= paying.up_to * ROOM:
        return
    extent = f"up to {paying.up_to}" if paying.up_to else "at no load"
    yield ReportAdvice(
        rule="load that pays",
        value=load,
        threshold=float(paying.up_to),
        source=paying.source,
        message=f"requests met {load:.1f} at a time on average, and speculation was shown to pay {extent}",
        command=f"specops route render {inputs.path}  # its in-flight limit is the load that pays",
    )


def _unmeasured_load(inputs: RecommendationInputs, uncompared: float) -> ReportAdvice:
    pool = inputs.pools["speculative"]
    met = [load for load in pool.load_by_hour if load is not None]
    measured = inputs.speedup.loads
    heaviest = math.ceil(max(met, default=1))
    more = sorted({*measured, 1, heaviest})
    return ReportAdvice(
        rule="comparable load",
        value=uncompared,
        threshold=UNCOMPARED,
        source=OURS,
        message=f"{uncompared:.0%} of the requests ran at a level that the baseline does not cover"
        if measured
        else "the speed-up is unknown without a baseline",
        command=f"specops run {inputs.path} --only baseline  # with measure.concurrency: {more}",
    )


def _fallbacks(inputs: RecommendationInputs) -> Iterator[ReportAdvice]:
    settings, weeks = inputs.rollout.report, inputs.window.weeks
    by_guard = [fallback for fallback in inputs.fallbacks or [] if fallback.by == GUARD]
    limit = settings.max_fallbacks * weeks
    if len(by_guard) > limit:
        yield ReportAdvice(
            rule="fallbacks",
            value=len(by_guard),
            threshold=limit,
            source=f"{_by(inputs, 'max_fallbacks')}, {settings.max_fallbacks} a week",
            message=f"the guard fell back {count(len(by_guard), 'time')}: check the draft against today's"
            " traffic",
            command=f"specops guard status {inputs.path}",
        )


def _watching(inputs: RecommendationInputs) -> Iterator[ReportAdvice]:
    down = [incident for incident in inputs.incidents or [] if incident.alert == "SpecopsGuardDown"]
    if down:
        hours = sum(incident.seconds for incident in down) / 3600
        yield ReportAdvice(
            rule="guard",
            value=hours,
            threshold=0.0,
            source=OURS,
            message=f"the guard was down for {hours:.1f} h",
            command=f"specops guard status {inputs.path}",
        )
    if "speculative" not in inputs.pools:
        yield _missing_data(inputs, "speculative", 1.0)
    length = inputs.window.end - inputs.window.start
    for name, pool in inputs.pools.items():
        unseen = sum(gap.seconds for gap in pool.gaps if gap.server is None) / length
        if unseen > UNSEEN:
            yield _missing_data(inputs, name, unseen)


def _missing_data(inputs: RecommendationInputs, pool: PoolName, share: float) -> ReportAdvice:
    return ReportAdvice(
        rule="data",
        value=share,
        threshold=UNSEEN,
        source=OURS,
        message=f"no data from the {pool} pool for {share:.0%} of the window",
        command=f"specops monitor check {inputs.path}",
    )


def _memory(inputs: RecommendationInputs) -> Iterator[ReportAdvice]:
    pool = inputs.pools.get("speculative")
    if pool is None or not pool.preemptions:
        return
    kv = pool.kv_usage.highest.value if pool.kv_usage else None
    for resource, most in (("the KV cache", kv), ("a GPU's memory", inputs.gpu_share)):
        if most is not None and most >= MEMORY_FULL:
            yield _full(
                f"{resource} was {most:.0%} full, and {pool.preemptions:,.0f} requests preempted",
                most,
                inputs,
            )


def _full(problem: str, most: float, inputs: RecommendationInputs) -> ReportAdvice:
    return ReportAdvice(
        rule="memory",
        value=most,
        threshold=MEMORY_FULL,
        source=DEFAULT,
        message=f"{problem}: draft fewer tokens, such as 3, or give the pool more memory",
        command=inputs.sweep,
    )


def _drift(inputs: RecommendationInputs) -> Iterator[ReportAdvice]:
    for drift in inputs.drift:
        if drift.beyond and drift.now < drift.then:
            yield ReportAdvice(
                rule="drift",
                value=drift.now - drift.then,
                threshold=-max(drift.noise or 0.0, LEAST),
                source=f"{OURS}: more than twice its standard error, and than {LEAST:g}",
                message=f"{drift.what} fell from {drift.then:.2f} to {drift.now:.2f}, against {drift.source}",
                command=f"specops diagnose {inputs.path}",
            )


def _shorter(inputs: RecommendationInputs) -> Iterator[ReportAdvice]:
    """Recommend a smaller K by the week's own acceptance by position and the sweep's cost of a drafted
    token."""
    accepted = speculative_acceptance(inputs.pools)
    if accepted is None or inputs.cost is None or inputs.before.branches:
        return
    curve = [share for share in accepted.per_position if share is not None]
    if not curve or len(curve) < len(accepted.per_position):
        return
    pays = economics.cut(economics.positions(curve, inputs.cost))
    if pays < len(curve):
        yield ReportAdvice(
            rule="draft length",
            value=len(curve),
            threshold=pays,
            source="acceptance by position, and the costs of sweep.json",
            message=f"of {len(curve)} drafted tokens only the first {pays} bring more than they cost"
            if pays
            else "no drafted token brings more than it costs",
            command=inputs.sweep,
        )
