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
from specops.phases.report.comparison import LEAST, PayingLoads
from specops.phases.report.events import GUARD
from specops.phases.report.report import (
    Drift,
    Fallback,
    Incident,
    Pools,
    Recommendation,
    Speedup,
    Window,
    speculative_acceptance,
)
from specops.phases.report.tables import when
from specops.prometheus.series import PoolName

PLAYBOOK = "the playbook"
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

    window: Window
    before: Measurements
    pools: Pools
    speedup: Speedup
    incidents: Sequence[Incident] | None
    fallbacks: Sequence[Fallback] | None
    drift: Sequence[Drift]
    gpu_share: float | None
    cost: StepCost | None
    load: float | None = None
    """Requests at a time of a server, as the window's requests met them on average."""

    paid: PayingLoads | None = None


def recommendations(found: RecommendationInputs) -> list[Recommendation]:
    """The gravest first."""
    return [*_off(found), *_firing(found), *_watching(found), *_idle(found), *_acceptance(found),
            *_speedup(found), *_heavy(found), *_fallbacks(found), *_memory(found), *_drift(found),
            *_shorter(found)]  # fmt: skip


def _off(found: RecommendationInputs) -> Iterator[Recommendation]:
    standing = next((one for one in found.fallbacks or [] if one.ended is None), None)
    if standing is not None:
        left = f"down to {standing.percent}%" if standing.percent else "off"
        yield Recommendation(
            rule="speculation is off",
            value=standing.seconds / 3600,
            threshold=None,
            source="the guard's journal",
            message=f"speculation is {left} since {when(standing.at)}, by {standing.by}: {standing.why}",
            command=f"specops guard status {found.path}",
        )


def _firing(found: RecommendationInputs) -> Iterator[Recommendation]:
    still = {one.alert for one in found.incidents or [] if one.end is None and one.severity != "info"}
    if still:
        yield Recommendation(
            rule="open incidents",
            value=len(still),
            threshold=0.0,
            source=OURS,
            message=f"{', '.join(sorted(still))} still fired at the end: follow the runbook",
            command=f"specops diagnose {found.path}",
        )


def _idle(found: RecommendationInputs) -> Iterator[Recommendation]:
    pool = found.pools.get("speculative")
    if pool is not None and not pool.requests:
        yield Recommendation(
            rule="traffic",
            value=None,
            threshold=None,
            source=OURS,
            message="no request ended at the speculative pool, so nothing is known of speculation",
            command=f"specops monitor check {found.path}",
        )


def _by(found: RecommendationInputs, key: str) -> str:
    return f"report.{key} of the rollout file" if key in found.rollout.report.model_fields_set else PLAYBOOK


def _acceptance(found: RecommendationInputs) -> Iterator[Recommendation]:
    accepted, limit = speculative_acceptance(found.pools), found.rollout.report.min_acceptance
    if accepted is None or accepted.rate is None or accepted.rate >= limit or found.before.branches:
        return
    yield Recommendation(
        rule="acceptance",
        value=accepted.rate,
        threshold=limit,
        source=_by(found, "min_acceptance"),
        message=f"only {accepted.rate:.2f} of the drafted tokens are accepted: try another draft, or train an"
        " EAGLE-3 head on this traffic",
        command=f"specops sweep {found.path}",
    )


def _speedup(found: RecommendationInputs) -> Iterator[Recommendation]:
    e2e, limit = found.speedup.by["e2e"], found.rollout.report.min_speedup
    if e2e.ratio is not None and e2e.ratio < limit:
        slower = e2e.ratio < 1
        yield Recommendation(
            rule="speed-up",
            value=e2e.ratio,
            threshold=limit,
            source=_by(found, "min_speedup"),
            message=f"answers are {e2e.ratio:.2f}× as fast as the baseline's: "
            + ("speculation costs time" if slower else "ask whether that is worth what it costs"),
            command=f"specops diagnose {found.path}",
        )
    uncompared = None if e2e.comparable_share is None else 1 - e2e.comparable_share
    if uncompared is not None and uncompared > UNCOMPARED:
        yield _unmeasured_load(found, uncompared)


def _heavy(found: RecommendationInputs) -> Iterator[Recommendation]:
    """A load at which speculation was not shown to pay."""
    load, paid = found.load, found.paid
    if load is None or paid is None or load <= paid.up_to * ROOM:
        return
    shown = f"up to {paid.up_to}" if paid.up_to else "at no load"
    yield Recommendation(
        rule="load that pays",
        value=load,
        threshold=float(paid.up_to),
        source=paid.source,
        message=f"requests met {load:.1f} at a time on average, and speculation was shown to pay {shown}",
        command=f"specops route render {found.path}  # its in-flight limit is the load that pays",
    )


