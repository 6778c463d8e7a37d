"""What a sweep would do, and how long it would take by what was measured before. Nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops import results
from specops.phases import measurement
from specops.phases.sweep import plan
from specops.phases.sweep.confirmation import confirming
from specops.phases.sweep.halving import Halving
from specops.phases.sweep.jobs import Rung
from specops.phases.sweep.records import Picked, measurements_of
from specops.phases.sweep.timing import Sample, Timing, of_a_baseline, swept
from specops.phases.sweep.wanted import Wanted

Source = Literal["sweep", "baseline"]


class PlannedRung(BaseModel):
    model_config = ConfigDict(frozen=True)

    rung: int
    starts: int
    """Of servers, the standard's two among them."""

    cells: int
    requests: int
    """Those of warm-ups left out."""

    seconds: float | None
    """Null while nothing is known."""


class Forecast(BaseModel):
    """What is left to do of a sweep that was begun. With a budget, later rungs depend on the first."""

    model_config = ConfigDict(frozen=True)

    settings: list[str]
    loads: list[str]
    prompts: dict[str, int]
    """By class of length."""

    rungs: list[PlannedRung]
    seconds: float | None
    known_from: Source | None
    without_starts: bool
    """The seconds are of the requests alone: no server's start was timed yet."""

    budget_min: float | None


def forecast(wanted: Wanted, path: Path) -> Forecast:
    """By an earlier sweep at `path`, or a baseline.json beside it, of these inputs or others. FileError where
    they are damaged."""
    samples, source = samples_of(path)
    timing = Timing(samples, wanted.asked.warmup) if samples else None
    rungs = [_planned(rung, timing) for rung in _rungs(wanted, timing)]
    known = [rung.seconds for rung in rungs if rung.seconds is not None]
    return Forecast(
        settings=[setting.name for setting in wanted.settings],
        loads=[str(load) for load in wanted.loads],
        prompts={name: len(of) for name, of in wanted.lengths.classes.items()},
        rungs=rungs,
        seconds=round(sum(known), 3) if timing and len(known) == len(rungs) else None,
        known_from=source,
        without_starts=timing is not None and not timing.knows_starts(),
        budget_min=wanted.budget_min,
    )


def _rungs(wanted: Wanted, timing: Timing | None) -> Sequence[Rung]:
    """Those that are known beforehand. Which settings a confirmation will have is not: the first ones stand
    for them."""
    decks = wanted.decks()
    several = len(wanted.settings) > 2
    streams = sorted({load.concurrency for load in wanted.loads})
    picked = Picked(settings=tuple(one.name for one in wanted.settings[1:3]), streams=tuple(streams))
    if wanted.budget_min is None:
        repeats = wanted.asked.repeats
        chosen = plan.whole(wanted.settings, wanted.loads, decks, repeats) if several else []
        last = confirming(picked, wanted.settings, wanted.loads, decks, len(chosen), {})
        return [*chosen, *last.rungs(last.even(repeats))]
    of_loads = {load: decks.choice[load.length] for load in wanted.loads}
    halving = Halving(wanted.settings, of_loads, confidence=wanted.confidence)
    first = halving.opening(0)
    if first is None:
        last = confirming(picked, wanted.settings, wanted.loads, decks, 0, {})
        return last.rungs([last.fewest()])
    left_s = 60 * wanted.budget_min
    fits = first if timing is None else halving.fitting(first, timing, left_s - timing.job(first.standard))
    return [fits] if fits else []


def _planned(rung: Rung, timing: Timing | None) -> PlannedRung:
    jobs = (rung.standard, *rung.jobs, rung.standard)
    seconds = timing.rung(rung) if timing else None
    return PlannedRung(
        rung=rung.standard.rung,
        starts=len(jobs),
        cells=sum(len(job.cells) for job in jobs),
        requests=sum(len(cell.prompts) for job in jobs for cell in job.cells),
        seconds=None if seconds is None else round(seconds, 3),
    )


def samples_of(sweep: Path) -> tuple[list[Sample], Source | None]:
    """How long servers took, by the sweep at this path, else by the baseline.json beside it."""
    baseline = sweep.with_name("baseline.json")
    if sweep.exists():
        samples = swept(measurements_of(results.read(sweep), str(sweep)).cells)
        if samples:
            return samples, "sweep"
    if baseline.exists():
        return of_a_baseline(measurement.cells_of(measurement.read(baseline), str(baseline))), "baseline"
    return [], None
