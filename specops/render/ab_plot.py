"""A comparison as one picture: speed-ups by prompt and class with their intervals, acceptance by position.

It is read without colour: loads differ by marker and line, prompts are hollow dots. The same comparison
gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specops.errors import FileError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = "osD^vP*X"
_LINES = ("-", "--", "-.", ":")
_DARK, _LIGHT, _SHADE = "0.1", "0.55", "0.92"
_ROW_INCHES = 0.62
_TICKS = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2, 2.5, 3, 4, 6, 10)
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "specops",  # of the ids in an SVG
    "svg.fonttype": "none",  # text stays text: it can be searched and is small
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True)
class Mark:
    """An interval at one load."""

    load: str
    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One traffic class."""

    label: str
    dots: tuple[float, ...]
    """A prompt's speed-up each, at the lightest load."""

    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Curve:
    """Acceptance at one load: by position from the first, the share of drafts accepted that far."""

    load: str
    rate: float | None
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Panel:
    """One challenger."""

    name: str
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]
    no_curves: str
    """Why there are none."""


@dataclass(frozen=True)
class Picture:
    standard: str
    panels: tuple[Panel, ...]
    expected: tuple[float, float]
    """The range of speed-ups that the playbook expects."""

    confidence: str
    """Of the intervals, in words."""


def draw(picture: Picture, path: Path) -> None:
    """Write `picture` as SVG or PNG, by the suffix of `path`. FileError where that cannot be written."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = [max(2, len(panel.rows)) for panel in picture.panels]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10, _ROW_INCHES * sum(rows) + 1.5 * len(rows) + 0.4), layout="constrained")
        axes = figure.subplots(
            len(rows), 2, squeeze=False, width_ratios=[2, 1], height_ratios=[count + 2 for count in rows]
        )
        for panel, (left, right) in zip(picture.panels, axes, strict=True):
            _speedups(left, panel, picture)
            _acceptance(right, panel)
        figure.supxlabel(picture.confidence, fontsize=8, x=0.01, ha="left")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(
                path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None}
            )
        except OSError as error:
            raise FileError(
                f"could not write the plot {path}: {error.strerror}", hint="give another path with --plot"
            ) from error


def _speedups(axes: Axes, panel: Panel, picture: Picture) -> None:
    loads = list(dict.fromkeys(mark.load for row in panel.rows for mark in row.marks))
    axes.axvspan(*picture.expected, color=_SHADE, zorder=0, label="expected by the playbook")
    axes.axvline(1, color=_DARK, linewidth=0.8, zorder=1)
    for place, row in enumerate(panel.rows):
        axes.plot(
            row.dots,
            [place + offset for offset in _spread(len(row.dots))],
            "o",
            markersize=3.5,
            markerfacecolor="none",
            markeredgecolor=_LIGHT,
            markeredgewidth=0.8,
            zorder=2,
            label=f"a prompt at {loads[0]}" if place == 0 and loads else None,
        )
        for mark in row.marks:
            number = loads.index(mark.load)
            axes.errorbar(
                mark.estimate,
                place + 0.5 * (number + 1) / (len(loads) + 1),
                xerr=[[mark.estimate - mark.low], [mark.high - mark.estimate]],
                fmt=_MARKERS[number % len(_MARKERS)],
                color=_DARK,
                markersize=4.5,
                capsize=2.5,
                linewidth=1.2,
                zorder=3,
                label=mark.load if place == 0 else None,
            )
    axes.set_yticks(range(len(panel.rows)), [row.label for row in panel.rows])
    axes.set_ylim(len(panel.rows) - 0.35, -0.6)
    _logarithmic(axes, picture)
    axes.set_xlabel("end-to-end speed-up, standard ÷ challenger (×, logarithmic)")
    axes.set_title(f"{panel.name} against {picture.standard}", loc="left", fontsize=10, fontweight="bold")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)


def _logarithmic(axes: Axes, picture: Picture) -> None:
    """A factor of two is as far to the right as a half is to the left; the same of all challengers."""
    rows = [row for panel in picture.panels for row in panel.rows]
    ends = [value for row in rows for mark in row.marks for value in (mark.low, mark.high)]
    values = [*ends, *(dot for row in rows for dot in row.dots), 1.0, picture.expected[1]]
    low, high = max(min(values) / 1.1, 0.05), min(max(values) * 1.1, 20.0)
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _acceptance(axes: Axes, panel: Panel) -> None:
    if not panel.curves:
        axes.set_axis_off()
        axes.text(0, 0.5, f"acceptance not known:\n{panel.no_curves}", fontsize=8, va="center", wrap=True)
        return
    for number, curve in enumerate(panel.curves):
        rate = "" if curve.rate is None else f": {curve.rate:.2f} of draft tokens"
        axes.plot(
            range(1, len(curve.shares) + 1),
            curve.shares,
            _LINES[number % len(_LINES)],
            marker=_MARKERS[number % len(_MARKERS)],
            color=_DARK,
            markersize=4.5,
            linewidth=1,
            label=f"{curve.load}{rate}",
        )
    axes.set_ylim(0, 1)
    axes.set_xticks(range(1, max(len(curve.shares) for curve in panel.curves) + 1))
    axes.set_xlabel("position in the draft (token)")
    axes.set_ylabel("drafts accepted this far (share)")
    axes.legend(loc="best", frameon=False, fontsize=8)


def _spread(count: int) -> Sequence[float]:
    """Heights above a row for its dots, so that dots of one value are seen; the same ones every time."""
    return [-0.08 - 0.34 * ((number * 0.618034) % 1) for number in range(count)]
