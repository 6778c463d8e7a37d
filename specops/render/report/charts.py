"""Charts as SVG that takes its colours from the page: dark, light and print show the same picture.

matplotlib draws in colours that stand for roles; they become the page's custom properties. A line is broken
where nothing is known; an hour alone between two holes is a dot. Lines differ by dashes too, so that they are
read without colour. The same document gives the same bytes.
"""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING, Any

from specops.render.report.document import Axis, Chart, Curve, OverTime, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROLES = {
    "#010101": "--ink", "#020202": "--faint", "#030303": "--hole", "#040404": "--bad",
    "#050501": "--line-1", "#050502": "--line-2", "#050503": "--line-3",
}  # fmt: skip
_INK, _FAINT, _HOLE, _BAD, *_COLOURS = _ROLES
_DASHES = ("-", "--", ":")
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "specops",  # of the ids in an SVG
    "svg.fonttype": "none",  # text stays text: it can be searched and is small
    "text.parse_math": False,  # an alert's name may have a $
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
}
_WIDTH, _HEIGHT, _ROW = 9.0, 2.3, 0.32


def svg(chart: Chart, axis: Axis, number: int) -> str:
    """The `number`-th chart of a page, by which its ids differ from those of the others."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": f"specops {number}"}):
        height = _ROW * (len(chart.rows) + 2) if isinstance(chart, Timeline) else _HEIGHT
        width = _WIDTH / 2 if isinstance(chart, Curve) else _WIDTH
        figure = Figure(figsize=(width, max(height, 1.0)), layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        match chart:
            case OverTime():
                _over_time(axes, chart, axis)
            case Timeline():
                _timeline(axes, chart, axis)
            case Curve():
                _curve(axes, chart)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return _for_page(out.getvalue(), chart, number)


def _over_time(axes: Axes, chart: OverTime, axis: Axis) -> None:
    _hours(axes, axis)
    for number, line in enumerate(chart.lines):
        values = [float("nan") if value is None else value for value in line.values]
        middles = [hour + 0.5 for hour in range(len(values))]
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(
            middles, values, _DASHES[number % len(_DASHES)], color=colour, linewidth=1.4, label=line.label
        )
        alone = [at for at, value in enumerate(line.values) if value is not None and _alone(line.values, at)]
        axes.plot(
            [middles[at] for at in alone], [values[at] for at in alone], ".", color=colour, markersize=4
        )
    for level in chart.levels:
        axes.axhline(level.value, color=_BAD, linewidth=0.9, dashes=(4, 3))
        axes.annotate(
            level.label, (1, level.value), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=8, color=_BAD,
        )  # fmt: skip
    axes.set_ylim(0, chart.most or 1.1 * max(axes.get_ylim()[1], 1e-9))
    axes.set_ylabel(chart.unit)
    axes.grid(axis="y", color=_FAINT, linewidth=0.4, alpha=0.35)
    if len(chart.lines) > 1:
        axes.legend(
            loc="lower right", bbox_to_anchor=(1, 1), ncols=len(chart.lines), frameon=False, fontsize=8
        )


def _alone(values: tuple[float | None, ...], at: int) -> bool:
    return all(not 0 <= beside < len(values) or values[beside] is None for beside in (at - 1, at + 1))


def _hours(axes: Axes, axis: Axis) -> None:
    axes.set_xlim(0, axis.hours)
    axes.set_xticks([hour for hour, _ in axis.ticks], [name for _, name in axis.ticks], ha="left")
    for begin, end in axis.unknown:
        axes.axvspan(begin, end, facecolor=_HOLE, edgecolor="none", zorder=0)


def _timeline(axes: Axes, chart: Timeline, axis: Axis) -> None:
    _hours(axes, axis)
    least = axis.hours / 250  # what is shorter could not be seen
    for place, (_, spans) in enumerate(chart.rows):
        bars = [(begin, max(end - begin, least)) for begin, end in spans]
        axes.broken_barh(bars, (place - 0.3, 0.6), facecolors=_BAD)
    axes.set_yticks(range(len(chart.rows)), [label for label, _ in chart.rows])
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _curve(axes: Axes, chart: Curve) -> None:
    most = 1
    for number, line in enumerate(chart.lines):
        values = [float("nan") if value is None else value for value in line.values]
        most = max(most, len(values))
        axes.plot(
            range(1, len(values) + 1), values, _DASHES[number % len(_DASHES)], marker="o", markersize=3.5,
            color=_COLOURS[number % len(_COLOURS)], linewidth=1.4, label=line.label,
        )  # fmt: skip
    axes.set_ylim(0, 1)
    axes.set_xticks(range(1, most + 1))
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("drafts accepted so far")
    axes.grid(axis="y", color=_FAINT, linewidth=0.4, alpha=0.35)
    axes.legend(loc="upper right", frameon=False, fontsize=8)


def _for_page(text: str, chart: Chart, number: int) -> str:
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    # Its style sheet is for every element of the page, which has ours.
    body = re.sub(r"<style .*?</style>", "", body, flags=re.DOTALL)
    for colour, role in _ROLES.items():
        body = body.replace(colour, f"var({role})")
    body = re.sub(r"font: ([\d.]+)px '[^;\"]*", r"font: \1px sans-serif", body)
    body = re.sub(r'\bid="([^"]+)"', rf'id="c{number}-\1"', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>c{number}-", body)
    name = f"c{number}-title"
    opening = re.sub(r' (width|height)="[^"]*"', "", body[: body.index(">")])
    opening = f'{opening} role="img" aria-labelledby="{name}"'
    title = f'<title id="{name}">{escape(chart.title)}: {escape(chart.description)}</title>'
    return f"{opening}>{title}{body[body.index('>') + 1 :]}".strip()
