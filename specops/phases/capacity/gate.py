"""The capacity gate: if everything falls back to the standard pool, does it carry the load?

What one standard server was measured to carry, at the highest load that still meets the SLO, times the
servers, less the headroom, against the rollout file's peak. It fails closed: what was not measured, or was
measured of something else, does not pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from specops.config import Peak, Rollout, Slo
from specops.load.record import LevelFigures, RepeatMean, Spread, by_level
from specops.phases.capacity.records import CapacityAnswer
from specops.phases.inputs import left_out, settings_of
from specops.phases.measurement import levels_of
from specops.phases.run_folder import Missing, RunFolder, Stored
from specops.phases.sweep.plan import STANDARD, measurements_of
from specops.results import Result
from specops.section import Frozen

AGAIN = "measure it: specops run ROLLOUT --only baseline"


class Rate(Frozen):
    """A throughput with the ends of its 95% interval over repeats; of one repeat it has none."""

    estimate: float
    low: float | None
    high: float | None
    n: int
    """Repeats."""

    def times(self, factor: float) -> Rate:
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Rate(estimate=self.estimate * factor, low=low, high=high, n=self.n)


class MeasuredServer(Frozen):
    """One standard server, or what answers at the pool's address, at the highest load up to which each load
    measured meets the SLO."""

    source: str
    sha256: str
    created: str
    processor: str | None
    """Processor of the machine that drove the load; of the embedded engine it is the server's too."""

    concurrency: int | None
    """None of a rate that `specops capacity` found: requests arrive, whatever is in flight."""

    above: str | None
    """Why the next load measured does not count; None without a next load."""

    requests_per_s: Rate | None
    tokens_per_s: Rate | None


class UnknownCapacity(Frozen):
    """There is nothing to count on: why, and what would change it."""

    why: str
    change: str


def measured(rollout: Rollout, folder: Path) -> MeasuredServer | UnknownCapacity:
    """Return what the run folder says of the rollout's standard pool as it is now: capacity.json, which has
    the rate at the objective itself; else baseline.json, else sweep.json.

    The machine that drove the load may be another; of the embedded engine it is the server's too.
    """
    run = RunFolder(folder, left_out(rollout, folder))
    searched = _at_objective(run.capacity)
    if searched is not None:
        return searched
    if not isinstance(run.capacity, Missing):
        alone, attain = (
            run.capacity.part.arms["standard"]["at_the_lowest"],
            run.capacity.part.objective.attain,
        )
        if alone is not None and alone < attain:
            why = f"{alone:.0%} of the requests meet the objective where they come one after the other"
            return UnknownCapacity(why=why, change=f"choose an objective that {attain:.0%} of them meet")
    baseline = _highest(run.finished("baseline", levels_of), rollout)
    if isinstance(baseline, MeasuredServer) or not (folder / "sweep.json").exists():
        return baseline
    sweep = _highest(run.finished("sweep", partial(_levels_of_sweep, rollout)), rollout)
    if isinstance(sweep, MeasuredServer):
        return sweep
    return UnknownCapacity(why=f"{baseline.why}; {sweep.why}", change=baseline.change)


def _at_objective(stored: Stored[CapacityAnswer] | Missing) -> MeasuredServer | None:
    """The rate of one standard server at the objective; None where no finished search found it."""
    if isinstance(stored, Missing):
        return None
    standard = stored.part.arms["standard"]
    ends, tokens = standard["rate"], standard["tokens_a_request"]
    if ends is None:
        return None
    rate = Rate(**ends, n=stored.part.blocks)
    return MeasuredServer(
        source=str(stored.path),
        sha256=stored.sha256,
        created=f"{stored.result.created:%Y-%m-%d %H:%M} UTC",
        processor=stored.result.environment.get("processor"),
        concurrency=None,
        above=f"less than {stored.part.objective}",
        requests_per_s=rate,
        tokens_per_s=rate.times(tokens) if tokens else None,
    )


def _levels_of_sweep(rollout: Rollout, result: Result, name: str) -> list[LevelFigures] | str:
    """The sweep's K = 0, where its cells are what a baseline's are: all prompts, as the rollout asks them;
    else why they are not."""
    if rollout.pools.standard.own is not None:
        return "it does not record the model files of the standard pool"
    requested = settings_of(rollout, rollout.pools.standard)
    stored = measurements_of(result, name)
    if any(failure.setting == STANDARD for failure in stored.failed):
        return "K = 0 failed in at least one of its rungs"
    swept = [
        measurement
        for measurement in stored.cells
        if measurement.setting == STANDARD
        and measurement.temperature == requested.temperature
        and measurement.cell.complete
    ]
    if len({measurement.length for measurement in swept}) > 1:
        return "it measured each prompt-length class separately"
    return by_level([measurement.cell for measurement in swept])


def _highest(
    stored: Stored[list[LevelFigures]] | Stored[list[LevelFigures] | str] | Missing, rollout: Rollout
) -> MeasuredServer | UnknownCapacity:
    if isinstance(stored, Missing):
        hint = stored.damage.hint if stored.damage else None
        return UnknownCapacity(why=stored.why, change=hint or AGAIN)
    levels, result, path = stored.part, stored.result, stored.path
    if isinstance(levels, str):
        return UnknownCapacity(why=f"{path.name} is not used: {levels}", change=AGAIN)
    best: LevelFigures | None = None
    above = None
    for level in sorted(levels, key=lambda level: level.concurrency or 0):
        above = _too_much(level, rollout.slo, rollout.measure.max_error_share)
        if above is not None:
            break
        best = level
    if best is None or best.concurrency is None:
        change = "fix the server, or relax slo: it fails or misses the SLO at the lowest level"
        return UnknownCapacity(why=above or f"{path} has no level of concurrency", change=change)
    rates = best.over_repeats
    return MeasuredServer(
        source=str(path),
        sha256=stored.sha256,
        created=f"{result.created:%Y-%m-%d %H:%M} UTC",
        processor=result.environment.get("processor"),
        concurrency=best.concurrency,
        above=above,
        requests_per_s=_rate(rates.get("requests_per_sec")),
        tokens_per_s=_rate(rates.get("tokens_per_sec")),
    )


