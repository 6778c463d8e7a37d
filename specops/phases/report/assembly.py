"""The assembly of a report, from Prometheus data and the run folder to a Result. Only `query` sends requests;
the rest reads files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np

from specops import results
from specops.config import Rollout
from specops.errors import SpecopsError
from specops.guard import journal
from specops.hints import named
from specops.phases.commands import Commands
from specops.phases.inputs import left_out, version_of
from specops.phases.monitor.thresholds import Measurements, measurements
from specops.phases.report import comparison, events, pools, recommend
from specops.phases.report.prometheus_data import Floats, PoolData, PrometheusData, query
from specops.phases.report.report import (
    FallbackPeriod,
    MissingData,
    ReportWindow,
    SavedTime,
    Times,
    WeeklyReport,
)
from specops.phases.run_folder import Missing, RunFolder
from specops.progress import Progress
from specops.prometheus.api import Api
from specops.prometheus.series import POOL
from specops.results import Result

JOURNAL = Path("guard") / journal.FILE


def report(
    rollout: Rollout, path: Path, folder: Path, window: ReportWindow, api: Api, progress: Progress
) -> Result:
    """The report on `window`. `path` is the rollout file, for commands; `folder` is the run folder.

    The verdict is undecided if Prometheus does not have the whole window. Raises EndpointError if Prometheus
    does not answer.
    """
    observed = query(rollout, window, api, progress)
    return assemble(rollout, path, folder, observed)


def assemble(rollout: Rollout, path: Path, folder: Path, observed: PrometheusData) -> Result:
    """The report on data that was queried before. Reads the run folder."""
    measured = measurements(rollout, folder, left_out(rollout, folder, version_of(rollout)))
    data = _report(rollout, path, folder, observed, measured)
    return Result(
        phase="report",
        inputs=dict(measured.read),
        settings={
            "report": rollout.report.model_dump(mode="json"),
            "costs": rollout.costs.model_dump(mode="json") if rollout.costs else None,
            "prometheus": observed.prometheus,
        },
        environment=results.environment(),
        verdict="yes" if data.covered_hours == data.window.hours else "undecided",
        reason=_reason(data, observed, path),
        summary=_summary(data),
        data=data.model_dump(mode="json"),
    )


def _report(
    rollout: Rollout, path: Path, folder: Path, observed: PrometheusData, measured: Measurements
) -> WeeklyReport:
    window, spec = observed.window, observed.pools["speculative"]
    run = RunFolder(folder)
    now, then = slice(window.hours, None), slice(0, window.hours)
    by_name = {name: pools.pool(pool_data, window) for name, pool_data in observed.pools.items()}
    present = {name: pool for name, pool in by_name.items() if pool is not None}
    pool = present.get("speculative")
    faster = comparison.speedup(spec, window, now, measured.loads, measured.baseline)
    met = _mean_load(pools.load(spec, window, now), pools.sums(spec, "e2e", now)[1])
    drifted = comparison.drift(
        pool.acceptance if pool else None,
        pools.acceptance(spec, window.previous, then),
        measured.acceptance,
        faster,
        comparison.speedup(spec, window.previous, then, measured.loads, measured.baseline),
        comparison.measured_speedups(run),
        met,
    )
    fired = events.incidents(window, observed.firing, observed.up) if observed.up else None
    fell, no_journal = _fallbacks(window, folder / JOURNAL)
    memory = pools.gpus(observed)
    basis = recommend.RecommendationInputs(
        rollout=rollout,
        path=path,
        sweep=Commands(rollout, path, folder).sweep(),
        window=window,
        before=measured,
        pools=present,
        speedup=faster,
        incidents=fired,
        fallbacks=fell,
        drift=drifted,
        gpu_share=max((gpu.most_share for gpu in memory), default=None),
        cost=comparison.step_cost(run),
        load=met,
        paying=run.paying_load,
        carried=_carried(RunFolder(folder, left_out(rollout, folder))),
    )
    advice = recommend.recommendations(basis) if present else []
    return WeeklyReport(
        rollout=rollout.rollout,
        folder=str(folder),
        window=_times(window),
        covered_hours=_covered_hours(observed),
        pools=present,
        speedup=faster,
        days=comparison.days(spec, window, now, measured.loads) if pool else [],
        classes=pools.classes(observed.router),
        incidents=fired,
        fallbacks=fell,
        gpus=memory,
        saved=_saved(rollout, spec, window, now, measured),
        drift=drifted,
        recommendations=advice,
        missing=list(missing_data(rollout, path, observed, measured, no_journal)),
        first_report=_first_report(observed),
        effect=observed.effect,
        status="no data" if not present else "look" if advice else "good",
    )


def _carried(run: RunFolder) -> recommend.CarriedRate | None:
    """None without a finished search for the capacity of these pools."""
    if isinstance(run.capacity, Missing):
        return None
    ends = run.capacity.part.arms["speculative"]["rate"]
    return None if ends is None else recommend.CarriedRate(ends["estimate"], run.capacity.source)


def _fallbacks(window: ReportWindow, path: Path) -> tuple[list[FallbackPeriod] | None, str | None]:
    """The fallbacks, or why they are unknown: a damaged journal does not stop the report."""
    try:
        entries = list(journal.history(path))
    except SpecopsError as error:
        return None, error.message
    if not entries:
        return None, "the run folder has no guard journal"
    return events.fallbacks(window, entries), None


def _covered_hours(observed: PrometheusData) -> int:
    """Hours of the window of which Prometheus has a scrape of a pool's server."""
    gauges = [gauge for gauge in observed.up if POOL in gauge.labels]
    for pool in observed.pools.values():
        gauges += pool.running
    hours = {hour for gauge in gauges for hour in gauge.hour_of(observed.window)}
    return sum(0 <= hour < observed.window.hours for hour in hours)


