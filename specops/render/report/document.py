"""A page as data: what it says, whatever it is written as. formats.py writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from specops.render.figures import sentence
from specops.results import Result, Verdict
from specops.stats import Interval

State = Literal["good", "bad", "open", "none"]
"""Passed; failed; undecided or in need of attention; not known or not applicable. Pages show a state as a
symbol and a word, never by colour alone."""
STATES: Mapping[Verdict, tuple[State, str]] = {
    "yes": ("good", "passed"),
    "no": ("bad", "failed"),
    "undecided": ("open", "undecided"),
    "partial": ("open", "stopped"),
}
"""The state of a verdict, and its word."""


def shown_state(verdict: Verdict, speedup: Interval | None) -> State:
    """The state of a speed-up that is shown beside its verdict: one that may be a loss is not good, whatever
    else decided."""
    state, _ = STATES[verdict]
    return "open" if state == "good" and (speedup is None or speedup.low <= 1) else state


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than text."""

    text: str
    state: State | None = None
    link: str | None = None
    """A path relative to the page."""

    code: bool = False
    anchor: str | None = None
    """The id by which links on the page reach it."""

    about: str = ""
    """What the text means, below it."""


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    """The first cell of each names it."""

    note: str = ""
    prose: tuple[int, ...] = ()
    """Columns of sentences: aligned left, with line breaks. The others hold short values."""

    folded: str = ""
    """If not empty, a screen shows this line, which opens the table. Paper shows the table."""

    def without_empty_prose(self) -> Table:
        """The table without the columns of sentences that are empty in each row."""
        places = [
            place
            for place in range(len(self.columns))
            if place not in self.prose or any(text_of(row[place]) for row in self.rows)
        ]
        return replace(
            self,
            columns=tuple(self.columns[place] for place in places),
            rows=tuple(tuple(row[place] for place in places) for row in self.rows),
            prose=tuple(number for number, place in enumerate(places) if place in self.prose),
        )


@dataclass(frozen=True)
class Line:
    label: str
    values: tuple[float | None, ...]
    """Values in order; None is a hole."""


@dataclass(frozen=True)
class Level:
    """A value that lines are compared with."""

    label: str
    value: float


@dataclass(frozen=True)
class TimeChart:
    """Lines over the hours of the document's `axis`."""

    title: str
    description: str
    """The text alternative: what the chart shows."""

    unit: str
    lines: tuple[Line, ...]
    levels: tuple[Level, ...] = ()
    most: float | None = None
    """The end of the axis; None: above the highest value."""


@dataclass(frozen=True)
class Timeline:
    """Spans over the hours of the document's `axis`."""

    title: str
    description: str
    rows: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    """A label, and its spans: from which hour to which."""

    unit: str = ""


@dataclass(frozen=True)
class Curve:
    """Shares from 0 to 1 by position in the draft, from 1."""

    title: str
    description: str
    lines: tuple[Line, ...]
    unit: str = ""


@dataclass(frozen=True)
class Ratio:
    """A row of `Ratios`. Without an interval only the estimate is drawn, if there is one."""

    label: str
    group: str
    """A heading over the row; rows of one group are adjacent."""

    state: State
    estimate: float | None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of_interval(cls, label: str, group: str, state: State, interval: Interval | None) -> Ratio:
        if interval is None:
            return cls(label, group, state, None)
        return cls(label, group, state, interval.estimate, interval.low, interval.high)

    def __str__(self) -> str:
        figure = "no figure" if self.estimate is None else f"{self.estimate:.2f}×"
        ends = f" [{self.low:.2f}, {self.high:.2f}]" if self.low is not None else ""
        return f"{self.group}, {self.label}: {figure}{ends}"


@dataclass(frozen=True)
class Ratios:
    """Ratios with intervals on a logarithmic axis, against 1: no change."""

    title: str
    description: str
    unit: str
    rows: tuple[Ratio, ...]
    lower: str = "slower"
    """The direction below 1, in words; `higher` the one above."""

    higher: str = "faster"


@dataclass(frozen=True)
class Samples:
    label: str
    values: tuple[float, ...]
    """Values in any order."""


@dataclass(frozen=True)
class Distribution:
    """Cumulative shares of samples: how many have at most so much. Axis from 0."""

    title: str
    description: str
    samples: tuple[Samples, ...]
    unit: str = ""
    of: Literal["ms", "tokens"] = "ms"


Chart = TimeChart | Timeline | Curve | Ratios | Distribution


@dataclass(frozen=True)
class Axis:
    """The axis of all charts over time."""

    hours: int
    ticks: tuple[tuple[float, str], ...]
    """The hour and the label of each tick."""

    unknown: tuple[tuple[float, float], ...]
    """Spans without data: from which hour to which."""


@dataclass(frozen=True)
class Step:
    """A step that the reader should take."""

    action: str
    why: str
    command: str
    """A command, or a text of several lines to paste as it stands."""


@dataclass(frozen=True)
class Section:
    title: str
    text: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    steps: tuple[Step, ...] = ()
    sources: tuple[str, ...] = ()
    """Files that hold the section's figures: paths relative to the page."""

    guide: str = ""
    """The page of the guide that explains the section."""


@dataclass(frozen=True)
class Tile:
    """A figure that is shown first."""

    label: str
    value: str
    note: str
    state: State | None = None


@dataclass(frozen=True)
class Badge:
    """A part of the whole and its state, in a strip."""

    label: str
    state: State
    word: str
    """The state in a word."""

    link: str
    """Where the page says more."""


@dataclass(frozen=True)
class Document:
    title: str
    """What the page is about; `headline` is what it says."""

    subtitle: str
    status: State
    verdict: str
    """`status` in a word or two."""

    headline: str
    """The answer in one sentence."""

    summary: tuple[str | Cell, ...] = ()
    """Sentences for a reader who reads nothing else. A caution is a cell with a state."""

    tiles: tuple[Tile, ...] = ()
    steps: tuple[Step, ...] = ()
    sections: tuple[Section, ...] = ()
    badges: tuple[Badge, ...] = ()
    badges_title: str = ""

    axis: Axis = Axis(1, (), ())
    foot: tuple[str, ...] = ()
    steps_title: str = "To do"

    @classmethod
    def of_result(
        cls,
        result: Result,
        details: Iterable[object],
        sections: Iterable[Section] = (),
        steps: Iterable[Step] = (),
        summary: Sequence[str | Cell] = (),
    ) -> Document:
        """The document that answers with the verdict and the reason of `result`. `details` stand beside its
        title; empty ones are left out."""
        status, verdict = STATES[result.verdict]
        return cls(
            title=result.phase,
            subtitle=" · ".join(str(detail) for detail in details if detail),
            status=status,
            verdict=verdict,
            headline=sentence(result.reason),
            summary=tuple(summary),
            steps=tuple(steps),
            sections=tuple(sections),
        )

    def in_short(self) -> str:
        """The verdict, the answer and the summary as one paragraph."""
        return " ".join([f"{self.verdict}.", self.headline, *map(text_of, self.summary)])


def text_of(cell: str | Cell) -> str:
    return cell if isinstance(cell, str) else cell.text
