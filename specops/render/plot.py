"""What all plots share: a heading, colours, markers, an opaque background, and writing as SVG or PNG.

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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    """UsageError unless `path` names an SVG or a PNG."""
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"invalid plot file '{path}': expected a name that ends with .svg or .png",
            hint=f"give {path.with_suffix('.svg')}",
        )


@contextmanager
def figure(path: Path, heading: Heading, inches: tuple[float, float]) -> Iterator[Figure]:
    """A figure with the heading above the axes that the caller adds; written when the block ends.

    FileError if the file cannot be written.
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
                f"could not write the plot {path}: {error.strerror}", hint="give another path"
            ) from error


def legend_outside(axes: Axes) -> None:
    """The legend to the right of the axes, where it cannot be mistaken for data."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8)


def contrast(one: str | Sequence[float], other: str | Sequence[float]) -> float:
    """The contrast ratio of two colours, 1 to 21 (WCAG 2.1)."""
    from matplotlib.colors import to_rgb

    def luminance(colour: Any) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def ink_on(colour: Sequence[float]) -> str:
    """The text colour that is legible on `colour`."""
    return max(("#000000", BACKGROUND), key=lambda ink: contrast(ink, colour))
