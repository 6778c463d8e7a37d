"""The capacity gate: if everything falls back to the standard pool, does it carry the load?

What a standard server was measured to do at the highest load that still meets the SLO, times the servers,
less the headroom, against the rollout file's peak. It fails closed: what was not measured, or measured
of something else, does not pass.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops.config import Peak, Rollout
from specops.phases.throughput import Measured, Rate, Unmeasured, measured

Answer = Literal["yes", "no", "undecided"]
UNITS = {"requests_per_s": "requests/s", "tokens_per_s": "tokens/s"}


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Demand(_Stored):
    """One kind of the peak, and what the whole pool offers of it."""

    unit: str
    peak: float
    offered: Rate
    answer: Answer
    servers: int | None
    """How many would carry it, by the lower end; None where there is none above 0."""


class Capacity(_Stored):
    verdict: Answer
    reason: str
    hint: str | None
    demands: list[Demand] = []
    measured: Measured | None = None


def capacity(rollout: Rollout, folder: Path) -> Capacity:
    """The gate's answer from what the run folder has."""
    return gate(rollout.peak, rollout.deploy.standard_replicas, measured(rollout, folder))


def gate(peak: Peak | None, servers: int, found: Measured | Unmeasured) -> Capacity:
    """Yes only where the lower end of what `servers` servers offer reaches the peak; no where the upper end
    does not. Servers are taken to add up, as behind a router that spreads requests evenly."""
    if peak is None:
        hint = "add peak with requests_per_s, tokens_per_s or both, from your busiest minutes"
        return _unknown(Unmeasured(why="the rollout file names no peak", hint=hint))
    if isinstance(found, Unmeasured):
        return _unknown(found)
    demands = []
    for name, unit in UNITS.items():
        wanted, rate = getattr(peak, name), getattr(found, name)
        if wanted is None:
            continue
        if rate is None:
            hint = "give the model's tokenizer.json as measure.tokenizer, or the peak in requests_per_s"
            return _unknown(Unmeasured(why=f"{found.source} has no {unit}", hint=hint))
        demands.append(_demand(unit, wanted, rate, servers, 1 - peak.headroom))
    worst = min(demands, key=lambda demand: ("no", "undecided", "yes").index(demand.answer))
    return Capacity(
        verdict=worst.answer,
        reason=_reason(worst, servers, peak.headroom, found),
        hint=_hint(worst, servers, found),
        demands=demands,
        measured=found,
    )


def _unknown(missing: Unmeasured) -> Capacity:
    reason = f"capacity of the standard pool not known: {missing.why}"
    return Capacity(verdict="undecided", reason=reason, hint=missing.hint)


def _demand(unit: str, peak: float, rate: Rate, servers: int, used: float) -> Demand:
    offered = rate.times(servers * used)
    if offered.low is not None and offered.low >= peak:
        answer: Answer = "yes"
    elif (offered.estimate if offered.high is None else offered.high) < peak:
        answer = "no"
    else:
        answer = "undecided"
    enough = None if rate.low is None or rate.low <= 0 else math.ceil(peak / (rate.low * used))
    return Demand(unit=unit, peak=peak, offered=offered, answer=answer, servers=enough)


def _reason(demand: Demand, servers: int, headroom: float, found: Measured) -> str:
    sustained = {"yes": _at_least, "no": _at_most, "undecided": _between}[demand.answer](demand.offered)
    state = {"yes": "capacity suffices", "no": "capacity too low", "undecided": "capacity undecided"}
    pool = f"{servers} standard server{'s sustain' if servers > 1 else ' sustains'}"
    streams = f"{found.concurrency} stream{'s' if found.concurrency > 1 else ''}"
    return (
        f"{state[demand.answer]}: {pool} {sustained} {demand.unit} at {streams} ({headroom:.0%} headroom); "
        f"peak is {demand.peak:g}"
    )


def _at_least(offered: Rate) -> str:
    return f"at least {offered.low or 0.0:.4g}"


def _at_most(offered: Rate) -> str:
    return f"at most {offered.estimate if offered.high is None else offered.high:.4g}"


def _between(offered: Rate) -> str:
    if offered.low is None or offered.high is None:
        return f"about {offered.estimate:.4g} (one repeat, no interval)"
    return f"{max(offered.low, 0.0):.4g}–{offered.high:.4g}"


def _hint(demand: Demand, servers: int, found: Measured) -> str | None:
    if demand.answer == "yes":
        return None
    ways = []
    if demand.servers is not None and demand.servers > servers:
        ways.append(f"{demand.servers} servers would carry it (deploy.standard_replicas)")
    if demand.answer == "undecided":
        ways.append(f"the interval is over {demand.offered.n} repeats: more measure.repeats narrow it")
    if found.above is None:
        ways.append(f"no more than {found.concurrency} at a time was measured: add to measure.concurrency")
    else:
        ways.append(f"ease slo or add deploy.standard_replicas: at more streams, {found.above}")
    return "; ".join(ways)