def _rate(ends: RepeatMean | None) -> Rate | None:
    return None if ends is None else Rate(estimate=ends.estimate, low=ends.low, high=ends.high, n=ends.n)


def _too_much(level: LevelFigures, slo: Slo | None, max_error_share: float) -> str | None:
    """Return why this load does not count: too many failures, or a p95 that misses the SLO or is not
    known."""
    load = f"at {level.concurrency} stream{'s' if level.concurrency != 1 else ''}"
    if level.failed > max_error_share * level.requests:
        return f"{level.failed} of {level.requests} requests failed {load}"
    for name, spread, bound in _bounds(level, slo):
        if spread.p95 is None:
            missing = spread.missing.get("p95", "it was not measured")
            return f"the p95 of {name} {load} is not known ({missing})"
        if spread.p95 > bound:
            return f"the p95 of {name} {load} is {spread.p95:.0f} ms (slo {bound:g} ms)"
    return None


def _bounds(level: LevelFigures, slo: Slo | None) -> Iterator[tuple[str, Spread, float]]:
    bounds: Mapping[str, Any] = slo.model_dump() if slo else {}
    for name, spread in (
        ("ttft", level.ttft_ms),
        ("tpot", level.tpot_ms),
        ("e2e", level.e2e_with_retries_ms),
    ):
        if bounds.get(f"{name}_ms") is not None:
            yield name.upper(), spread, bounds[f"{name}_ms"]


Answer = Literal["yes", "no", "undecided"]
UNITS = {"requests_per_s": "requests/s", "tokens_per_s": "tokens/s"}


class Demand(Frozen):
    """One kind of the peak, and what the whole pool offers of it."""

    unit: str
    peak: float
    offered: Rate
    answer: Answer
    servers: int | None
    """How many would carry it, by the lower end; None where the lower end is 0."""


class Capacity(Frozen):
    verdict: Answer
    reason: str
    change: str | None
    demands: list[Demand] = Field(default=[])
    measured: MeasuredServer | None = None


def capacity(rollout: Rollout, folder: Path) -> Capacity:
    """The gate's answer from what the run folder has."""
    return gate(rollout.peak, rollout.deploy.standard_replicas, measured(rollout, folder))


def gate(peak: Peak | None, servers: int, measured: MeasuredServer | UnknownCapacity) -> Capacity:
    """Yes only where the lower end of what `servers` servers offer reaches the peak; no where the upper end
    does not. Servers are taken to add up, as behind a router that spreads requests evenly."""
    if peak is None:
        change = "add peak with requests_per_s, tokens_per_s or both, from your busiest minutes"
        return _unknown(UnknownCapacity(why="the rollout file names no peak", change=change))
    if isinstance(measured, UnknownCapacity):
        return _unknown(measured)
    demands = []
    for name, unit in UNITS.items():
        peak_rate, rate = getattr(peak, name), getattr(measured, name)
        if peak_rate is None:
            continue
        if rate is None:
            change = "give the model's tokenizer.json as measure.tokenizer, or the peak in requests_per_s"
            return _unknown(UnknownCapacity(why=f"{measured.source} has no {unit}", change=change))
        demands.append(_demand(unit, peak_rate, rate, servers, 1 - peak.headroom))
    worst = min(demands, key=lambda demand: ("no", "undecided", "yes").index(demand.answer))
    return Capacity(
        verdict=worst.answer,
        reason=_reason(worst, servers, peak.headroom, measured),
        change=_change(worst, servers, measured),
        demands=demands,
        measured=measured,
    )


def _unknown(missing: UnknownCapacity) -> Capacity:
    reason = f"capacity undecided: {missing.why}"
    return Capacity(verdict="undecided", reason=reason, change=missing.change)


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


def _reason(demand: Demand, servers: int, headroom: float, measured: MeasuredServer) -> str:
    sustained = {"yes": _at_least, "no": _at_most, "undecided": _between}[demand.answer](demand.offered)
    state = {"yes": "capacity suffices", "no": "capacity too low", "undecided": "capacity undecided"}
    pool = f"{servers} standard server{'s sustain' if servers > 1 else ' sustains'}"
    load = "the objective"
    if measured.concurrency is not None:
        load = f"{measured.concurrency} stream{'s' if measured.concurrency > 1 else ''}"
    return (
        f"{state[demand.answer]}: {pool} {sustained} {demand.unit} at {load} ({headroom:.0%} headroom); "
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


def _change(demand: Demand, servers: int, measured: MeasuredServer) -> str | None:
    if demand.answer == "yes":
        return None
    ways = []
    if demand.servers is not None and demand.servers > servers:
        ways.append(f"{demand.servers} servers would carry it (deploy.standard_replicas)")
    if demand.answer == "undecided":
        ways.append(
            "a smaller capacity.precision narrows the interval"
            if measured.concurrency is None
            else f"the interval has {demand.offered.n} repeats: more measure.repeats narrow it"
        )
    if measured.concurrency is None:
        ways.append(f"relax slo or add deploy.standard_replicas: at a higher rate, {measured.above}")
    elif measured.above is None:
        ways.append(
            f"the highest measured level is {measured.concurrency}: add levels to measure.concurrency"
        )
    else:
        ways.append(f"relax slo or add deploy.standard_replicas: at more streams, {measured.above}")
    return "; ".join(ways)
