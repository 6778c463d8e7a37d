"""How much faster a setting is than the standard, paired by prompt, with intervals. Pure.

A setting is compared with the standard of its own machine and its own rung, never with another's. That
standard was measured before the rung's settings and again after them; what it would have taken of a prompt
at the setting's time lies between the two, in proportion to time, so that a machine that slows down evenly
changes no speed-up. What remains, the difference that every start of a server makes and what drifts
unevenly, widens the intervals (starts.py). A prompt is one pair, its mean over rungs, temperatures and
repeats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from specops.load.arrivals import Level
from specops.load.record import Row
from specops.phases.ab.speedups import FIGURES, Figure, Pair, Pairs, Taken
from specops.phases.ab.verdict import times
from specops.phases.sweep import starts
from specops.phases.sweep.jobs import Load, Setting
from specops.phases.sweep.records import SweptCell
from specops.phases.sweep.starts import Block, OneStart, Turns
from specops.stats import Interval, Starts


@dataclass(frozen=True)
class Where:
    """What is judged together: one concurrency, and of it one temperature, length or class, or all."""

    concurrency: int
    temperature: float | None = None
    length: str | None = None
    traffic_class: str | None = None

    @classmethod
    def of(cls, load: Load) -> Where:
        return cls(load.concurrency, load.temperature, load.length)

    @property
    def level(self) -> Level:
        return Level(concurrency=self.concurrency)

    @property
    def all_classes(self) -> Where:
        """Which share the starts of their servers."""
        return replace(self, traffic_class=None)

    def holds(self, load: Load) -> bool:
        return (
            load.concurrency == self.concurrency
            and self.temperature in (None, load.temperature)
            and self.length in (None, load.length)
        )


WIDE = 3.0
"""An interval whose ends are so many times apart says nothing to a reader."""


def shown(speedup: Interval) -> str:
    return times(speedup) if speedup.high < WIDE * speedup.low else f"{speedup.estimate:.2f}×"


def speedup(
    cells: Sequence[SweptCell], settings: Sequence[Setting], setting: str, load: Load, confidence: float
) -> Interval | None:
    """End to end, of `setting` over the standard at `load`; None with too few prompts that both answered."""
    return Swept(cells, settings).pairs(setting, Where.of(load)).ratio("e2e", confidence)


@dataclass(frozen=True)
class _Answer:
    """Of one start to one prompt, the mean over repeats; None where no answer has the figure."""

    traffic_class: str
    e2e: float | None
    tpot: float | None
    ttft: float | None
    tokens: float | None

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _Answer:
        def mean(name: str) -> float | None:
            values = [value for row in rows if (value := getattr(row, name))]  # no clock resolves a zero
            return fmean(values) if values else None

        return cls(rows[0].traffic_class, mean("e2e_ms"), mean("tpot_ms"), mean("ttft_ms"), mean("tokens"))

    def towards(self, other: _Answer, share: float) -> _Answer:
        """What lies between the two."""

        def between(one: float | None, two: float | None) -> float | None:
            return None if one is None or two is None else one + share * (two - one)

        return _Answer(
            self.traffic_class,
            between(self.e2e, other.e2e),
            between(self.tpot, other.tpot),
            between(self.ttft, other.ttft),
            between(self.tokens, other.tokens),
        )


@dataclass(frozen=True)
class _Visit:
    """One start of a server at one load."""

    at: float
    """The middle of it, in seconds since the epoch."""

    answers: Mapping[str, _Answer]
    """By prompt."""


_Place = tuple[int, str, Load]
"""A rung, a machine and a load: what is compared with each other."""


class Swept:
    """The cells of a sweep, as they are compared."""

    def __init__(self, cells: Iterable[SweptCell], settings: Sequence[Setting]) -> None:
        self.settings = list(settings)
        self.standard = next(setting.name for setting in settings if setting.k == 0)
        self._visits = _visits(cells)
        self._pairs: dict[tuple[str, Where, str], Pairs] = {}
        self._one_start: dict[tuple[Where, Figure], OneStart | None] = {}

    @cached_property
    def challengers(self) -> list[Setting]:
        return [setting for setting in self.settings if setting.k > 0]

    @cached_property
    def classes(self) -> list[str]:
        visits = (visit for at in self._visits.values() for visit in at.values())
        return sorted({answer.traffic_class for visit in visits for answer in visit.answers.values()})

    @cached_property
    def rungs(self) -> int:
        return len({rung for rung, _, _ in self._visits})

    def pairs(self, setting: str, where: Where, over: str | None = None) -> Pairs:
        """`setting` with the standard, or with the setting `over`: every prompt that both answered there, in
        the same rung and on the same machine."""
        if where.traffic_class is not None:
            return self.pairs(setting, where.all_classes, over).of(where.traffic_class)
        key = setting, where, over or self.standard
        if key not in self._pairs:
            self._pairs[key] = self._paired(*key)
        return self._pairs[key]

    def _paired(self, setting: str, where: Where, over: str) -> Pairs:
        compared = self._compared(setting, where, over)
        taken: dict[str, list[tuple[_Answer, _Answer]]] = defaultdict(list)
        began: dict[str, float] = {}
        for comparison in compared:
            for prompt, both in comparison.answers.items():
                taken[prompt].append(both)
                began.setdefault(prompt, comparison.at)
        found = tuple(
            Pair(
                prompt,
                both[0][0].traffic_class,
                where.level,
                stage=0,
                began=began[prompt],
                e2e=_taken(both, "e2e"),
                tpot=_taken(both, "tpot"),
                ttft=_taken(both, "ttft"),
                tokens=_taken(both, "tokens"),
            )
            for prompt, both in sorted(taken.items())
        )
        widened = {(where.level, figure): self._starts(compared, where, figure) for figure in FIGURES}
        return Pairs(found, {key: one for key, one in widened.items() if one is not None})

    def turns(self, where: Where, figure: Figure) -> list[Turns]:
        """What the standard took before the others and after them, by rung and machine."""
        taken: dict[tuple[int, str], dict[str, Taken]] = defaultdict(dict)
        for (rung, machine, load), visits in sorted(self._visits.items(), key=_order):
            first, second = visits.get((self.standard, 0)), visits.get((self.standard, 1))
            if where.holds(load) and first and second:
                for prompt in first.answers.keys() & second.answers.keys():
                    both = getattr(first.answers[prompt], figure), getattr(second.answers[prompt], figure)
                    if None not in both:
                        taken[rung, machine][f"{prompt} {load.temperature}"] = both
        return [Turns(rung, machine, pairs) for (rung, machine), pairs in taken.items() if pairs]

    def one_start(self, where: Where, figure: Figure) -> OneStart | None:
        """By how much one start of a server differs from another here, whatever the setting."""
        if (where, figure) not in self._one_start:
            blocks = {
                s.name: _blocks(self._compared(s.name, where, self.standard), figure)
                for s in self.challengers
            }
            self._one_start[where, figure] = starts.one_start(self.turns(where, figure), blocks)
        return self._one_start[where, figure]

    def _starts(self, compared: Sequence[_Compared], where: Where, figure: Figure) -> Starts | None:
        """What the restarts and the drift add to the ratio over all of `compared`."""
        one = self.one_start(where, figure)
        return one.over(_blocks(compared, figure)) if one is not None else None

    def _compared(self, setting: str, where: Where, over: str) -> list[_Compared]:
        found = []
        for (rung, machine, load), visits in sorted(self._visits.items(), key=_order):
            theirs = visits.get((setting, 0))
            if theirs is None or not where.holds(load):
                continue
            ours, share = _at(theirs.at, visits.get((over, 0)), visits.get((over, 1)))
            both = {name: (ours[name], theirs.answers[name]) for name in theirs.answers if name in ours}
            if both:
                found.append(_Compared(rung, machine, load, theirs.at, share, both))
        return found


@dataclass(frozen=True)
class _Compared:
    """A setting and what it is compared with, in one rung, on one machine, at one load."""

    rung: int
    machine: str
    load: Load
    at: float
    share: float | None
    """Of the way from the other's first turn to its second; None where it has but one."""

    answers: Mapping[str, tuple[_Answer, _Answer]]


