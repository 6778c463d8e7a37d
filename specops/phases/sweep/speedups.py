"""Speed-ups of settings over the standard, paired by prompt, with intervals. Pure.

A setting is compared with the standard of its own machine and its own rung, never with another's. That
standard was measured before the rung's settings and again after them. What it would have taken of a prompt
at the setting's time lies between the two, in proportion to time. So a machine that slows down evenly changes
no speed-up. What remains, the difference that every start of a server makes and uneven drift, widens the
intervals (stats.one_start). A prompt is one pair, its mean over rungs, temperatures and repeats.

Requests that failed or hung are counted (claims.py) and have no part in a time: one request that hangs would
widen the intervals of all settings, which share the error of a start.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean, median
from typing import Literal

from specops import stats
from specops.experiment.samples import waited_ms
from specops.load.arrivals import Level
from specops.load.record import SLOW, Row
from specops.phases.ab.report import Speedups
from specops.phases.sweep.plan import Load, Stage, SweptCell, load_of
from specops.render.figures import times
from specops.results import rounded
from specops.serving import Setting
from specops.stats import Interval, RungBlock, SingleStart, Starts, Times

Figure = Literal["e2e", "tpot", "ttft", "per_character", "tokens", "characters"]
STARTED: tuple[Figure, ...] = ("e2e", "tpot", "ttft")
"""Figures that differ from start to start of a server."""


@dataclass(frozen=True)
class Pair:
    """One prompt at one load: the standard's and the setting's value of each figure, in each start in which
    both have it. Milliseconds, tokens and characters."""

    prompt: str
    traffic_class: str
    figures: Mapping[Figure, tuple[Times, ...]]

    def mean(self, figure: Figure) -> Times | None:
        """Return the mean of each arm over the starts; None where no start has it in both."""
        values = self.figures.get(figure, ())
        return (
            (fmean(standard for standard, _ in values), fmean(setting for _, setting in values))
            if values
            else None
        )


@dataclass(frozen=True)
class Pairs:
    """The pairs of one setting with the standard, at one load."""

    all: tuple[Pair, ...]
    starts: Mapping[Figure, Starts] = field(default_factory=dict)
    """What restarts add to the ratios. All classes share it."""

    def in_class(self, traffic_class: str) -> Pairs:
        return replace(self, all=tuple(pair for pair in self.all if pair.traffic_class == traffic_class))

    def means(self, figure: Figure) -> list[Times]:
        return [mean for pair in self.all if (mean := pair.mean(figure)) is not None]

    def ratio(self, figure: Figure, confidence: float) -> Interval | None:
        """The standard's mean over the setting's; None with too few pairs that have it."""
        means = self.means(figure)
        return stats.paired_ratio(
            [standard for standard, _ in means],
            [setting for _, setting in means],
            level=confidence,
            starts=self.starts.get("tpot" if figure == "per_character" else figure),
        )

    def change_ms(self, figure: Figure) -> float | None:
        """The setting's less the standard's, the mean over prompts."""
        changes = [setting - standard for standard, setting in self.means(figure)]
        return fmean(changes) if changes else None

    def speedups(self, level: Level, confidence: float) -> Speedups:
        change, e2e, tokens = (
            self.change_ms("ttft"),
            self.ratio("e2e", confidence),
            [lengths for pair in self.all for lengths in pair.figures.get("tokens", ())],
        )
        standard, setting = (sum(lengths[side] for lengths in tokens) for side in (0, 1))
        return Speedups(
            level=level,
            prompts=len(self.all),
            e2e=e2e,
            tpot=self.ratio("tpot", confidence),
            ttft=self.ratio("ttft", confidence),
            ttft_change_ms=rounded(change),
            stream_throughput=e2e.times(setting / standard) if e2e is not None and standard else None,
        )


@dataclass(frozen=True)
class Stratum:
    """The cells that are judged together: one concurrency, and of it one temperature, length or class, or
    all."""

    concurrency: int
    temperature: float | None = None
    length: str | None = None
    traffic_class: str | None = None
    stage: Stage | None = None
    """None: the confirmation and the choice together."""

    @classmethod
    def of_load(cls, load: Load) -> Stratum:
        return cls(load.concurrency, load.temperature, load.length)

    @property
    def level(self) -> Level:
        return Level(concurrency=self.concurrency)

    @property
    def all_classes(self) -> Stratum:
        """The same place with all classes, which share the starts of their servers."""
        return replace(self, traffic_class=None)

    @property
    def both_stages(self) -> Stratum:
        return replace(self, stage=None)

    def holds(self, load: Load) -> bool:
        return (
            load.concurrency == self.concurrency
            and self.temperature in (None, load.temperature)
            and self.length in (None, load.length)
        )


@dataclass(frozen=True)
class StartPair:
    """The times of one setting at its first start in a rung, and at its second."""

    rung: int
    machine: str
    durations: Mapping[str, Times]


WIDE = 3.0
"""An interval whose ends are so many times apart says nothing to a reader."""


def speedup_text(speedup: Interval) -> str:
    """Return the speed-up in words, such as `1.62× [1.50, 1.75], n=64`; without ends where they say
    nothing."""
    ratio = times(speedup) if speedup.high < WIDE * speedup.low else f"{speedup.estimate:.2f}×"
    return f"{ratio}, n={speedup.n}"


def speedup(
    cells: Sequence[SweptCell], settings: Sequence[Setting], setting: str, load: Load, confidence: float
) -> Interval | None:
    """End to end, of `setting` over the standard at `load`; None with too few prompts that both answered."""
    where = replace(Stratum.of_load(load), stage="choice")
    return SweepCells(cells, settings).pairs(setting, where).ratio("e2e", confidence)


@dataclass(frozen=True)
class _Answer:
    """The answers of one start to one prompt: each figure's mean over repeats, where an answer has it."""

    traffic_class: str
    variant: str
    figures: Mapping[Figure, float]

    @classmethod
    def over(cls, rows: Sequence[Row]) -> _Answer:
        """Return the answer made of the rows of one prompt, all answered."""
        values: dict[Figure, float | None] = {
            "e2e": _mean(waited_ms(row) for row in rows),
            "tpot": _mean(row.tpot_ms for row in rows),
            "ttft": _mean(row.ttft_ms for row in rows),
            "tokens": _mean(row.tokens for row in rows),
            "characters": _mean(len(row.text) for row in rows),
            "per_character": _mean(_per_character(row) for row in rows),
        }
        figures = {figure: value for figure, value in values.items() if value is not None}
        return cls(rows[0].traffic_class, rows[0].variant, figures)

    def towards(self, later: _Answer, share: float) -> _Answer:
        """The figures at `share` of the way from this one to `later`."""
        shared = self.figures.keys() & later.figures.keys()
        between = {
            name: self.figures[name] + share * (later.figures[name] - self.figures[name]) for name in shared
        }
        return replace(self, figures=between)


