"""Speed-ups of a challenger over the standard, paired by prompt, with intervals. Pure.

A speed-up is the standard's latency over the challenger's, so above 1 the challenger is faster; so is one of
throughput, the challenger's over the standard's. A pair is one prompt at one level of load: each arm's mean
over the rounds in which both were sent a request. A request that failed counts as long as it lasted, and at
least as long as the slowest answer of its class, so that failing is never fast.

Requests that ran side by side share noise. Intervals therefore take a block of prompts, which both arms
visit in turn, as one piece of evidence (stats.paired_ratio with clusters). Of throughput a pair is a block; a
class has no blocks of its own, and its throughput is that of its streams.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

from specops import stats
from specops.load.arrivals import Level
from specops.phases.ab.report import Speedups
from specops.stats import Interval, Starts, Times

Figure = Literal["e2e", "tpot", "ttft"]
FIGURES: tuple[Figure, ...] = ("e2e", "tpot", "ttft")

Further = Literal["answered", "per_character", "equal_length"]
_STARTS: Mapping[Figure | Further, Figure] = {
    "e2e": "e2e",
    "tpot": "tpot",
    "ttft": "ttft",
    "answered": "e2e",
    "per_character": "tpot",
    "equal_length": "e2e",
}
"""A figure, and the one by whose restarts its interval is widened."""


@dataclass(frozen=True)
class Pair:
    """One prompt at one level: milliseconds, for each round in which both arms have the figure."""

    prompt: str
    traffic_class: str
    level: Level
    stage: int
    began: float
    """Time of the first visit, in seconds since the epoch."""

    e2e: tuple[Times, ...]
    tpot: tuple[Times, ...]
    ttft: tuple[Times, ...]
    tokens: tuple[Times, ...]
    """Number of tokens of the answers, where both are known."""

    block: int | None = None
    """Block of its stage; the prompts of a block share noise. None: the prompt shares noise with no other."""

    answered: tuple[Times, ...] | None = None
    """End to end, of the rounds in which both arms answered, without refused attempts; None where that is
    `e2e`."""

    characters: tuple[Times, ...] = ()
    """Number of characters of the answers' texts."""

    per_character: tuple[Times, ...] = ()
    """Milliseconds for each character after the first token."""

    equal_length: tuple[Times, ...] = ()
    """End to end as if both answers had their mean length: each arm's time after the first token is
    scaled."""

    standard_cut: int = 0
    """Answers of the standard that ended at the length limit although the challenger's went on."""

    @property
    def cluster(self) -> Hashable:
        return self.prompt if self.block is None else (self.stage, self.block)

    def rounds(self, figure: Figure | Further) -> tuple[Times, ...]:
        taken: tuple[Times, ...] | None = getattr(self, figure)
        return self.e2e if taken is None else taken

    def mean(self, figure: Figure | Further) -> Times | None:
        """Return the mean of each arm over the rounds; None where no round has it in both arms."""
        rounds = self.rounds(figure)
        return (fmean(ours for ours, _ in rounds), fmean(theirs for _, theirs in rounds)) if rounds else None


@dataclass(frozen=True)
class Pairs:
    """The pairs of one challenger with the standard."""

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
        return ordered(pair.level for pair in self.all)

    def ratio(self, figure: Figure | Further, confidence: float) -> Interval | None:
        """The speed-up in `figure`, of pairs at one level; None with too few that have it."""
        known = [(pair, mean) for pair in self.all if (mean := pair.mean(figure)) is not None]
        starts = self.starts.get((self.all[0].level, _STARTS[figure])) if self.all else None
        return stats.paired_ratio(
            [ours for _, (ours, _) in known],
            [theirs for _, (_, theirs) in known],
            level=confidence,
            clusters=[pair.cluster for pair, _ in known],
            starts=starts,
        )

    def tokens_ratio(self) -> float | None:
        """The challenger's over the standard's; None where the tokens of no answer are known."""
        tokens = [taken for pair in self.all for taken in pair.tokens]
        ours = sum(ours for ours, _ in tokens)
        return sum(theirs for _, theirs in tokens) / ours if ours else None

    def change_ms(self, figure: Figure) -> float | None:
        """The challenger's less the standard's, the mean over prompts."""
        changes = [mean[1] - mean[0] for pair in self.all if (mean := pair.mean(figure)) is not None]
        return fmean(changes) if changes else None


def speedups(pairs: Pairs, level: Level, confidence: float) -> Speedups:
    """The speed-ups of those of `pairs` that are at `level`."""
    ours = pairs.at(level)
    change, e2e, tokens = ours.change_ms("ttft"), ours.ratio("e2e", confidence), ours.tokens_ratio()
    return Speedups(
        level=level,
        prompts=len(ours.all),
        e2e=e2e,
        tpot=ours.ratio("tpot", confidence),
        ttft=ours.ratio("ttft", confidence),
        ttft_change_ms=None if change is None else round(change, 4),
        stream_throughput=e2e.times(tokens) if e2e is not None and tokens is not None else None,
    )


def ordered(levels: Iterable[Level]) -> list[Level]:
    """The distinct levels, the lightest load first."""
    return sorted(set(levels), key=_weight)


def _weight(level: Level) -> tuple[float, float, float]:
    return level.concurrency or 0, level.rate or 0, level.burstiness
