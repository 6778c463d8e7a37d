"""What a page is made of, whatever it is written as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["good", "look", "no data"]


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """The first cell of each names it."""

    note: str = ""


@dataclass(frozen=True)
class Line:
    label: str
    values: tuple[float | None, ...]
    """By hour; None is a hole."""


@dataclass(frozen=True)
class Level:
    """A value that lines are read against."""

    label: str
    value: float


@dataclass(frozen=True)
class OverTime:
    title: str
    description: str
    """The text alternative: what the chart shows."""

    unit: str
    lines: tuple[Line, ...]
    levels: tuple[Level, ...] = ()
    most: float | None = None
    """At which the axis ends; None: above what there is."""


@dataclass(frozen=True)
class Timeline:
    title: str
    description: str
    rows: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    """What, and from which hour to which."""


@dataclass(frozen=True)
class Curve:
    """By position in the draft, from 1."""

    title: str
    description: str
    lines: tuple[Line, ...]


Chart = OverTime | Timeline | Curve


@dataclass(frozen=True)
class Axis:
    """Of all charts over time."""

    hours: int
    ticks: tuple[tuple[float, str], ...]
    """At which hour there is one, and what it says."""

    unknown: tuple[tuple[float, float], ...]
    """From which hour to which nothing is known."""


@dataclass(frozen=True)
class Section:
    title: str
    text: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Tile:
    """A figure that is seen first."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class Step:
    """Something to do."""

    action: str
    why: str
    command: str


@dataclass(frozen=True)
class Document:
    title: str
    subtitle: str
    status: Status
    headline: str
    summary: str
    """One paragraph for somebody who reads nothing else."""

    tiles: tuple[Tile, ...]
    steps: tuple[Step, ...]
    axis: Axis
    sections: tuple[Section, ...]
    foot: tuple[str, ...] = ()