def _mean(values: Iterable[float | None]) -> float | None:
    positive = [value for value in values if value is not None and value > 0]  # no clock resolves a zero
    return fmean(positive) if positive else None


def _per_character(row: Row) -> float | None:
    after_first_ms = row.e2e_ms - row.ttft_ms if row.ttft_ms is not None else 0.0
    return after_first_ms / len(row.text) if row.text and after_first_ms > 0 else None


def hanging(cells: Iterable[SweptCell], standard: str) -> set[int]:
    """Identities of the rows of requests that hung: answered ones that took over `SLOW` times what is usual.

    Usual at a load is the largest of three: the standard's median of the class, its fastest answer to the
    same prompt, and the setting's own median of the class, so that a slow setting is slow and does not hang.
    """
    at_load: dict[Load, list[SweptCell]] = defaultdict(list)
    for cell in cells:
        at_load[load_of(cell)].append(cell)
    return {identity for of_load in at_load.values() for identity in _hanging(of_load, standard)}


def _hanging(cells: Sequence[SweptCell], standard: str) -> Iterable[int]:
    durations: dict[tuple[str, str], list[float]] = defaultdict(list)
    fastest: dict[str, float] = {}
    answered = [(cell.setting, row) for cell in cells for row in cell.cell.sent if row.error is None]
    for setting, row in answered:
        durations[setting, row.traffic_class].append(waited_ms(row))
        if setting == standard:
            fastest[row.prompt] = min(fastest.get(row.prompt, math.inf), waited_ms(row))
    usual = {key: median(values) for key, values in durations.items()}
    for setting, row in answered:
        limit = max(
            usual.get((standard, row.traffic_class), 0.0),
            usual[setting, row.traffic_class],
            fastest.get(row.prompt, 0.0),
        )
        if waited_ms(row) > SLOW * limit:
            yield id(row)


