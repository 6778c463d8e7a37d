"""A comparison as one picture: speed-ups by prompt and class with their intervals, acceptance by position.

It is read without colour: loads differ by marker and height, prompts are hollow dots, undecided intervals are
hatched, or hollow marks where they are narrow. A decision not to deploy is a cross, whatever its interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specops.render.plot import (
    BACKGROUND,
    GREY,
    INK,
    LIGHT,
    LINES,
    MARKERS,
    SERIES,
    SHADE,
    Heading,
    figure,
    foot,
    legend_outside,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from specops.results import Verdict

_ROW_INCHES = 0.62
_TICKS = (1, 2, 0.5, 4, 0.25, 10, 0.1, 1.5, 0.67, 3, 0.33, 6, 1.25, 0.8, 2.5, 0.2)
"""Of ticks whose labels would touch, the earlier one stays."""
_LABEL = 0.075
"""Share of the axis that the label of a tick takes, with the space around it."""
_NARROW = 0.02
"""Share of the axis: a range below this share of it is drawn as a point."""
_ROOM = 1.6
"""An interval is clipped, with an arrow, this factor beyond the outermost estimate."""


@dataclass(frozen=True)
class Mark:
    """An interval at one load."""

    load: str
    estimate: float
    low: float
    high: float
    verdict: Verdict | None = None
    """The decision at this load, which rests on more than the interval; None: on the interval alone."""

    @property
    def includes_1(self) -> bool:
        return self.low <= 1 <= self.high

    @property
    def decided(self) -> bool:
        """Return whether the load is decided: without a verdict, whether the interval excludes 1."""
        return not self.includes_1 if self.verdict is None else self.verdict != "undecided"


@dataclass(frozen=True)
class Row:
    """One traffic class."""

    label: str
    dots: tuple[float, ...]
    """A prompt's speed-up each, at the lightest load."""

    marks: tuple[Mark, ...]
    unmarked: tuple[str, ...] = ()
    """Loads without an interval, each with its decision, such as `4 streams (do not deploy)`."""


@dataclass(frozen=True)
class Curve:
    """Acceptance at one load: by position from the first, the share of drafts accepted that far."""

    load: str
    rate: float | None
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Panel:
    """One challenger."""

    title: str
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]
    no_curves: str | None
    """Why acceptance is unknown; None if it was not to be measured."""


@dataclass(frozen=True)
class Picture:
    panels: tuple[Panel, ...]
    expected: tuple[float, float] | None
    """The default range of targets."""

    confidence: str
    """Confidence of the intervals, in words."""

    axis: str = "end-to-end speed-up, standard ÷ challenger (×, logarithmic)"


def draw(picture: Picture, heading: Heading, path: Path) -> None:
    """Write `picture` as SVG or PNG, by the suffix of `path`. Raises FileError if that fails."""
    rows = [max(2, len(panel.rows)) for panel in picture.panels]
    accepted = any(panel.curves or panel.no_curves for panel in picture.panels)
    inches = (12.0 if accepted else 9.0, _ROW_INCHES * sum(rows) + 1.5 * len(rows) + 0.4)
    widths = [2, 1] if accepted else [1]
    with figure(path, heading, inches) as whole:
        axes = whole.subplots(
            len(rows),
            len(widths),
            squeeze=False,
            width_ratios=widths,
            height_ratios=[count + 2 for count in rows],
        )
        for panel, (left, *right) in zip(picture.panels, axes, strict=True):
            _speedups(left, panel, picture)
            for panel_axes in right:
                _acceptance(panel_axes, panel)
        foot(whole, picture.confidence)


def _speedups(axes: Axes, panel: Panel, picture: Picture) -> None:
    loads = list(dict.fromkeys(mark.load for row in panel.rows for mark in row.marks))
    limits = _logarithmic(axes, picture)
    if picture.expected is not None:
        axes.axvspan(*picture.expected, color=SHADE, zorder=0, label="default targets")
    axes.axvline(1, color=INK, linewidth=0.8, zorder=1)
    for place, row in enumerate(panel.rows):
        axes.axhline(place + 0.6, color=SHADE, linewidth=0.8, zorder=0)
        axes.plot(
            row.dots,
            [place + offset for offset in _spread(len(row.dots))],
            "o",
            markersize=3.5,
            markerfacecolor="none",
            markeredgecolor=LIGHT,
            markeredgewidth=0.8,
            zorder=2,
            label=f"a prompt at {loads[0]}" if place == 0 and loads and row.dots else None,
        )
        for mark in row.marks:
            number = loads.index(mark.load)
            _mark(axes, mark, place + 0.6 * (number + 0.5) / len(loads), number, limits)
        if row.unmarked:
            note = f"no interval: {', '.join(row.unmarked)}"
            axes.text(limits[0] * 1.02, place + 0.5, note, fontsize=7.5, color=GREY, va="center", zorder=5)
    _legend_entries(axes, loads, panel)
    axes.set_yticks(range(len(panel.rows)), [row.label for row in panel.rows])
    axes.set_ylim(len(panel.rows) - 0.3, -0.6)
    axes.set_xlabel(picture.axis)
    axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    legend_outside(axes)


