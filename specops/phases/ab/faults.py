"""Requests that failed, and requests that took far too long, counted in both arms and compared exactly. Pure.

Every request that was sent counts. Pairs are one prompt in one round, sent to both arms.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict

from specops import stats
from specops.load.arrivals import Level
from specops.load.record import Row
from specops.load.validity import is_stock
from specops.phases.ab.records import VisitRecord
from specops.phases.ab.speedups import Shown

SLOW, LATE = 10, 3
"""Times as long as usual. A request over `SLOW` times counts like one that failed. More requests over `LATE`
times are no reason to doubt a gain, unless they are surely more."""

Kind = Literal["failed", "slow", "late", "stock"]
"""stock: the answer is, to the letter, the arm's answer to another prompt."""


class Counted(BaseModel):
    """Requests of one kind at one load, all classes together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    pairs: int
    """One prompt in one round, sent to both arms."""

    prompts: int
    standard: int
    challenger: int
    only_standard: int
    only_challenger: int
    """Pairs in which it happened to the challenger's request alone."""

    difference: Shown
    """The challenger's share less the standard's, with an exact interval."""

    def surely_more(self, margin: float) -> bool:
        """Whether the challenger's share is surely higher by more than `margin`."""
        return self.difference.low > margin

    def possibly_more(self, margin: float) -> bool:
        """Whether there is evidence of a higher share, and it may be higher by more than `margin`.

        It takes evidence: where it never happened to the challenger alone, the interval is a point at or
        below 0, and any number of requests could be too few to exclude a rare fault.
        """
        return self.only_challenger > self.only_standard and self.difference.high > margin

    def more_prompts(self, margin: float) -> int:
        """That would bring the upper end down to `margin`, if it happened to none of them."""
        needed = self.difference.high * self.pairs / margin
        return max(1, math.ceil((needed / self.pairs - 1) * self.prompts - 1e-9))

    def __str__(self) -> str:
        share = f"{_percent(self.difference.estimate)} [{_percent(self.difference.low)}, "
        share += f"{_percent(self.difference.high)}] of requests more"
        return (
            f"{self.challenger} of {self.pairs} requests {_WORDS[self.kind]} and {self.standard} of "
            f"{self.pairs} of the standard's ({share})"
        )


_WORDS: dict[Kind, str] = {
    "failed": "failed",
    "slow": f"took over {SLOW}× the median",
    "late": f"took over {LATE}× the median",
    "stock": "got the same answer as another prompt",
}


@dataclass(frozen=True)
class Requests:
    """What both arms were sent at one load: the standard's request and the challenger's, pair by pair."""

    pairs: tuple[tuple[Row, Row], ...]

    @classmethod
    def of(cls, visits: Iterable[VisitRecord], standard: str, challenger: str, level: Level) -> Requests:
        sent: dict[tuple[str, int], dict[str, Row]] = defaultdict(dict)
        for visit in visits:
            if visit.arm in (standard, challenger) and visit.cell.level == level:
                for row in visit.cell.rows:
                    sent[row.prompt, visit.round][visit.arm] = row
        both = [rows for _, rows in sorted(sent.items()) if len(rows) == 2]
        return cls(tuple((rows[standard], rows[challenger]) for rows in both))

    def counted(self, kind: Kind, confidence: float) -> Counted | None:
        """None where nothing was sent to both arms."""
        if not self.pairs:
            return None
        if kind == "stock":
            found = list(zip(*(is_stock([pair[arm] for pair in self.pairs]) for arm in (0, 1)), strict=True))
        else:
            happened = _failed if kind == "failed" else self._over(SLOW if kind == "slow" else LATE)
            found = [(happened(ours), happened(theirs)) for ours, theirs in self.pairs]
        only_standard = sum(ours and not theirs for ours, theirs in found)
        only_challenger = sum(theirs and not ours for ours, theirs in found)
        return Counted(
            kind=kind,
            pairs=len(found),
            prompts=len({ours.prompt for ours, _ in self.pairs}),
            standard=sum(ours for ours, _ in found),
            challenger=sum(theirs for _, theirs in found),
            only_standard=only_standard,
            only_challenger=only_challenger,
            difference=stats.paired_difference(only_standard, only_challenger, len(found), confidence),
        )

    def _over(self, times: float) -> Callable[[Row], bool]:
        """Whether a request took so many times what is usual: the standard's median of the class, or its
        fastest answer to the same prompt where that is longer."""
        answers: dict[str, list[float]] = defaultdict(list)
        fastest: dict[str, float] = {}
        for row, _ in self.pairs:
            if row.error is None and waited(row) > 0:
                answers[row.traffic_class].append(waited(row))
                fastest[row.prompt] = min(fastest.get(row.prompt, math.inf), waited(row))
        usual = {name: median(times) for name, times in answers.items()}

        def over(row: Row) -> bool:
            longest = max(usual.get(row.traffic_class, math.inf), fastest.get(row.prompt, 0.0))
            return waited(row) > times * longest

        return over


def waited(row: Row) -> float:
    """Milliseconds from the first attempt to the end: users wait for attempts that were refused, too."""
    return max(row.e2e_ms, row.e2e_with_retries_ms)


def _failed(row: Row) -> bool:
    return row.error is not None


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def slow_rows(rows: Sequence[Row]) -> int:
    """Requests of one arm that took over `SLOW` times the median of its answers of their class."""
    by_class: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_class[row.traffic_class].append(row)
    count = 0
    for ours in by_class.values():
        answered = [waited(row) for row in ours if row.error is None]
        if answered:
            bound = SLOW * median(answered)
            count += sum(waited(row) > bound for row in ours)
    return count