@dataclass(frozen=True)
class _Visit:
    """One start of a server at one load."""

    middle_s: float
    """The middle of it, in seconds since the epoch."""

    answers: Mapping[str, _Answer]
    """Answers by prompt."""

    order: Sequence[str]
    """The prompts that have an answer, in the order in which they were sent."""


_Place = tuple[int, str, Load]
"""A rung, a machine and a load: what is compared with each other."""


class SweepCells:
    """The cells of a sweep, as they are compared."""

    def __init__(self, cells: Iterable[SweptCell], settings: Sequence[Setting]) -> None:
        self.settings = list(settings)
        self.standard = next(setting.name for setting in settings if setting.k == 0)
        cells = list(cells)
        self._stages: dict[int, Stage] = {cell.rung: cell.stage for cell in cells}
        self._visits = _visits(cells, self.standard)
        self._pairs: dict[tuple[str, Stratum, str], Pairs] = {}
        self._one_start: dict[tuple[Stratum, Figure], SingleStart | None] = {}

    @cached_property
    def challengers(self) -> list[Setting]:
        return [setting for setting in self.settings if setting.k > 0]

    @cached_property
    def classes(self) -> list[str]:
        visits = (visit for visits_of_place in self._visits.values() for visit in visits_of_place.values())
        return sorted({answer.traffic_class for visit in visits for answer in visit.answers.values()})

    @cached_property
    def rungs(self) -> int:
        """The number of rungs of the choice."""
        return sum(stage == "choice" for stage in self._stages.values())

    def evidence(self, setting: str, where: Stratum, over: str | None = None) -> Pairs:
        """The pairs of the confirmation where it measured the setting there, else those of the choice: what
        a setting was chosen by is not what it is judged by."""
        confirmed = self.pairs(setting, replace(where, stage="confirmation"), over)
        return confirmed if confirmed.all else self.pairs(setting, replace(where, stage="choice"), over)

    def confirmed(self, setting: str, where: Stratum) -> bool:
        return bool(self.pairs(setting, replace(where, stage="confirmation")).all)

    def pairs(self, setting: str, where: Stratum, over: str | None = None) -> Pairs:
        """`setting` with the standard, or with the setting `over`: every prompt that both answered there, in
        the same rung and on the same machine."""
        if where.traffic_class is not None:
            return self.pairs(setting, where.all_classes, over).in_class(where.traffic_class)
        key = setting, where, over or self.standard
        if key not in self._pairs:
            self._pairs[key] = self._paired(*key)
        return self._pairs[key]

    def _paired(self, setting: str, where: Stratum, over: str) -> Pairs:
        comparisons = self._compare_visits(setting, where, over)
        answers: dict[str, list[tuple[_Answer, _Answer]]] = defaultdict(list)
        for comparison in comparisons:
            for prompt, answer_pair in comparison.answers.items():
                answers[prompt].append(answer_pair)
        pairs = tuple(
            Pair(
                prompt,
                answer_pairs[0][0].traffic_class,
                {figure: values for figure in _FIGURES if (values := _values(answer_pairs, figure))},
            )
            for prompt, answer_pairs in sorted(answers.items())
        )
        starts = {figure: self._starts(comparisons, where, figure) for figure in STARTED}
        return Pairs(
            pairs,
            {figure: start_errors for figure, start_errors in starts.items() if start_errors is not None},
        )

    def turns(self, where: Stratum, figure: Figure, setting: str | None = None) -> list[StartPair]:
        """Return what a setting took at its two starts in a rung, by rung and machine; the standard's where
        none is named, before the others and after them."""
        name = setting or self.standard
        durations: dict[tuple[int, str], dict[str, Times]] = defaultdict(dict)
        for (rung, machine, load), visits in self._visits_at(where):
            first, second = visits.get((name, 0)), visits.get((name, 1))
            if first and second:
                for prompt in first.answers.keys() & second.answers.keys():
                    answer_pair = first.answers[prompt], second.answers[prompt]
                    for values in _values([answer_pair], figure):
                        durations[rung, machine][f"{prompt} {load.temperature}"] = values
        return [StartPair(rung, machine, pairs) for (rung, machine), pairs in durations.items() if pairs]

    def repeats(self, setting: str, where: Stratum) -> Interval | None:
        """Return how many times as long the first request of a prompt took as the mean of its repeats at the
        same load; None with too few prompts that were sent again."""
        durations: dict[tuple[Load, str, str], list[tuple[float, float]]] = defaultdict(list)
        for (_, _, load), visits in self._visits_at(where):
            for (name, _), visit in visits.items():
                for prompt, answer in visit.answers.items() if name == setting else ():
                    if "e2e" in answer.figures:
                        durations[load, prompt, answer.variant].append(
                            (visit.middle_s, answer.figures["e2e"])
                        )
        repeated = [sorted(timed) for timed in durations.values() if len(timed) > 1]
        first = [timed[0][1] for timed in repeated]
        return stats.paired_ratio(first, [fmean(e2e for _, e2e in timed[1:]) for timed in repeated])

    def by_turn(self, setting: str, where: Stratum) -> dict[tuple[int, int], Interval]:
        """The speed-up end to end in each turn of each rung alone, without what restarts add; of those with
        enough prompts for an interval."""
        durations: dict[tuple[int, int], dict[str, list[Times]]] = defaultdict(lambda: defaultdict(list))
        for comparison in self._compare_visits(setting, where, self.standard):
            for prompt, answer_pair in comparison.answers.items():
                durations[comparison.rung, comparison.turn][prompt] += _values([answer_pair], "e2e")
        ratios = {}
        for turn, prompts in sorted(durations.items()):
            standard = [fmean(ms for ms, _ in pairs) for pairs in prompts.values() if pairs]
            challenger = [fmean(ms for _, ms in pairs) for pairs in prompts.values() if pairs]
            interval = stats.paired_ratio(standard, challenger)
            if interval is not None:
                ratios[turn] = interval
        return ratios

    def by_place(self, setting: str, where: Stratum) -> list[list[Times]]:
        """Return what the standard and the setting took, end to end, of the first request of each visit, of
        the second one, and so on: one pair for each visit."""
        durations: list[list[Times]] = []
        for comparison in self._compare_visits(setting, where, self.standard):
            for place, answer_pair in enumerate(comparison.answers.values()):
                if place == len(durations):
                    durations.append([])
                durations[place] += _values([answer_pair], "e2e")
        return [place_durations for place_durations in durations if place_durations]

    def one_start(self, where: Stratum, figure: Figure) -> SingleStart | None:
        """Return by how much one start of a server differs from another here, whatever the setting and the
        stage."""
        where = where.both_stages
        if (where, figure) not in self._one_start:
            # Within a stage: that a setting was chosen depends on how much the choice differs from the rest.
            stages: tuple[Stage, ...] = ("choice", "confirmation")
            blocks = {
                f"{s.name}, {stage}": _blocks(
                    self._compare_visits(s.name, replace(where, stage=stage), self.standard), figure
                )
                for s in self.challengers
                for stage in stages
            }
            turns = [turn.durations for s in self.settings for turn in self.turns(where, figure, s.name)]
            self._one_start[where, figure] = stats.one_start(turns, blocks)
        return self._one_start[where, figure]

    def _starts(self, comparisons: Sequence[_Compared], where: Stratum, figure: Figure) -> Starts | None:
        """Return what restarts and drift add to the error of the ratio over all of `comparisons`."""
        single_start = self.one_start(where, figure)
        return single_start.over(_blocks(comparisons, figure)) if single_start is not None else None

    def _compare_visits(self, setting: str, where: Stratum, over: str) -> list[_Compared]:
        comparisons = []
        for (rung, machine, load), visits in self._visits_at(where):
            for turn in (0, 1):
                visit = visits.get((setting, turn))
                if visit is None:
                    continue
                reference, share = _interpolate(visit.middle_s, visits.get((over, 0)), visits.get((over, 1)))
                answers = {
                    name: (reference[name], visit.answers[name]) for name in visit.order if name in reference
                }
                if answers:
                    comparisons.append(_Compared(rung, machine, load, turn, visit.middle_s, share, answers))
        return comparisons

    def _visits_at(self, where: Stratum) -> list[tuple[_Place, dict[tuple[str, int], _Visit]]]:
        """The visits at `where`, in order."""
        return [
            (place, visits)
            for place, visits in sorted(self._visits.items(), key=_order)
            if where.holds(place[2]) and where.stage in (None, self._stages[place[0]])
        ]


