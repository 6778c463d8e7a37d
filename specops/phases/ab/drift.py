"""What changed on the way that speculation did not cause: a server that slows down, who went first, a
warm-up that was too short. Pure.

Latencies are compared with what is usual for their traffic class and level in their arm, in time since the
arm's period began: arms that take turns drift with the machine alike, and what is left is a server's own.
Each prompt counts once, with the mean over its visits, since those have the prompt in common.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops import stats
from specops.load.arrivals import Level
from specops.load.record import Row, positive
from specops.phases.ab.records import VisitRecord
from specops.phases.ab.speedups import Pairs, Shown
from specops.stats import Interval

NOTABLE = 1.05
"""A change by less than a twentieth is not flagged, however sure: nobody would act on it."""

Kind = Literal["slow-down", "speed-up", "order", "warm-up"]
"""slow-down: an arm's latency at the end over that at the beginning.
speed-up: a challenger's speed-up at the end over that at the beginning.
order: a challenger's speed-up when it went first over that when it went second.
warm-up: an arm's latency in the first visit to each level of a period over that in the later ones."""


class Drift(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    arm: str
    change: Shown | None
    """A ratio: 1 is no change. None where there are too few samples to say."""

    flagged: bool
    message: str


@dataclass(frozen=True)
class _Sample:
    """The logarithm of one latency, or of one speed-up."""

    prompt: str
    usual: tuple[str, Level]
    """What it is compared with: those of its class and level."""

    at: float
    """Seconds since the period began."""

    value: float
    first: bool
    """Of samples of one arm: in its first visit to the level. Of two arms: the challenger went first."""


def found(visits: Sequence[VisitRecord], arms: Sequence[str], confidence: float) -> list[Drift]:
    """All that was looked for, arm by arm; the intervals of one kind hold together with `confidence`."""
    of_arms = 1 - (1 - confidence) / len(arms)
    of_challengers = 1 - (1 - confidence) / max(1, len(arms) - 1)
    drifts = []
    for arm in arms:
        samples = _latencies(visits, arm)
        drifts.append(_drift("slow-down", arm, _trend(samples, of_arms)))
        drifts.append(_drift("warm-up", arm, _apart(samples, of_arms)))
    for challenger in arms[1:]:
        samples = _speedups(visits, arms[0], challenger)
        drifts.append(_drift("speed-up", challenger, _trend(samples, of_challengers)))
        drifts.append(_drift("order", challenger, _order(samples, of_challengers)))
    return drifts


def one_sided(drifts: Iterable[Drift], challenger: str) -> Drift | None:
    """What says that the challenger or the standard changed during the run and the other did not.

    Their ratio says so, prompt by prompt. That one arm's own trend is flagged and the other's is not does
    not: both were given the same prompts, and what those do to the two trends they do alike.
    """
    of_ratio = (d for d in drifts if d.flagged and (d.kind, d.arm) == ("speed-up", challenger))
    return next(of_ratio, None)


def halves(pairs: Pairs, confidence: float) -> tuple[Interval | None, Interval | None]:
    """The end-to-end speed-up in the first and the last half of the run, of pairs at one level."""
    if not pairs.all:
        return None, None
    middle = median(pair.began for pair in pairs.all)
    early = replace(pairs, all=tuple(pair for pair in pairs.all if pair.began < middle))
    late = replace(pairs, all=tuple(pair for pair in pairs.all if pair.began >= middle))
    return early.ratio("e2e", confidence), late.ratio("e2e", confidence)


def lowest(pairs: Pairs, drift: Drift, confidence: float) -> Interval | None:
    """The end-to-end speed-up at the end of the run at which it was lowest, of pairs at one level.

    The whole run has the mean. Of a latency that grows evenly to R times, that is (1 + R) / 2 of what it was;
    R is the largest change that the drift's interval has.
    """
    whole, change = pairs.ratio("e2e", confidence), drift.change
    if whole is None or change is None:
        return None
    return whole.times(2 / (1 + max(change.high, 1 / change.low)))


def _drift(kind: Kind, arm: str, change: Interval | None) -> Drift:
    sure = change is not None and (change.low > 1 or change.high < 1)
    flagged = change is not None and sure and not 1 / NOTABLE < change.estimate < NOTABLE
    if change is None:
        return Drift(
            kind=kind,
            arm=arm,
            change=None,
            flagged=False,
            message=f"{_ASKED[kind](arm)}: too few prompts to say",
        )
    span = f"[{_percent(change.low)}, {_percent(change.high)}]"
    told = f"{_ASKED[kind](arm)}: {_percent(change.estimate)} {span}"
    return Drift(kind=kind, arm=arm, change=change, flagged=flagged, message=told)


_ASKED: dict[Kind, Callable[[str], str]] = {
    "slow-down": lambda arm: f"latency of {arm} from the beginning to the end",
    "speed-up": lambda arm: f"speed-up of {arm} from the beginning to the end",
    "order": lambda arm: f"speed-up of {arm} when it goes first, over when it goes second",
    "warm-up": lambda arm: f"latency of {arm} in its first visits, over its later ones",
}


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f}%"


