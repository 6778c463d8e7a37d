"""How much faster a challenger is than the standard, paired by prompt, with intervals. Pure.

A speed-up is the standard's latency over the challenger's, so above 1 the challenger is faster; so is one of
throughput, the challenger's over the standard's. A pair is one prompt at one level of load: each arm's mean
over the rounds in which both answered. Of throughput it is one block of prompts; a class has no blocks of
its own, and its throughput is that of its streams.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, PlainSerializer

from specops import stats
from specops.load.arrivals import Level
from specops.load.record import Row
from specops.phases.ab.records import VisitRecord
from specops.phases.ab.settings import Design
from specops.stats import Interval, Starts

Figure = Literal["e2e", "tpot", "ttft"]
FIGURES: tuple[Figure, ...] = ("e2e", "tpot", "ttft")

Taken = tuple[float, float]
"""What the standard took and what the challenger did."""

Shown = Annotated[
    Interval,
    PlainSerializer(lambda interval: {name: round(value, 6) for name, value in vars(interval).items()}),
]
"""An interval as it is kept: six digits are more than any measurement has."""


@dataclass(frozen=True)
class Pair:
    """One prompt at one level: milliseconds, for each round in which both arms have the figure."""

    prompt: str
    traffic_class: str
    level: Level
    stage: int
    began: float
    """Of the first visit, in seconds since the epoch."""

    e2e: tuple[Taken, ...]
    tpot: tuple[Taken, ...]
    ttft: tuple[Taken, ...]
    tokens: tuple[Taken, ...]
    """Of the answers, where both are known."""

    def rounds(self, figure: Figure) -> tuple[Taken, ...]:
        taken: tuple[Taken, ...] = getattr(self, figure)
        return taken

    def mean(self, figure: Figure) -> Taken | None:
        """Over the rounds; None where no round has it in both arms."""
        rounds = self.rounds(figure)
        return (fmean(ours for ours, _ in rounds), fmean(theirs for _, theirs in rounds)) if rounds else None


@dataclass(frozen=True)
class Pairs:
    """Of one challenger with the standard."""

    all: tuple[Pair, ...]
    starts: Mapping[tuple[Level, Figure], Starts] = field(default_factory=dict)
    """What restarts add to the ratios, where arms are restarted between rounds. All classes share it."""

    def at(self, level: Level) -> Pairs:
        return replace(self, all=tuple(pair for pair in self.all if pair.level == level))

    def of(self, *classes: str) -> Pairs:
        return replace(self, all=tuple(pair for pair in self.all if pair.traffic_class in classes))

    @property
    def classes(self) -> list[str]:
        return sorted({pair.traffic_class for pair in self.all})

    @property
    def levels(self) -> list[Level]:
        return _ordered(pair.level for pair in self.all)

    def ratio(self, figure: Figure, confidence: float) -> Interval | None:
        """The speed-up in `figure`, of pairs at one level; None with too few that have it."""
        means = [mean for pair in self.all if (mean := pair.mean(figure)) is not None]
        starts = self.starts.get((self.all[0].level, figure)) if self.all else None
        ours, theirs = [ours for ours, _ in means], [theirs for _, theirs in means]
        return stats.paired_ratio(ours, theirs, level=confidence, starts=starts)

    def tokens_ratio(self) -> float | None:
        """The challenger's over the standard's; None where the tokens of no answer are known."""
        tokens = [taken for pair in self.all for taken in pair.tokens]
        return sum(theirs for _, theirs in tokens) / sum(ours for ours, _ in tokens) if tokens else None

    def ttft_change_ms(self) -> float | None:
        """The challenger's less the standard's, the mean over prompts."""
        changes = [mean[1] - mean[0] for pair in self.all if (mean := pair.mean("ttft")) is not None]
        return fmean(changes) if changes else None


class Speedups(BaseModel):
    """Of some pairs at one level. A figure without an interval had too few pairs for one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    level: Level
    prompts: int
    """That both arms answered."""

    e2e: Shown | None
    tpot: Shown | None
    ttft: Shown | None
    ttft_change_ms: float | None
    stream_throughput: Shown | None
    """Of tokens a second of a request: the speed-up end to end, times the challenger's tokens over the
    standard's. The interval is of the times; the tokens are taken as they fell (all greedy: the same)."""