@dataclass(frozen=True)
class _Compared:
    """A setting and what it is compared with, in one rung, on one machine, at one load."""

    rung: int
    machine: str
    load: Load
    turn: int
    middle_s: float
    share: float | None
    """Share of the way from the other's first turn to its second; None where it has but one."""

    answers: Mapping[str, tuple[_Answer, _Answer]]
    """Answers by prompt, in the order in which the setting was sent them."""


def _visits(cells: Sequence[SweptCell], standard: str) -> dict[_Place, dict[tuple[str, int], _Visit]]:
    hung = hanging(cells, standard)
    by_start: dict[tuple[_Place, str, int], list[SweptCell]] = defaultdict(list)
    for cell in cells:
        by_start[(cell.rung, cell.machine, load_of(cell)), cell.setting, cell.turn].append(cell)
    visits: dict[_Place, dict[tuple[str, int], _Visit]] = defaultdict(dict)
    for (place, setting, turn), of_start in by_start.items():
        rows: dict[str, list[Row]] = defaultdict(list)
        answered = [r for cell in of_start for r in cell.cell.rows if r.error is None and id(r) not in hung]
        for row in sorted(answered, key=lambda row: row.sent_s):
            rows[row.prompt].append(row)
        middle = fmean(cell.began + cell.cell.wall_s / 2 for cell in of_start)
        answers = {prompt: _Answer.over(of_prompt) for prompt, of_prompt in rows.items()}
        visits[place][setting, turn] = _Visit(middle, answers, tuple(rows))
    return dict(visits)


