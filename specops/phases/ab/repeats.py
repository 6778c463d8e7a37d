"""Whether an arm answers repeated requests from a cache. Pure.

Each prompt is sent several times. In production few requests are repeats, so where an arm surely answers
repeats faster, only its first requests say how fast it is; pairing asks the same of the other arm.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean, median

from pydantic import BaseModel, ConfigDict

from specops import stats
from specops.load.arrivals import Level
from specops.load.record import positive
from specops.phases.ab.faults import SLOW
from specops.phases.ab.records import VisitRecord
from specops.phases.ab.settings import AbSettings
from specops.phases.ab.speedups import FIGURES, Figure, Pairs, Shown, ordered, pair_up
from specops.stats import Interval

NOTABLE = 1.05
"""Repeats that are faster by less than a twentieth do not count as cached: a warm-up may be the reason."""


class Repeats(BaseModel):
    """First requests compared with repeats of the same prompts, in one arm."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arm: str
    figure: Figure
    ratio: Shown | None
    """What first requests took over what repeats took; above 1, repeats are faster."""

    cached: bool


def compare(visits: Iterable[VisitRecord], arm: str, confidence: float) -> list[Repeats]:
    """One for each figure. A prompt's repeats are those at the load of its first request; where there are
    none, those at heavier loads, which only a cache makes faster."""
    ours = sorted((visit for visit in visits if visit.arm == arm), key=lambda visit: visit.began)
    return [_compare(ours, arm, figure, confidence) for figure in FIGURES]


def pairs_of(
    visits: Sequence[VisitRecord],
    standard: str,
    challenger: str,
    settings: AbSettings,
    sent_before: Collection[str] = (),
) -> Pairs:
    """The pairs of a comparison: of figures that a cache makes faster, only first requests count."""
    found = [one for arm in (standard, challenger) for one in compare(visits, arm, settings.confidence)]
    return pair_up(
        visits,
        standard,
        challenger,
        settings.design,
        first_only=cached_figures(found),
        sent_before=sent_before,
    )


def cached_figures(found: Iterable[Repeats]) -> frozenset[Figure]:
    """Of which only first requests count. A cached answer has neither its own latency nor its own TPOT."""
    figures: set[Figure] = {one.figure for one in found if one.cached}
    if figures & {"e2e", "tpot"}:
        figures |= {"e2e", "tpot"}
    return frozenset(figures)


def first_visits(visits: Iterable[VisitRecord], sent_before: Collection[str] = ()) -> list[VisitRecord]:
    """The visits in which no prompt had been sent to the arm before."""
    sent: dict[str, set[str]] = defaultdict(lambda: set(sent_before))
    found = []
    for visit in sorted(visits, key=lambda visit: visit.began):
        prompts = {row.prompt for row in visit.cell.rows}
        if not prompts & sent[visit.arm]:
            found.append(visit)
        sent[visit.arm] |= prompts
    return found


def _compare(visits: list[VisitRecord], arm: str, figure: Figure, confidence: float) -> Repeats:
    first: dict[str, tuple[float | None, Level, tuple[int, int]]] = {}
    same: dict[str, list[float]] = defaultdict(list)
    heavier: dict[str, list[float]] = defaultdict(list)
    for visit in visits:
        level = visit.cell.level
        for row in visit.cell.rows:
            taken = positive(getattr(row, f"{figure}_ms")) if row.error is None else None
            if row.prompt not in first:
                first[row.prompt] = taken, level, (visit.stage, visit.block)
            elif taken and level == first[row.prompt][1]:
                same[row.prompt].append(taken)
            elif taken and level in ordered([first[row.prompt][1], level])[1:]:
                heavier[row.prompt].append(taken)
    known = [
        (taken, same.get(prompt) or heavier[prompt], block)
        for prompt, (taken, _, block) in sorted(first.items())
        if taken and (prompt in same or prompt in heavier)
    ]
    # Requests that hung at first must not look like a cache, so they are left out here.
    usual = median(taken for taken, *_ in known) if known else 0.0
    logs: dict[tuple[int, int], list[float]] = defaultdict(list)
    for before, later, block in known:
        if before <= SLOW * usual:
            logs[block].append(math.log(before / fmean(later)))
    mean = stats.mean_interval([fmean(of) for of in logs.values()], confidence)
    ratio = None
    if mean is not None and len(known) >= stats.MIN_PAIRS:
        low, high = math.exp(mean.low), math.exp(mean.high)
        ratio = Interval(math.exp(mean.estimate), low, high, len(known), confidence)
    cached = ratio is not None and ratio.low > 1 and ratio.estimate >= NOTABLE
    return Repeats(arm=arm, figure=figure, ratio=ratio, cached=cached)
