"""Parts that all plots share; and figures over a load, a delay or time, as panels of lines with intervals.

The colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/), and nothing is read by colour alone. Text
has a contrast of at least 4.5 to its background, on light and dark pages, since a plot has its own
background. The same picture gives the same bytes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specops.errors import FileError, UsageError
from specops.hints import folder_state, with_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SUFFIXES = (".svg", ".png")
BACKGROUND, INK, GREY, LIGHT, SHADE = "#ffffff", "#1a1a1a", "#595959", "#b0b0b0", "#ececec"
"""INK and GREY are for text. LIGHT is for lines and SHADE for areas."""
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*X"
LINES = ("-", "--", "-.", ":")
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "specops",  # of the ids in an SVG
    "svg.fonttype": "none",  # text stays text: it can be searched and is small
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": BACKGROUND,
    "axes.facecolor": BACKGROUND,
    "savefig.facecolor": BACKGROUND,
    **{f"{part}.color": INK for part in ("text", "xtick", "ytick")},
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "hatch.linewidth": 0.6,
}


@dataclass(frozen=True)
class Heading:
    """The words of a plot beside its data."""

    title: str
    """What was measured, and the verdict."""

    lines: tuple[str, ...]
    """The reason; then model, date, sample size."""


def check_suffix(path: Path) -> None:
    """Raise UsageError unless `path` names an SVG or a PNG."""
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"invalid plot file '{path}': expected a name that ends with .svg or .png",
            hint=with_value(path, path.with_suffix(".svg")),
        )


@contextmanager
def figure(path: Path, heading: Heading, inches: tuple[float, float]) -> Iterator[Figure]:
    """A figure with the heading above the axes that the caller adds; written when the block ends.

    Raises FileError if the file cannot be written.
    """
    import matplotlib
    from matplotlib.figure import Figure

    width, height = inches
    lines = [part for line in heading.lines for part in textwrap.wrap(line, int(width * 15))]
    with matplotlib.rc_context(_STYLE):
        above = 0.34 + 0.17 * len(lines)
        whole = Figure(figsize=(width, height + above), layout="constrained")
        total, left = height + above, 0.1 / width
        whole.text(left, 1 - 0.06 / total, heading.title, va="top", fontsize=12, fontweight="bold")
        for number, line in enumerate(lines):
            whole.text(left, 1 - (0.32 + 0.17 * number) / total, line, va="top", fontsize=8.5, color=GREY)
        engine: Any = whole.get_layout_engine()
        engine.set(rect=(0, 0, 1, 1 - above / total))
        yield whole
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            whole.savefig(path, dpi=150, metadata=metadata)
        except OSError as error:
            raise FileError(
                f"could not write the plot {path}: {error.strerror}", hint=folder_state(path.parent)
            ) from error


def foot(whole: Figure, text: str) -> None:
    """A note below all axes, as wide as the figure at most."""
    lines = textwrap.wrap(text, int(whole.get_figwidth() * 15))
    whole.supxlabel("\n".join(lines), fontsize=8, x=0.01, ha="left")


def legend_outside(axes: Axes) -> None:
    """The legend to the right of the axes, where it cannot be mistaken for data."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8)


def contrast(first: str | Sequence[float], second: str | Sequence[float]) -> float:
    """The contrast ratio of two colours, 1 to 21 (WCAG 2.1)."""
    from matplotlib.colors import to_rgb

    def luminance(colour: Any) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def ink_on(colour: Sequence[float]) -> str:
    """The text colour that is legible on `colour`."""
    return max(("#000000", BACKGROUND), key=lambda ink: contrast(ink, colour))


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
    x: tuple[float, ...]
    """The same for all lines."""

    panels: tuple[LinesPanel, ...]
    foot: str = ""
    ticks: tuple[str, ...] = ()
    """Labels of `at`; without them, x is a scale."""


def draw(picture: LinesPicture, heading: Heading, path: Path) -> None:
    """Write `picture` as SVG or PNG, by the suffix of `path`. Raises FileError if that fails."""
    with figure(path, heading, (max(7.0, 4.0 * len(picture.panels) + 1.2), 3.6)) as whole:
        axes = whole.subplots(1, len(picture.panels), squeeze=False)[0]
        for number, (panel, panel_axes) in enumerate(zip(picture.panels, axes, strict=True)):
            _panel(panel_axes, panel, picture)
            last = number == len(picture.panels) - 1
            if last or _labels(panel) != _labels(picture.panels[number + 1]):
                legend_outside(panel_axes)
        foot(whole, picture.foot)


def _labels(panel: LinesPanel) -> list[str]:
    return [line.label for line in panel.lines]


def _panel(axes: Axes, panel: LinesPanel, picture: LinesPicture) -> None:
    positions = list(range(len(picture.x))) if picture.ticks else list(picture.x)
    step = min((right - left for left, right in pairwise(positions)), default=1.0)
    if panel.level is not None:
        axes.axhline(panel.level, color=LIGHT, linewidth=1)
    top = 0.0
    for number, line in enumerate(panel.lines):
        # Points of one x are set apart, so that they do not cover each other.
        x = [place + step * 0.06 * (number - (len(panel.lines) - 1) / 2) for place in positions]
        colour = SERIES[number % len(SERIES)]
        axes.plot(
            x,
            [float("nan") if value is None else value for value in line.values],
            LINES[number % len(LINES)],
            marker=MARKERS[number % len(MARKERS)] if len(positions) <= 24 else None,
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
    _arrows(axes, panel.lines, positions, highest)
    if picture.ticks:
        every = max(1, len(positions) // 4)
        axes.set_xticks(positions[::every], picture.ticks[::every])
    axes.set_xlabel(picture.axis)
    axes.set_ylabel(panel.unit)
    axes.set_title(panel.title, loc="left", fontsize=9, fontweight="bold")
    axes.margins(x=0.06)


def _arrows(axes: Axes, lines: Sequence[Line], positions: Sequence[float], highest: float) -> None:
    """Intervals that end above the axis."""
    step = min((right - left for left, right in pairwise(positions)), default=1.0)
    for number, line in enumerate(lines):
        for place, ends in zip(positions, line.ends, strict=False):
            if ends is not None and ends[1] > highest:
                x = place + step * 0.06 * (number - (len(lines) - 1) / 2)
                axes.plot(x, highest, "^", color=SERIES[number % len(SERIES)], markersize=5, clip_on=False)
