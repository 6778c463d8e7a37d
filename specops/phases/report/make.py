"""From what a Prometheus has and what the run folder holds to a Result. Only `look` asks anybody anything."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np

from specops import results
from specops.config import Rollout
from specops.errors import SpecopsError
from specops.guard import journal
from specops.phases.monitor.before import Before, before
from specops.phases.report import (
    classes,
    daily,
    drift,
    earlier,
    fallbacks,
    gpus,
    incidents,
    pools,
    recommend,
)
from specops.phases.report import speedup as speedups
from specops.phases.report.grown import Floats
from specops.phases.report.lacking import lacking
from specops.phases.report.ratios import iso
from specops.phases.report.report import Fallback, Report, Saved, Times
from specops.phases.report.seen import Seen, SeenPool, look
from specops.phases.report.window import Window
from specops.phases.yardsticks import left_out, version_of
from specops.progress import Progress
from specops.prometheus.api import Api
from specops.results import Result

JOURNAL = Path("guard") / journal.FILE


def report(
    rollout: Rollout, path: Path, folder: Path, window: Window, api: Api, progress: Progress
) -> Result:
    """`path` is the rollout file's, for commands. Undecided where Prometheus has nothing of either pool.

    Raises EndpointError where Prometheus does not answer.
    """
    seen = look(rollout, window, api, progress)
    return made(rollout, path, folder, seen)


def made(rollout: Rollout, path: Path, folder: Path, seen: Seen) -> Result:
    """The same, of what was seen."""
    known = before(rollout, folder, left_out(rollout, folder, version_of(rollout)))
    data = _report(rollout, path, folder, seen, known)
    return Result(
        phase="report",
        inputs=dict(known.read),
        settings={
            "report": rollout.report.model_dump(mode="json"),
            "costs": rollout.costs.model_dump(mode="json") if rollout.costs else None,
            "prometheus": seen.prometheus,
        },
        environment=results.environment(),
        verdict="yes" if data.pools else "undecided",
        reason=_reason(data, seen, path),
        summary=_summary(data),
        data=data.model_dump(mode="json"),
    )


def _report(rollout: Rollout, path: Path, folder: Path, seen: Seen, known: Before) -> Report:
    window, spec = seen.window, seen.pools["speculative"]
    now, then = slice(window.hours, None), slice(0, window.hours)
    found = {name: pools.pool(each, window) for name, each in seen.pools.items()}
    there = {name: pool for name, pool in found.items() if pool is not None}
    pool = there.get("speculative")
    faster = speedups.speedup(spec, window, now, known.loads, known.baseline)
    met = _mean_load(pools.load(spec, window, now), pools.sums(spec, "e2e", now)[1])
    drifted = drift.drift(
        pool.acceptance if pool else None,
        pools.acceptance(spec, window.previous, then),
        known.acceptance,
        faster,
        speedups.speedup(spec, window.previous, then, known.loads, known.baseline),
        earlier.compared(folder),
        met,
    )
    fired = incidents.incidents(window, seen.firing, seen.up) if seen.up else None
    fell, no_journal = _fallbacks(window, folder / JOURNAL)
    memory = gpus.gpus(seen)
    basis = recommend.Found(
        rollout=rollout,
        path=path,
        window=window,
        before=known,
        pools=there,
        speedup=faster,
        incidents=fired,
        fallbacks=fell,
        drift=drifted,
        gpu_share=max((gpu.most_share for gpu in memory), default=None),
        cost=earlier.step_cost(folder),
        load=met,
        paid=earlier.paid(folder),
    )
    advice = recommend.recommendations(basis) if there else []
    return Report(
        rollout=rollout.rollout,
        folder=str(folder),
        window=_times(window),
        pools=there,
        speedup=faster,
        days=daily.days(spec, window, now, known.loads) if pool else [],
        classes=classes.classes(seen.router),
        incidents=fired,
        fallbacks=fell,
        gpus=memory,
        saved=_saved(rollout, spec, window, now, known),
        drift=drifted,
        recommendations=advice,
        missing=list(lacking(rollout, path, seen, known, no_journal)),
        first_report=_first_report(seen),
        status="no data" if not there else "look" if advice else "good",
    )


def _fallbacks(window: Window, path: Path) -> tuple[list[Fallback] | None, str | None]:
    """Or why there are none: the rest of a report does not wait for a journal to be mended."""
    try:
        entries = list(journal.history(path))
    except SpecopsError as error:
        return None, error.message
    if not entries:
        return None, "there is no journal of the guard in the run folder"
    return fallbacks.fallbacks(window, entries), None


def _times(window: Window) -> Times:
    return Times(
        zone=window.zone.key,
        start=iso(window, window.start),
        end=iso(window, window.end),
        hours=window.hours,
        begins=[begin.isoformat(timespec="seconds") for begin in window.begins()],
    )


def _mean_load(load: Floats, n: Floats) -> float | None:
    both = ~np.isnan(load) & (n > 0)
    return float(np.average(load[both], weights=n[both])) if both.any() else None


def _saved(rollout: Rollout, spec: SeenPool, window: Window, now: slice, known: Before) -> Saved | None:
    taken = speedups.taken(spec, "e2e", window, now, known.loads)
    return speedups.saved(taken, pools.grown(spec, spec.names.generated, now).hourly, rollout.costs)


def _first_report(seen: Seen) -> str | None:
    if seen.scraped_from is None:
        return None
    return seen.window.full_hour(seen.scraped_from).isoformat(timespec="seconds")


def _reason(data: Report, seen: Seen, path: Path) -> str:
    if data.status == "no data":
        nothing = (
            f"Prometheus at {seen.prometheus} has nothing of rollout {data.rollout} between"
            f" {data.window.start} and {data.window.end}"
        )
        if seen.scraped_from is None or data.first_report is None:
            return nothing
        since = seen.window.local(seen.scraped_from)
        return (
            f"{nothing}: it has scraped the pools since {since:%Y-%m-%d %H:%M}, and a report is of full"
            f" hours. The first can be made at {datetime.fromisoformat(data.first_report):%Y-%m-%d %H:%M}"
            f" {data.window.zone}: specops report {path}"
        )
    number = len(data.recommendations)
    if number == 0:
        return "nothing needs to be done"
    return "1 thing is recommended" if number == 1 else f"{number} things are recommended"


def _summary(data: Report) -> dict[str, float | int | str | None]:
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
