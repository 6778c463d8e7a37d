"""A sweep as one picture: a heat map of speed-ups, and tokens/s of one user against those of all streams.

It is read without colour: every square has its number, what surely pays is bold, the recommended has a frame,
undecided squares are hatched, undecided points are half filled, and loads differ by marker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specops.render.plot import (
    BACKGROUND,
    GREY,
    INK,
    LIGHT,
    MARKERS,
    Heading,
    figure,
    foot,
    ink_on,
    legend_outside,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = "PuOr"  # orange is slower, purple is faster, whatever one's eyes; white is 1
_MOST = math.log(3.0)  # at which the colour is full
_ROW_INCHES, _COLUMN_INCHES = 0.5, 1.15
_ACROSS = 3  # heat maps in a row


@dataclass(frozen=True)
class Square:
    """A setting at one load."""

    row: str
    streams: int
    estimate: float | None
    """Estimate of its speed-up; None where too little was measured."""

    ends: tuple[float, float] | None
    """Ends of the interval."""

    chosen: bool
    """Whether it is what is recommended."""


@dataclass(frozen=True)
class Panel:
    title: str
    squares: tuple[Square, ...]


@dataclass(frozen=True)
class Point:
    """A setting at one concurrency."""

    setting: str
    streams: int
    user: float
    """Tokens a second of one stream, while it is answered."""

    total: float
    """Tokens a second of all streams."""

    decided: bool
    """Whether its speed-up is surely above or below 1."""


@dataclass(frozen=True)
class Picture:
    panels: tuple[Panel, ...]
    points: tuple[Point, ...]
    standard: str
    confidence: str
    """Confidence of the intervals, and how they are shown, in words."""


def draw(picture: Picture, heading: Heading, path: Path) -> None:
    """Write `picture` as SVG or PNG, by the suffix of `path`. Raises FileError if that fails."""
    rows = list(dict.fromkeys(square.row for panel in picture.panels for square in panel.squares))
    streams = sorted({square.streams for panel in picture.panels for square in panel.squares})
    across = min(max(1, len(picture.panels)), _ACROSS)
    down = math.ceil(len(picture.panels) / across)
    heat = 0.4 + down * max(1.6, _ROW_INCHES * len(rows) + 0.9)
    width = max(8.0, across * (_COLUMN_INCHES * len(streams) + 1.2))
    with figure(path, heading, (width, heat + 4.2)) as whole:
        grid = whole.add_gridspec(2, 1, height_ratios=[heat, 4.0])
        upper = grid[0].subgridspec(max(1, down), across)
        for number, panel in enumerate(picture.panels):
            _heat_map(
                whole.add_subplot(upper[number // across, number % across]), panel, rows, streams, picture
            )
        _pareto(whole.add_subplot(grid[1]), picture)
        foot(whole, picture.confidence)


def _heat_map(
    axes: Axes, panel: Panel, rows: Sequence[str], streams: Sequence[int], picture: Picture
) -> None:
    axes.set_xticks(range(len(streams)), [str(count) for count in streams])
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlim(-0.5, len(streams) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(length=0, labelbottom=True)
    axes.set_xlabel("streams")
    title = f"end-to-end speed-up over {picture.standard} (×)"
    axes.set_title(f"{title}\n{panel.title}" if panel.title else title, loc="left", fontsize=9)
    for square in panel.squares:
        _square(axes, square, streams.index(square.streams), rows.index(square.row))


def _square(axes: Axes, square: Square, column: int, row: int) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    share = 0.5
    if square.estimate is not None:
        share = min(max((math.log(square.estimate) / _MOST + 1) / 2, 0.0), 1.0)
    surely = square.ends is not None and square.ends[0] > 1
    undecided = square.ends is not None and square.ends[0] <= 1 <= square.ends[1]
    # What is undecided has no colour of its own: a hatched frame.
    fill = BACKGROUND if undecided or square.ends is None else colormaps[_COLOURS](share)[:3]
    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=fill, edgecolor=BACKGROUND))
    if undecided:
        axes.add_patch(
            Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, fill=False, edgecolor=LIGHT, hatch="///")
        )
    if square.chosen:
        axes.add_patch(
            Rectangle(
                (column - 0.49, row - 0.49), 0.98, 0.98, fill=False, edgecolor=INK, linewidth=2, zorder=3
            )
        )
    text, detail = _text(square)
    ink = ink_on(to_rgb(fill))
    behind = {"facecolor": BACKGROUND, "edgecolor": "none", "pad": 1.0} if undecided else None
    axes.text(
        column,
        row - (0.14 if detail else 0),
        text,
        ha="center",
        va="center",
        color=ink,
        fontsize=9,
        fontweight="bold" if surely else "normal",
        bbox=behind,
    )
    axes.text(column, row + 0.24, detail, ha="center", va="center", color=ink, fontsize=7, bbox=behind)


def _text(square: Square) -> tuple[str, str]:
    if square.estimate is None or square.ends is None:
        return "–", "too few requests"
    low, high = square.ends
    ends = f"{low:.2f} to {high:.2f}"
    return (
        ("undecided", f"{square.estimate:.2f}×, {ends}")
        if low <= 1 <= high
        else (f"{square.estimate:.2f}×", ends)
    )


def _pareto(axes: Axes, picture: Picture) -> None:
    """Towards the upper right is better; what nothing beats in both is solid."""
    if not picture.points:
        axes.set_axis_off()
        axes.text(0, 0.5, "tokens a second are not known: the endpoint reports no usage", fontsize=8)
        return
    streams = sorted({point.streams for point in picture.points})
    front = frontier(picture.points)
    axes.plot(
        [point.user for point in front],
        [point.total for point in front],
        ":",
        color=LIGHT,
        linewidth=1,
        zorder=1,
    )
    for point in picture.points:
        marker = MARKERS[streams.index(point.streams) % len(MARKERS)]
        axes.plot(point.user, point.total, marker, **_style(point, front), markersize=6, zorder=2)
    _pareto_legend(axes, picture.points, front, streams)
    for point in picture.points:
        best = point in front
        axes.annotate(
            point.setting,
            (point.user, point.total),
            xytext=(5, 3) if best else (0, -5),
            textcoords="offset points",
            ha="left" if best else "center",
            va="bottom" if best else "top",
            fontsize=8 if best else 6.5,
            color=INK if best else GREY,
        )
    axes.margins(0.12)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens/s of one user, while being answered (1000 ÷ median TPOT)")
    axes.set_ylabel("tokens/s of all streams")
    axes.set_title("tokens/s of one user, and of all streams", loc="left", fontsize=10, fontweight="bold")
    legend_outside(axes)


def _style(point: Point, front: Sequence[Point]) -> dict[str, Any]:
    """Solid: nothing beats it in both figures. Half: so it looks, but its speed-up is undecided. Hollow:
    beaten."""
    best = point in front
    colour = INK if best else GREY
    fill = "none" if not best else "full" if point.decided else "left"
    return {"color": colour, "fillstyle": fill, "markerfacecoloralt": BACKGROUND}


_MEANING = {
    (True, True): "not beaten in both figures",
    (True, False): "not beaten; its speed-up is undecided",
    (False, True): "beaten in both figures",
}
"""Meaning of a point, by whether it is on the frontier, and decided."""


def _pareto_legend(
    axes: Axes, points: Sequence[Point], front: Sequence[Point], streams: Sequence[int]
) -> None:
    """Shapes are loads; fills are verdicts, explained with a shape that stands for no load."""
    for number, count in enumerate(streams):
        label = f"{count} stream{'s' if count > 1 else ''}"
        axes.plot([], [], MARKERS[number % len(MARKERS)], color=GREY, fillstyle="none", label=label)
    kinds: dict[tuple[bool, bool], Point] = {}
    for point in points:
        best = point in front
        kinds.setdefault((best, point.decided if best else True), point)
    for kind, label in _MEANING.items():
        if kind in kinds:
            axes.plot([], [], "p", **_style(kinds[kind], front), label=label)


def frontier(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats in one figure without losing in the other, from the fastest for a
    user."""
    undominated: list[Point] = []
    for point in sorted(points, key=lambda point: (-point.user, -point.total)):
        if not undominated or point.total > undominated[-1].total:
            undominated.append(point)
    return undominated