def _interpolate(
    when: float, first: _Visit | None, second: _Visit | None
) -> tuple[Mapping[str, _Answer], float | None]:
    """The answers interpolated to the instant `when`, and its place between the two turns."""
    if first is None or second is None:
        only = first or second
        return (only.answers if only else {}), None
    distance_s = second.middle_s - first.middle_s
    share = min(max((when - first.middle_s) / distance_s, 0.0), 1.0) if distance_s > 0 else 0.5
    shared = first.answers.keys() & second.answers.keys()
    return {name: first.answers[name].towards(second.answers[name], share) for name in shared}, share


def _blocks(comparisons: Iterable[_Compared], figure: Figure) -> list[RungBlock]:
    """Return a block for each rung of the setting, the mean over its starts there: the loads share those
    starts."""
    durations: dict[tuple[int, str], dict[str, list[Times]]] = defaultdict(lambda: defaultdict(list))
    shares: dict[tuple[int, str], list[float | None]] = defaultdict(list)
    turns: dict[tuple[int, str], set[int]] = defaultdict(set)
    for comparison in comparisons:
        place = comparison.rung, comparison.machine
        shares[place].append(comparison.share)
        turns[place].add(comparison.turn)
        for prompt, answer_pair in comparison.answers.items():
            if values := _values([answer_pair], figure):
                durations[place][f"{prompt} {comparison.load.temperature}"] += values
    blocks = []
    for place, pairs in durations.items():
        means = {
            prompt: (
                fmean(standard for standard, _ in of_prompt),
                fmean(setting for _, setting in of_prompt),
            )
            for prompt, of_prompt in pairs.items()
        }
        known_shares = [share for share in shares[place] if share is not None]
        share = fmean(known_shares) if len(known_shares) == len(shares[place]) else None
        blocks.append(RungBlock(means, share, len(turns[place])))
    return blocks


_FIGURES: tuple[Figure, ...] = ("e2e", "tpot", "ttft", "per_character", "tokens", "characters")


def _values(answer_pairs: Iterable[tuple[_Answer, _Answer]], figure: Figure) -> tuple[Times, ...]:
    return tuple(
        (standard.figures[figure], setting.figures[figure])
        for standard, setting in answer_pairs
        if figure in standard.figures and figure in setting.figures
    )


def _order(item: tuple[_Place, object]) -> tuple[int, str, int, float, str]:
    rung, machine, load = item[0]
    return rung, machine, load.concurrency, load.temperature, load.length