class Throughput(BaseModel):
    """Of all classes at one level, in tokens of whole answers a second."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    standard: float
    challenger: float
    blocks: int
    ratio: Shown | None
    """None with too few blocks for an interval."""

    @property
    def estimate(self) -> float:
        return self.challenger / self.standard


def levels_of(visits: Iterable[VisitRecord]) -> list[Level]:
    """From the lightest load to the heaviest."""
    return _ordered(visit.cell.level for visit in visits)


def pair_up(visits: Iterable[VisitRecord], standard: str, challenger: str, design: Design) -> Pairs:
    """Every prompt that both arms answered in some round, by level and prompt."""
    answered: dict[tuple[Level, str], dict[int, dict[str, Row]]] = defaultdict(lambda: defaultdict(dict))
    first: dict[tuple[Level, str], VisitRecord] = {}
    for visit in sorted(visits, key=lambda visit: visit.began):
        for row in visit.cell.rows if visit.arm in (standard, challenger) else ():
            if row.error is None:
                key = visit.cell.level, row.prompt
                answered[key][visit.round][visit.arm] = row
                first.setdefault(key, visit)
    found = []
    for (level, prompt), rounds in sorted(
        answered.items(), key=lambda item: (_weight(item[0][0]), item[0][1])
    ):
        both = [(rows[standard], rows[challenger]) for _, rows in sorted(rounds.items()) if len(rows) == 2]
        if both:
            found.append(
                Pair(
                    prompt,
                    both[0][0].traffic_class,
                    level,
                    first[level, prompt].stage,
                    first[level, prompt].began,
                    e2e=tuple(_taken(both, "e2e_ms")),
                    tpot=tuple(_taken(both, "tpot_ms")),
                    ttft=tuple(_taken(both, "ttft_ms")),
                    tokens=tuple(_taken(both, "tokens")),
                )
            )
    return Pairs(tuple(found), _starts(found) if design == "abba-restart" else {})


def speedups(pairs: Pairs, level: Level, confidence: float) -> Speedups:
    """Of those of `pairs` that are at `level`."""
    ours = pairs.at(level)
    change, e2e, tokens = ours.ttft_change_ms(), ours.ratio("e2e", confidence), ours.tokens_ratio()
    return Speedups(
        level=level,
        prompts=len(ours.all),
        e2e=e2e,
        tpot=ours.ratio("tpot", confidence),
        ttft=ours.ratio("ttft", confidence),
        ttft_change_ms=None if change is None else round(change, 4),
        stream_throughput=e2e.times(tokens) if e2e is not None and tokens is not None else None,
    )


def throughput(
    visits: Iterable[VisitRecord],
    standard: str,
    challenger: str,
    level: Level,
    design: Design,
    confidence: float,
) -> Throughput | None:
    """From the blocks that both arms were given whole in some round; None where there is none.

    What is paired is a block's seconds a token, the mean over its rounds: the rounds of a block have its
    prompts in common, so that they are no two pieces of evidence.
    """
    blocks: dict[tuple[int, int], dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for visit in visits:
        cell = visit.cell
        ours = visit.arm in (standard, challenger) and cell.level == level and cell.complete
        if ours and cell.tokens and cell.wall_s > 0:
            blocks[visit.stage, visit.block][visit.round][visit.arm] = cell.wall_s / cell.tokens
    taken: list[tuple[int, tuple[Taken, ...]]] = []
    for (stage, _), rounds in sorted(blocks.items()):
        both = tuple((s[standard], s[challenger]) for _, s in sorted(rounds.items()) if len(s) == 2)
        if both:
            taken.append((stage, both))
    if not taken:
        return None
    before = [fmean(one for one, _ in rounds) for _, rounds in taken]
    after = [fmean(other for _, other in rounds) for _, rounds in taken]
    starts = stats.start_effect(_stages(taken)) if design == "abba-restart" else None
    return Throughput(
        standard=round(1 / fmean(before), 4),
        challenger=round(1 / fmean(after), 4),
        blocks=len(taken),
        ratio=stats.paired_ratio(before, after, level=confidence, starts=starts),
    )


def _taken(rows: Iterable[tuple[Row, Row]], name: str) -> Iterator[Taken]:
    for ours, theirs in rows:
        one, other = getattr(ours, name), getattr(theirs, name)
        if one and other:  # no clock resolves a zero, and it has no ratio
            yield one, other


def _starts(pairs: Sequence[Pair]) -> dict[tuple[Level, Figure], Starts]:
    found = {}
    for level in _ordered(pair.level for pair in pairs):
        for figure in FIGURES:
            taken = [(pair.stage, pair.rounds(figure)) for pair in pairs if pair.level == level]
            starts = stats.start_effect(_stages(taken))
            if starts is not None:
                found[level, figure] = starts
    return found


def _stages(
    taken: Iterable[tuple[int, tuple[Taken, ...]]],
) -> list[tuple[np.typing.NDArray[np.float64], np.typing.NDArray[np.float64]]]:
    """What both arms took in each stage, [rounds, pairs], of the pairs that were taken in every round."""
    by_stage: dict[int, list[tuple[Taken, ...]]] = defaultdict(list)
    for stage, rounds in taken:
        by_stage[stage].append(rounds)
    found = []
    for _, pairs in sorted(by_stage.items()):
        most = max(len(rounds) for rounds in pairs)
        whole = np.array([rounds for rounds in pairs if len(rounds) == most], dtype=np.float64)
        if most:
            found.append((whole[:, :, 0].T, whole[:, :, 1].T))
    return found


def _ordered(levels: Iterable[Level]) -> list[Level]:
    return sorted(set(levels), key=_weight)


def _weight(level: Level) -> tuple[float, float, float]:
    return level.concurrency or 0, level.rate or 0, level.burstiness
