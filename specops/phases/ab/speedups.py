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

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, PlainSerializer

from specops import stats
from specops.config.rollout import Design
from specops.load.arrivals import Level
from specops.load.record import Row, positive
from specops.phases.ab.visits import VisitRecord
from specops.section import Frozen
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

StoredInterval = Annotated[
    Interval,
    PlainSerializer(lambda interval: {name: round(value, 6) for name, value in vars(interval).items()}),
]
"""An interval as it is stored: six digits are more than any measurement has."""


def _ratio(interval: Interval | None) -> Interval | None:
    return interval if interval is not None and positive(interval.low) is not None else None


Ratio = Annotated[StoredInterval | None, AfterValidator(_ratio)]
"""A ratio of latencies or rates. None where it is unknown: a ratio that reaches 0 is not evidence."""


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


class Speedups(Frozen):
    """The speed-ups of some pairs at one level. A figure without an interval had too few pairs for one."""

    level: Level
    prompts: int
    """Number of prompts that both arms were sent."""

    e2e: Ratio
    tpot: Ratio
    ttft: Ratio
    ttft_change_ms: float | None
    stream_throughput: Ratio
    """Speed-up of tokens a second of a request: the speed-up end to end, times the challenger's tokens over
    the standard's. The interval is of the times; the tokens are taken as they fell (all greedy: the same)."""


class Throughput(Frozen):
    """The throughput of all classes at one level, in tokens of whole answers a second."""

    standard: float
    challenger: float
    blocks: int
    ratio: StoredInterval | None
    """None with too few blocks for an interval."""

    @property
    def estimate(self) -> float:
        return self.challenger / self.standard


def levels_of(visits: Iterable[VisitRecord]) -> list[Level]:
    """The levels of `visits`, from the lightest load to the heaviest."""
    return ordered(visit.cell.level for visit in visits)


def pair_up(
    visits: Iterable[VisitRecord],
    standard: str,
    challenger: str,
    design: Design,
    *,
    first_only: Collection[Figure] = (),
    sent_before: Collection[str] = (),
) -> Pairs:
    """Every prompt that both arms were sent in some round, by level and prompt.

    Of the figures `first_only`, only an arm's first request of a prompt counts, at any load; none of the
    prompts `sent_before`, which were sent before the first visit.
    """
    sent: dict[tuple[Level, str], dict[int, dict[str, _Sent]]] = defaultdict(lambda: defaultdict(dict))
    first: dict[tuple[Level, str], VisitRecord] = {}
    known = {(arm, prompt) for arm in (standard, challenger) for prompt in sent_before}
    for visit in sorted(visits, key=lambda visit: visit.began):
        for row in visit.cell.rows if visit.arm in (standard, challenger) else ():
            key = visit.cell.level, row.prompt
            sent[key][visit.round][visit.arm] = _Sent(row, (visit.arm, row.prompt) not in known)
            known.add((visit.arm, row.prompt))
            first.setdefault(key, visit)
    slowest = _slowest(sent)
    found = []
    for (level, prompt), rounds in sorted(sent.items(), key=lambda item: (_weight(item[0][0]), item[0][1])):
        both = [(each[standard], each[challenger]) for _, each in sorted(rounds.items()) if len(each) == 2]
        firsts = [(ours, theirs) for ours, theirs in both if ours.first and theirs.first]
        of = {figure: firsts if figure in first_only else both for figure in FIGURES}
        if both:
            name = both[0][0].row.traffic_class
            answered = tuple(_taken(of["e2e"], lambda row: row.e2e_ms))
            least = slowest.get((level, name), 0.0)
            found.append(
                Pair(
                    prompt,
                    name,
                    level,
                    first[level, prompt].stage,
                    first[level, prompt].began,
                    e2e=tuple(_known_pairs(of["e2e"], partial(_censored, least=least))),
                    tpot=tuple(_taken(of["tpot"], lambda row: row.tpot_ms)),
                    ttft=tuple(_taken(of["ttft"], lambda row: row.ttft_ms)),
                    tokens=tuple(_counts(both, lambda row: row.tokens)),
                    block=first[level, prompt].block,
                    answered=answered,
                    characters=tuple(_counts(both, lambda row: len(row.text))),
                    per_character=tuple(_taken(of["tpot"], _per_character)),
                    equal_length=tuple(_at_equal_length(of["e2e"])),
                    standard_cut=sum(_cut(ours.row, theirs.row) for ours, theirs in both),
                )
            )
    found = [pair for pair in found if pair.e2e]
    return Pairs(tuple(found), _starts(found) if design == "abba-restart" else {})


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