def _times(window: ReportWindow) -> Times:
    return Times(
        zone=window.zone.key,
        start=window.iso(window.start),
        end=window.iso(window.end),
        hours=window.hours,
        begins=[begin.isoformat(timespec="seconds") for begin in window.begins()],
    )


def _mean_load(load: Floats, n: Floats) -> float | None:
    counted = ~np.isnan(load) & (n > 0)
    return float(np.average(load[counted], weights=n[counted])) if counted.any() else None


def _saved(
    rollout: Rollout, spec: PoolData, window: ReportWindow, now: slice, measured: Measurements
) -> SavedTime | None:
    spent = comparison.hourly_seconds(spec, "e2e", window, now, measured.loads)
    return comparison.saved(spent, pools.increases(spec, spec.names.generated, now).hourly, rollout.costs)


def _first_report(observed: PrometheusData) -> str | None:
    if observed.scraped_from is None:
        return None
    return observed.window.full_hour(observed.scraped_from).isoformat(timespec="seconds")


def _reason(data: WeeklyReport, observed: PrometheusData, path: Path) -> str:
    if data.status == "no data":
        nothing = (
            f"Prometheus at {observed.prometheus} has no data of rollout {data.rollout} from"
            f" {data.window.start} to {data.window.end}"
        )
        if observed.scraped_from is None or data.first_report is None:
            return nothing
        since = observed.window.local(observed.scraped_from)
        return (
            f"{nothing}: it scrapes the pools since {since:%Y-%m-%d %H:%M}, and a report covers full"
            " hours. The first report is possible at"
            f" {datetime.fromisoformat(data.first_report):%Y-%m-%d %H:%M} {data.window.zone}:"
            f" specops report {shlex.quote(str(path))}"
        )
    number = len(data.recommendations)
    advice = (
        "1 recommendation" if number == 1 else f"{number} recommendations" if number else "no action needed"
    )
    if data.covered_hours == data.window.hours:
        return advice
    return (
        f"Prometheus has {data.covered_hours} of the window's {data.window.hours} hours: {advice} from these"
    )


def _summary(data: WeeklyReport) -> dict[str, float | int | str | None]:
    pool = data.pools.get("speculative")
    accepted = pool.acceptance if pool else None
    return {
        "status": data.status,
        "acceptance": accepted.rate if accepted else None,
        "e2e_speedup": data.speedup.by["e2e"].ratio,
        "incidents": None if data.incidents is None else len(data.incidents),
        "fallbacks": None if data.fallbacks is None else len(data.fallbacks),
        "server_hours_saved": data.saved.without_server_hours - data.saved.server_hours
        if data.saved
        else None,
        "money_saved": data.saved.money if data.saved else None,
        "recommendations": len(data.recommendations),
    }


def missing_data(
    rollout: Rollout, path: Path, observed: PrometheusData, measured: Measurements, no_journal: str | None
) -> Iterator[MissingData]:
    """Yield what data is missing. `no_journal`: why nothing is known of the guard; None where something
    is."""
    file = shlex.quote(str(path))
    check = f"specops monitor check {file}"
    for name, pool_data in observed.pools.items():
        if not pool_data.running:
            yield MissingData(what=f"the {name} pool", why="Prometheus has no series of it", fix=check)
    hours, covered = observed.window.hours, _covered_hours(observed)
    if 0 < covered < hours:
        yield MissingData(
            what=f"{hours - covered} of the window's {hours} hours",
            why="Prometheus has no scrape of a pool's server in them",
            fix="start Prometheus with a longer --storage.tsdb.retention.time, or give a shorter --window",
        )
    for phase, text in measured.missing.items():
        why, _, fix = text.rpartition(": ")  # as `before` writes it
        yield MissingData(what=phase, why=why, fix=named(fix, file))
    speculative = observed.pools["speculative"]
    if speculative.running and speculative.drafting.drafted.total is None:
        yield MissingData(what="acceptance", why="Prometheus shows nothing of its drafts", fix=check)
    if not any(series.labels for series in observed.router.values()):
        fix = f"specops route render {file}, and addresses.routers in the rollout file"
        yield MissingData(what="latencies by class", why="no router is scraped", fix=fix)
    if not observed.gpu_used:
        fix = "addresses.gpus in the rollout file"
        yield MissingData(what="GPU memory", why="no DCGM exporter is scraped", fix=fix)
    if no_journal is not None:
        yield MissingData(what="fallbacks", why=no_journal, fix=f"specops guard run {file}")
    if not observed.up:
        yield MissingData(what="incidents", why="Prometheus has no `up` of the rollout's targets", fix=check)
    if rollout.costs is None:
        yield MissingData(
            what="cost", why="the rollout file has no costs", fix="add costs.standard_per_hour to it"
        )