def _visits(cells: Iterable[SweptCell]) -> dict[_Place, dict[tuple[str, int], _Visit]]:
    by_start: dict[tuple[_Place, str, int], list[SweptCell]] = defaultdict(list)
    for cell in cells:
        concurrency = cell.cell.concurrency
        assert concurrency is not None, "a sweep drives streams"
        place = cell.rung, cell.machine, Load(concurrency, cell.temperature, cell.length)
        by_start[place, cell.setting, cell.turn].append(cell)
    found: dict[_Place, dict[tuple[str, int], _Visit]] = defaultdict(dict)
    for (place, setting, turn), ours in by_start.items():
        rows: dict[str, list[Row]] = defaultdict(list)
        for cell in ours:
            for row in cell.cell.rows:
                if row.error is None:
                    rows[row.prompt].append(row)
        middle = fmean(cell.began + cell.cell.wall_s / 2 for cell in ours)
        answers = {prompt: _Answer.of(answered) for prompt, answered in rows.items()}
        found[place][setting, turn] = _Visit(middle, answers)
    return dict(found)


def _at(
    when: float, first: _Visit | None, second: _Visit | None
) -> tuple[Mapping[str, _Answer], float | None]:
    """What would have been answered at `when`, and how far that is between the two turns."""
    if first is None or second is None:
        only = first or second
        return (only.answers if only else {}), None
    apart = second.at - first.at
    share = min(max((when - first.at) / apart, 0.0), 1.0) if apart > 0 else 0.5
    both = first.answers.keys() & second.answers.keys()
    return {name: first.answers[name].towards(second.answers[name], share) for name in both}, share


def _blocks(compared: Iterable[_Compared], figure: Figure) -> list[Block]:
    """One for each start of the setting: the loads that it was measured at share it."""
    taken: dict[tuple[int, str], dict[str, Taken]] = defaultdict(dict)
    shares: dict[tuple[int, str], list[float | None]] = defaultdict(list)
    for one in compared:
        shares[one.rung, one.machine].append(one.share)
        for prompt, (ours, theirs) in one.answers.items():
            both = getattr(ours, figure), getattr(theirs, figure)
            if None not in both:
                taken[one.rung, one.machine][f"{prompt} {one.load.temperature}"] = both
    found = []
    for start, pairs in taken.items():
        known = [share for share in shares[start] if share is not None]
        found.append(Block(pairs, fmean(known) if len(known) == len(shares[start]) else None))
    return found


def _taken(both: Iterable[tuple[_Answer, _Answer]], name: str) -> tuple[Taken, ...]:
    values = ((getattr(ours, name), getattr(theirs, name)) for ours, theirs in both)
    return tuple((one, other) for one, other in values if one is not None and other is not None)


def _order(item: tuple[_Place, object]) -> tuple[int, str, int, float, str]:
    rung, machine, load = item[0]
    return rung, machine, load.concurrency, load.temperature, load.length