def _unmeasured_load(found: RecommendationInputs, uncompared: float) -> Recommendation:
    pool = found.pools["speculative"]
    met = [load for load in pool.load_by_hour if load is not None]
    measured = found.speedup.loads
    heaviest = math.ceil(max(met, default=1))
    more = sorted({*measured, 1, heaviest})
    return Recommendation(
        rule="comparable load",
        value=uncompared,
        threshold=UNCOMPARED,
        source=OURS,
        message=f"{uncompared:.0%} of the requests ran at a level that the baseline does not cover"
        if measured
        else "the speed-up is unknown without a baseline",
        command=f"specops run {found.path} --only baseline  # with measure.concurrency: {more}",
    )


def _fallbacks(found: RecommendationInputs) -> Iterator[Recommendation]:
    settings, weeks = found.rollout.report, found.window.weeks
    by_guard = [one for one in found.fallbacks or [] if one.by == GUARD]
    limit = settings.max_fallbacks * weeks
    if len(by_guard) > limit:
        yield Recommendation(
            rule="fallbacks",
            value=len(by_guard),
            threshold=limit,
            source=_by(found, "max_fallbacks"),
            message=f"the guard fell back {len(by_guard)} times: check the draft against today's traffic",
            command=f"specops guard status {found.path}",
        )


def _watching(found: RecommendationInputs) -> Iterator[Recommendation]:
    down = [one for one in found.incidents or [] if one.alert == "SpecopsGuardDown"]
    if down:
        hours = sum(one.seconds for one in down) / 3600
        yield Recommendation(
            rule="guard",
            value=hours,
            threshold=0.0,
            source=OURS,
            message=f"the guard was down for {hours:.1f} h",
            command=f"specops guard status {found.path}",
        )
    if "speculative" not in found.pools:
        yield _missing_data(found, "speculative", 1.0)
    length = found.window.end - found.window.start
    for name, pool in found.pools.items():
        unseen = sum(gap.seconds for gap in pool.gaps if gap.server is None) / length
        if unseen > UNSEEN:
            yield _missing_data(found, name, unseen)


def _missing_data(found: RecommendationInputs, pool: PoolName, share: float) -> Recommendation:
    return Recommendation(
        rule="data",
        value=share,
        threshold=UNSEEN,
        source=OURS,
        message=f"no data from the {pool} pool for {share:.0%} of the window",
        command=f"specops monitor check {found.path}",
    )


def _memory(found: RecommendationInputs) -> Iterator[Recommendation]:
    pool = found.pools.get("speculative")
    if pool is None or not pool.preemptions:
        return
    kv = pool.kv_usage.highest.value if pool.kv_usage else None
    for what, most in (("the KV cache", kv), ("a GPU's memory", found.gpu_share)):
        if most is not None and most >= MEMORY_FULL:
            yield _full(
                f"{what} was {most:.0%} full, and {pool.preemptions:,.0f} requests preempted", most, found
            )


def _full(what: str, most: float, found: RecommendationInputs) -> Recommendation:
    return Recommendation(
        rule="memory",
        value=most,
        threshold=MEMORY_FULL,
        source=PLAYBOOK,
        message=f"{what}: draft fewer tokens (the playbook says 3), or give the pool more memory",
        command=f"specops sweep {found.path}",
    )


def _drift(found: RecommendationInputs) -> Iterator[Recommendation]:
    for one in found.drift:
        if one.beyond and one.now < one.then:
            yield Recommendation(
                rule="drift",
                value=one.now - one.then,
                threshold=-max(one.noise or 0.0, LEAST),
                source=f"{OURS}: more than twice its standard error, and than {LEAST:g}",
                message=f"{one.what} fell from {one.then:.2f} to {one.now:.2f}, against {one.source}",
                command=f"specops diagnose {found.path}",
            )


def _shorter(found: RecommendationInputs) -> Iterator[Recommendation]:
    """Recommend a smaller K by the week's own acceptance by position and the sweep's cost of a drafted
    token."""
    accepted = speculative_acceptance(found.pools)
    if accepted is None or found.cost is None or found.before.branches:
        return
    curve = [share for share in accepted.per_position if share is not None]
    if not curve or len(curve) < len(accepted.per_position):
        return
    pays = economics.cut(economics.positions(curve, found.cost))
    if pays < len(curve):
        yield Recommendation(
            rule="draft length",
            value=len(curve),
            threshold=pays,
            source="acceptance by position, and the costs of sweep.json",
            message=f"of {len(curve)} drafted tokens only the first {pays} bring more than they cost"
            if pays
            else "no drafted token brings more than it costs",
            command=f"specops sweep {found.path}",
        )
