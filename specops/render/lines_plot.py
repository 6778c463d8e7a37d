"""Figures over a load, a delay or time, as panels of lines with intervals: baseline, edge simulation and
report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from specops.render.plot import LIGHT, LINES, MARKERS, SERIES, Heading, figure, legend_outside

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Line:
    """One line; None where there is no value."""

    label: str
    values: tuple[float | None, ...]
    ends: tuple[tuple[float, float] | None, ...] = ()
    """Intervals, one for each value."""


@dataclass(frozen=True)
class LinesPanel:
    title: str
    unit: str
    lines: tuple[Line, ...]
    level: float | None = None
    """A line to compare with, such as 1 for a speed-up."""

    highest: float | None = None
    """The end of the axis, such as 1 for a share."""


@dataclass(frozen=True)
class LinesPicture:
    axis: str
    at: tuple[float, ...]
    """x, the same for all lines."""

    panels: tuple[LinesPanel, ...]
    foot: str = ""
    ticks: tuple[str, ...] = ()
    """Labels of `at`; without them, x is a scale."""


def draw(picture: LinesPicture, heading: Heading, path: Path) -> None:
    """Write `picture` as SVG or PNG, by the suffix of `path`. FileError if that fails."""
    with figure(path, heading, (max(7.0, 4.0 * len(picture.panels) + 1.2), 3.6)) as whole:
        axes = whole.subplots(1, len(picture.panels), squeeze=False)[0]
        for number, (panel, one) in enumerate(zip(picture.panels, axes, strict=True)):
            _panel(one, panel, picture)
            last = number == len(picture.panels) - 1
            if last or _labels(panel) != _labels(picture.panels[number + 1]):
                legend_outside(one)
        whole.supxlabel(picture.foot, fontsize=8, x=0.01, ha="left")


def _labels(panel: LinesPanel) -> list[str]:
    return [line.label for line in panel.lines]


def _panel(axes: Axes, panel: LinesPanel, picture: LinesPicture) -> None:
    at = list(range(len(picture.at))) if picture.ticks else list(picture.at)
    step = min((right - left for left, right in pairwise(at)), default=1.0)
    if panel.level is not None:
        axes.axhline(panel.level, color=LIGHT, linewidth=1)
    top = 0.0
    for number, line in enumerate(panel.lines):
        # Points of one x are set apart, so that they do not cover each other.
        x = [place + step * 0.06 * (number - (len(panel.lines) - 1) / 2) for place in at]
        colour = SERIES[number % len(SERIES)]
        axes.plot(
            x,
            [float("nan") if value is None else value for value in line.values],
            LINES[number % len(LINES)],
            marker=MARKERS[number % len(MARKERS)] if len(at) <= 24 else None,
            color=colour,
            linewidth=1.2,
            markersize=4.5,
            label=line.label,
        )
        for place, ends in zip(x, line.ends, strict=False):
            if ends is not None:
                axes.plot((place, place), ends, color=colour, linewidth=1, marker="_", markersize=5)
        top = max([top, *(value for value in line.values if value is not None)])
    highest = panel.highest or (1.35 * top or 1.0)
    axes.set_ylim(0, highest)
    _arrows(axes, panel.lines, at, highest)
    if picture.ticks:
        every = max(1, len(at) // 4)
        axes.set_xticks(at[::every], picture.ticks[::every])
    axes.set_xlabel(picture.axis)
    axes.set_ylabel(panel.unit)
    axes.set_title(panel.title, loc="left", fontsize=9, fontweight="bold")
    axes.margins(x=0.06)


def _arrows(axes: Axes, lines: Sequence[Line], at: Sequence[float], highest: float) -> None:
    """Intervals that end above the axis."""
    step = min((right - left for left, right in pairwise(at)), default=1.0)
    for number, line in enumerate(lines):
        for place, ends in zip(at, line.ends, strict=False):
            if ends is not None and ends[1] > highest:
                x = place + step * 0.06 * (number - (len(lines) - 1) / 2)
                axes.plot(x, highest, "^", color=SERIES[number % len(SERIES)], markersize=5, clip_on=False)