def _mark(axes: Axes, mark: Mark, y: float, number: int, limits: tuple[float, float]) -> None:
    """A decided interval is a point with its ends, a cross for `no`. An undecided one is a hatched range
    without a point, or a hollow point where the range is too narrow to see. An end outside of the axis is
    an arrow."""
    from matplotlib.patches import Rectangle

    colour, (left, right) = SERIES[number % len(SERIES)], limits
    low, high = max(mark.low, left), min(mark.high, right)
    if mark.decided:
        axes.plot((low, high), (y, y), color=colour, linewidth=1.4, solid_capstyle="butt", zorder=3)
        shape = "x" if mark.verdict == "no" else MARKERS[number % len(MARKERS)]
        edge_width = 2.0 if mark.verdict == "no" else 1.0
        axes.plot(mark.estimate, y, shape, color=colour, markersize=5, markeredgewidth=edge_width, zorder=4)
    elif _narrow(low, high, limits):
        axes.plot(
            (low * high) ** 0.5,
            y,
            MARKERS[number % len(MARKERS)],
            color=colour,
            markersize=7,
            markerfacecolor=BACKGROUND,
            markeredgewidth=1.4,
            zorder=4,
        )
    else:
        axes.add_patch(
            Rectangle(
                (low, y - 0.07),
                high - low,
                0.14,
                facecolor=BACKGROUND,
                edgecolor=colour,
                hatch="/////",
                zorder=3,
            )
        )
    for end, edge, arrow in ((mark.low, left, "<"), (mark.high, right, ">")):
        if not left <= end <= right:
            axes.plot(edge, y, arrow, color=colour, markersize=6, clip_on=False, zorder=5)
        elif mark.decided:
            axes.plot(end, y, "|", color=colour, markersize=6, zorder=3)


def _narrow(low: float, high: float, limits: tuple[float, float]) -> bool:
    """Return whether the range from `low` to `high` would be hidden by the line at 1."""
    return math.log(high / low) < _NARROW * math.log(limits[1] / limits[0])


def _legend_entries(axes: Axes, loads: Sequence[str], panel: Panel) -> None:
    """One entry for each load, and for what is undecided and clipped."""
    for number, load in enumerate(loads):
        colour = SERIES[number % len(SERIES)]
        axes.plot([], [], MARKERS[number % len(MARKERS)], color=colour, label=load)
    marks = [mark for row in panel.rows for mark in row.marks]
    if any(mark.verdict == "no" for mark in marks):
        axes.plot([], [], "x", color=INK, markeredgewidth=2.0, linestyle="none", label="do not deploy")
    undecided = [mark for mark in marks if not mark.decided]
    reason = ": the interval includes 1" if all(mark.includes_1 for mark in undecided) else ""
    hidden = [mark for mark in undecided if _narrow(mark.low, mark.high, axes.get_xlim())]
    if len(undecided) > len(hidden):
        label = f"undecided{reason}"
        axes.fill([], [], facecolor=BACKGROUND, edgecolor=INK, hatch="/////", label=label)
    if hidden:
        label = "undecided: narrower than its mark"
        narrow = "undecided: a narrow interval that includes 1" if reason else "undecided: a narrow interval"
        label = label if len(undecided) > len(hidden) else narrow
        axes.plot([], [], "p", color=INK, markerfacecolor=BACKGROUND, linestyle="none", label=label)
    if any(mark.low < axes.get_xlim()[0] or mark.high > axes.get_xlim()[1] for mark in marks):
        axes.plot([], [], ">", color=INK, label="ends outside of the axis")


def _logarithmic(axes: Axes, picture: Picture) -> tuple[float, float]:
    """The axis of all panels: a factor of two is as far right as a half is left. Estimates decide its
    ends, so that a wide interval does not flatten the others."""
    rows = [row for panel in picture.panels for row in panel.rows]
    values = [mark.estimate for row in rows for mark in row.marks if mark.decided]
    values += [*(dot for row in rows for dot in row.dots), 1.0, *(picture.expected or ())[1:]]
    low, high = max(min(values) / _ROOM, 0.05), min(max(values) * _ROOM, 20.0)
    ticks: list[float] = []
    for tick in _TICKS:
        apart = (abs(math.log(tick / placed)) / math.log(high / low) for placed in ticks)
        if low <= tick <= high and all(distance >= _LABEL for distance in apart):
            ticks.append(tick)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    return low, high


def _acceptance(axes: Axes, panel: Panel) -> None:
    if not panel.curves:
        axes.set_axis_off()
        if panel.no_curves is None:
            return
        axes.text(0, 0.5, f"acceptance not known:\n{panel.no_curves}", fontsize=8, va="center", wrap=True)
        return
    for number, curve in enumerate(panel.curves):
        rate = "" if curve.rate is None else f": {curve.rate:.2f} of draft tokens"
        axes.plot(
            [position + 0.04 * number for position in range(1, len(curve.shares) + 1)],
            curve.shares,
            LINES[number % len(LINES)],
            marker=MARKERS[number % len(MARKERS)],
            color=SERIES[number % len(SERIES)],
            markersize=4.5,
            linewidth=1,
            label=f"{curve.load}{rate}",
        )
    axes.set_ylim(0, 1)
    axes.set_xticks(range(1, max(len(curve.shares) for curve in panel.curves) + 1))
    axes.set_xlabel("position in the draft (token)")
    axes.set_ylabel("drafts accepted this far (share)")
    legend_outside(axes)


def _spread(count: int) -> Sequence[float]:
    """Heights above a row for its dots, so that dots of one value are visible; the same ones every time."""
    return [-0.08 - 0.34 * ((number * 0.618034) % 1) for number in range(count)]