def _latencies(visits: Iterable[VisitRecord], arm: str) -> list[_Sample]:
    """Of TPOT; of E2E where no answer has a TPOT."""
    ours = sorted((visit for visit in visits if visit.arm == arm), key=lambda visit: visit.began)
    rows = [(visit, row) for visit in ours for row in visit.cell.rows if row.error is None]
    name = "tpot_ms" if any(row.tpot_ms for _, row in rows) else "e2e_ms"
    periods = _periods(ours)
    first = {(visit.period, visit.cell.level): visit.began for visit in reversed(ours)}
    return [
        _Sample(
            row.prompt,
            (row.traffic_class, visit.cell.level),
            visit.began + row.sent_s - periods[visit.period],
            math.log(value),
            visit.began == first[visit.period, visit.cell.level],
        )
        for visit, row in rows
        if (value := positive(getattr(row, name))) is not None
    ]


def _speedups(visits: Iterable[VisitRecord], standard: str, challenger: str) -> list[_Sample]:
    """Of E2E, visit by visit."""
    taken = sorted((v for v in visits if v.arm in (standard, challenger)), key=lambda visit: visit.began)
    periods = _periods(taken)
    answered: dict[tuple[Level, str, int], dict[str, tuple[VisitRecord, Row]]] = defaultdict(dict)
    for visit in taken:
        for row in visit.cell.rows:
            if row.error is None and positive(row.e2e_ms) is not None:
                answered[visit.cell.level, row.prompt, visit.round][visit.arm] = visit, row
    samples = []
    for (level, prompt, _), both in answered.items():
        if len(both) == 2:
            (ours, our_row), (theirs, their_row) = both[standard], both[challenger]
            samples.append(
                _Sample(
                    prompt,
                    (our_row.traffic_class, level),
                    theirs.began + their_row.sent_s - periods[theirs.period],
                    math.log(our_row.e2e_ms / their_row.e2e_ms),
                    theirs.order < ours.order,
                )
            )
    return samples


def _periods(visits: Sequence[VisitRecord]) -> dict[int, float]:
    """When each began; `visits` in the order of time."""
    return {visit.period: visit.began for visit in reversed(visits)}


def _trend(samples: Sequence[_Sample], confidence: float) -> Interval | None:
    """Both the instants and the values are compared with their group's: a level that was visited late is no
    drift, nor does it hide one."""
    values = _unusual(samples, lambda sample: sample.value)
    instants = _unusual(samples, lambda sample: sample.at)
    by_prompt: dict[str, list[int]] = defaultdict(list)
    for index, sample in enumerate(samples):
        by_prompt[sample.prompt].append(index)
    points = [
        (fmean(instants[i] for i in indices), math.exp(fmean(values[i] for i in indices)))
        for _, indices in sorted(by_prompt.items())
    ]
    return stats.trend([at for at, _ in points], [value for _, value in points], level=confidence)


def _apart(samples: Sequence[_Sample], confidence: float) -> Interval | None:
    """Those that came first over the others, prompts as they fall."""
    values = _unusual(samples, lambda sample: sample.value)
    groups: dict[bool, dict[str, list[float]]] = {True: defaultdict(list), False: defaultdict(list)}
    for sample, value in zip(samples, values, strict=True):
        groups[sample.first][sample.prompt].append(value)
    first, later = (
        [math.exp(fmean(values)) for _, values in sorted(groups[which].items())] for which in (True, False)
    )
    return stats.two_groups(first, later, level=confidence)


def _order(samples: Sequence[_Sample], confidence: float) -> Interval | None:
    """Prompt by prompt where each was asked both ways round, which takes two rounds; else as they fall."""
    ways: dict[str, dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})
    for sample, value in zip(samples, _unusual(samples, lambda sample: sample.value), strict=True):
        ways[sample.prompt][sample.first].append(value)
    both = [way for _, way in sorted(ways.items()) if way[True] and way[False]]
    if len(both) < stats.MIN_PAIRS:
        return _apart(samples, confidence)
    change = stats.mean_interval([fmean(way[True]) - fmean(way[False]) for way in both], confidence)
    if change is None:
        return None
    return Interval(
        math.exp(change.estimate), math.exp(change.low), math.exp(change.high), change.n, confidence
    )


def _unusual(samples: Sequence[_Sample], read: Callable[[_Sample], float]) -> list[float]:
    """How far each is from the mean of its group."""
    groups: dict[tuple[str, Level], list[float]] = defaultdict(list)
    for sample in samples:
        groups[sample.usual].append(read(sample))
    means = {usual: fmean(values) for usual, values in groups.items()}
    return [read(sample) - means[sample.usual] for sample in samples]