def throughput(
    visits: Iterable[VisitRecord],
    standard: str,
    challenger: str,
    level: Level,
    design: Design,
    confidence: float,
) -> Throughput | None:
    """Return the ratio of throughputs from the blocks that both arms were given whole in some round; None
    without such a block.

    The paired value is a block's seconds a token, the mean over its rounds: the rounds of a block have its
    prompts in common, so they are not independent evidence.
    """
    blocks: dict[tuple[int, int], dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for visit in visits:
        cell = visit.cell
        ours = visit.arm in (standard, challenger) and cell.level == level and cell.complete
        if ours and cell.tokens and cell.wall_s > 0:
            blocks[visit.stage, visit.block][visit.round][visit.arm] = cell.wall_s / cell.tokens
    taken: list[tuple[int, tuple[Times, ...]]] = []
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


@dataclass(frozen=True)
class _Sent:
    row: Row
    first: bool
    """No request of this prompt was sent to the arm before."""


def _slowest(
    sent: Mapping[tuple[Level, str], Mapping[int, Mapping[str, _Sent]]],
) -> dict[tuple[Level, str], float]:
    """The slowest answer of each class at each level, in either arm."""
    found: dict[tuple[Level, str], float] = defaultdict(float)
    for (level, _), rounds in sent.items():
        for each in rounds.values():
            for one in each.values():
                if one.row.error is None:
                    key = level, one.row.traffic_class
                    found[key] = max(found[key], one.row.e2e_with_retries_ms)
    return dict(found)


def _censored(row: Row, least: float) -> float:
    """Milliseconds end to end; of a request that failed, a bound below what its answer would have taken."""
    if row.error is None:
        return row.e2e_with_retries_ms
    return max(row.e2e_with_retries_ms, row.e2e_ms, least)


def _taken(rows: Iterable[tuple[_Sent, _Sent]], read: Callable[[Row], float | None]) -> Iterator[Times]:
    """The figure in the rounds in which both arms answered."""
    return _known_pairs(
        ((ours, theirs) for ours, theirs in rows if ours.row.error is None and theirs.row.error is None), read
    )


def _known_pairs(rows: Iterable[tuple[_Sent, _Sent]], read: Callable[[Row], float | None]) -> Iterator[Times]:
    """The figure in the rounds in which both have it; one of 0 or less is unknown, and has no ratio."""
    for ours, theirs in rows:
        one, other = positive(read(ours.row)), positive(read(theirs.row))
        if one is not None and other is not None:
            yield one, other


def _counts(rows: Iterable[tuple[_Sent, _Sent]], read: Callable[[Row], int | None]) -> Iterator[Times]:
    """Lengths of answers in the rounds in which both arms answered. A length of 0 counts."""
    for ours, theirs in rows:
        if ours.row.error is None and theirs.row.error is None:
            one, other = read(ours.row), read(theirs.row)
            if one is not None and other is not None:
                yield one, other


def _per_character(row: Row) -> float | None:
    if row.ttft_ms is None or len(row.text) < 2:
        return None
    return (row.e2e_ms - row.ttft_ms) / len(row.text)


def _at_equal_length(rows: Iterable[tuple[_Sent, _Sent]]) -> Iterator[Times]:
    """The end-to-end times in the rounds in which both arms answered, at the mean length of both answers: in
    tokens, or in characters where tokens are not known."""
    for ours, theirs in ((ours.row, theirs.row) for ours, theirs in rows):
        if ours.error is not None or theirs.error is not None:
            continue
        lengths = (ours.tokens, theirs.tokens)
        if None in lengths:
            lengths = (len(ours.text), len(theirs.text))
        one, other = lengths
        if one and other and min(ours.e2e_ms, theirs.e2e_ms) > 0:
            mean = (one + other) / 2
            yield _scaled(ours, mean / one), _scaled(theirs, mean / other)


def _scaled(row: Row, factor: float) -> float:
    """The end-to-end time with `factor` times the time after the first token."""
    first = min(row.ttft_ms or 0.0, row.e2e_ms)
    return first + (row.e2e_ms - first) * factor


def _cut(ours: Row, theirs: Row) -> bool:
    """Return whether the standard says that it ended at the length limit, and the challenger's answer goes
    on."""
    if ours.error is not None or theirs.error is not None or ours.finish_reason != "length":
        return False
    if ours.tokens is None or theirs.tokens is None:
        return len(theirs.text) > len(ours.text)
    return theirs.tokens > ours.tokens


def _starts(pairs: Sequence[Pair]) -> dict[tuple[Level, Figure], Starts]:
    found = {}
    for level in ordered(pair.level for pair in pairs):
        for figure in FIGURES:
            taken = _by_block([pair for pair in pairs if pair.level == level], figure)
            starts = stats.start_effect(_stages(taken))
            if starts is not None:
                found[level, figure] = starts
    return found


def _by_block(pairs: Sequence[Pair], figure: Figure) -> list[tuple[int, tuple[Times, ...]]]:
    """The stage of each block, and what its prompts took together in each round, of those that have as many
    rounds as any of the stage."""
    most: dict[int, int] = defaultdict(int)
    for pair in pairs:
        most[pair.stage] = max(most[pair.stage], len(pair.rounds(figure)))
    blocks: dict[tuple[int, Hashable], list[tuple[Times, ...]]] = defaultdict(list)
    for pair in pairs:
        if len(pair.rounds(figure)) == most[pair.stage]:
            blocks[pair.stage, pair.cluster].append(pair.rounds(figure))
    return [
        (
            stage,
            tuple((sum(a for a, _ in each), sum(b for _, b in each)) for each in zip(*rounds, strict=True)),
        )
        for (stage, _), rounds in blocks.items()
    ]


def _stages(
    taken: Iterable[tuple[int, tuple[Times, ...]]],
) -> list[tuple[np.typing.NDArray[np.float64], np.typing.NDArray[np.float64]]]:
    """Return what both arms took in each stage, [rounds, pairs], of the pairs that were taken in every
    round."""
    by_stage: dict[int, list[tuple[Times, ...]]] = defaultdict(list)
    for stage, rounds in taken:
        by_stage[stage].append(rounds)
    found = []
    for _, pairs in sorted(by_stage.items()):
        most = max(len(rounds) for rounds in pairs)
        whole = np.array([rounds for rounds in pairs if len(rounds) == most], dtype=np.float64)
        if most:
            found.append((whole[:, :, 0].T, whole[:, :, 1].T))
    return found


def ordered(levels: Iterable[Level]) -> list[Level]:
    """The distinct levels, the lightest load first."""
    return sorted(set(levels), key=_weight)


def _weight(level: Level) -> tuple[float, float, float]:
    return level.concurrency or 0, level.rate or 0, level.burstiness
