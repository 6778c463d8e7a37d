"""Charts as SVG: the width of the page's column, text of constant size, colours from the page's style sheet.

Horizontal positions are percentages of the drawing area and vertical ones are pixels. So nothing is scaled on
a phone but the distances. A curve lies in an inner SVG that is stretched; its strokes are not. Labels left of
the area are in the figure's padding. Lines differ by dashes and states by shapes, so that a chart is readable
without colour. The same document gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from specops.render.report.document import (
    Axis,
    Chart,
    Curve,
    Distribution,
    Line,
    Ratio,
    Ratios,
    TimeChart,
    Timeline,
)

WIDTH = 1000
"""Width of the inner SVG that holds curves, in its own units."""
HEIGHT, ROW, BAR_ROW, AXIS, TOP = 180, 24, 34, 36, 8
"""Pixels: a plot, a row of ratios, a row of a timeline, the axis below, the margin above."""
CHARACTER = 7.0
"""Pixels of a character, on average, at the charts' font size."""
POINTS = 160
"""Number of points of a cumulative curve: more cannot be distinguished."""
QUANTILES = (0.5, 0.95, 0.99)
RATIO_TICKS = (0.1, 0.2, 0.5, 0.8, 1, 1.25, 1.5, 2, 3, 4, 6, 10)
RATIO_RANGE = (0.1, 10.0)
"""The most that an axis of ratios shows; an interval beyond it ends in an arrow."""


@dataclass(frozen=True)
class Drawn:
    svg: str
    left: int
    """Pixels beside the drawing area that labels need."""

    right: int
    legend: tuple[tuple[str, str], ...] = ()
    """Label and CSS class of each line."""

    half: bool = False
    """Half a column is wide enough."""


def draw(chart: Chart, axis: Axis, number: int) -> Drawn:
    """The `number`-th chart of a page, by which its id differs from those of the others."""
    match chart:
        case TimeChart():
            return _over_time(chart, axis, number)
        case Timeline():
            return _timeline(chart, axis, number)
        case Curve():
            return _curve(chart, number)
        case Ratios():
            return _ratios(chart, number)
        case Distribution():
            return _distribution(chart, number)


def _over_time(chart: TimeChart, axis: Axis, number: int) -> Drawn:
    values = [value for line in chart.lines for value in line.values if value is not None]
    most = chart.most or 1.1 * max([*values, *(level.value for level in chart.levels), 1e-9])
    parts = [*_bands(axis, HEIGHT)]
    labels = [(value, f"{value:,.0f}" if value >= 1000 else f"{value:g}") for value in ticks(most)]
    parts += _grid(labels, most)
    for level in chart.levels:
        y = _y(level.value, most)
        parts.append(f'<line class="level" x1="0" x2="100%" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="level" x="100%" dx="5" y="{y}" dy=".35em">{escape(level.label)}</text>')
    for index, line in enumerate(chart.lines):
        points = [None if v is None else ((hour + 0.5) / axis.hours, v) for hour, v in enumerate(line.values)]
        parts += _line(points, most, index)
    parts += _hours(axis, HEIGHT)
    left = _gutter(label for _, label in labels)
    right = _gutter(level.label for level in chart.levels)
    return Drawn(_svg(chart, number, HEIGHT + AXIS, parts), left, right, _legend(chart.lines))


def _timeline(chart: Timeline, axis: Axis, number: int) -> Drawn:
    height = BAR_ROW * len(chart.rows)
    parts = [*_bands(axis, height)]
    least = axis.hours / 250  # a shorter span would be invisible
    for place, (label, spans) in enumerate(chart.rows):
        y = TOP + place * BAR_ROW
        parts.append(f'<text x="0" y="{y + 11}">{escape(label)}</text>')
        for begin, end in spans:
            x, width = _percent(begin / axis.hours), _percent(max(end - begin, least) / axis.hours)
            parts.append(f'<rect class="span" x="{x}" width="{width}" y="{y + 16}" height="10"/>')
    parts += _hours(axis, height)
    return Drawn(_svg(chart, number, height + AXIS, parts), 0, 0)


def _curve(chart: Curve, number: int) -> Drawn:
    count = max((len(line.values) for line in chart.lines), default=1)
    labels = [(share, f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)]
    parts = [*_grid(labels, 1.0)]
    for index, line in enumerate(chart.lines):
        points = [None if v is None else ((place + 0.5) / count, v) for place, v in enumerate(line.values)]
        parts += _line(points, 1.0, index, dots=True)
    step = math.ceil(count / 12)
    for place in range(0, count, step):
        parts.append(_tick_label((place + 0.5) / count, str(place + 1), HEIGHT))
    parts.append(_axis_label(0.5, "position in the draft", HEIGHT))
    return Drawn(_svg(chart, number, HEIGHT + AXIS, parts), 44, 0, _legend(chart.lines), half=True)


def _distribution(chart: Distribution, number: int) -> Drawn:
    """Draw a distribution up to the slowest p99, so that a few requests do not squeeze the others; all of
    them count."""
    ordered = [sorted(samples.values) for samples in chart.samples]
    most = 1.08 * max((_quantile(values, 0.99) for values in ordered if values), default=1.0) or 1.0
    labels = [(share, f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 0.95)]
    parts = [*_grid(labels, 1.0)]
    lines = tuple(Line(samples.label, ()) for samples in chart.samples)
    for index, values in enumerate(ordered):
        if not values:
            continue
        shares = [place / POINTS for place in range(POINTS + 1)]
        inside = [(_quantile(values, share) / most, share) for share in shares]
        parts += _line([point for point in inside if point[0] <= 1], 1.0, index)
        parts += [
            _dot(_quantile(values, share) / most, _y(share, 1.0), f"line-{index + 1}")
            for share in QUANTILES[:2]
        ]
    label = duration if chart.of == "ms" else "{:g}".format
    for value in ticks(most, 4):
        parts.append(_tick_label(value / most, label(value), HEIGHT))
    if chart.of != "ms":
        parts.append(_axis_label(0.5, chart.of, HEIGHT))
    below = AXIS if chart.of != "ms" else AXIS - 14
    return Drawn(_svg(chart, number, HEIGHT + below, parts), 44, 12, _legend(lines), half=True)


def _ratios(chart: Ratios, number: int) -> Drawn:
    low, high = _range(chart.rows)

    def x(value: float) -> float:
        return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))

    groups = [(group, list(rows)) for group, rows in groupby(chart.rows, key=lambda row: row.group)]
    height = ROW * (len(chart.rows) + sum(bool(group) for group, _ in groups))
    labels = [value for value in RATIO_TICKS if low <= value <= high]
    bottom = TOP + height
    parts = []
    wide, narrow = (_with_room([(x(value), value) for value in labels], gap) for gap in (0.055, 0.2))
    for value in labels:
        kind = "one" if value == 1 else "grid"
        position = _percent(x(value))
        parts.append(f'<line class="{kind}" x1="{position}" x2="{position}" y1="{TOP}" y2="{bottom}"/>')
        if value in wide:
            parts.append(_tick_label(x(value), f"{value:g}×", bottom, minor=value not in narrow))
    y = TOP
    left = max(40, 12 + int(CHARACTER * max((len(row.label) for row in chart.rows), default=0)))
    for group, rows in groups:
        if group:
            parts.append(f'<text class="group" x="0" dx="-{left}" y="{y + 16}">{escape(group)}</text>')
            y += ROW
        for row in rows:
            parts += _ratio(row, x, y + ROW / 2, (low, high))
            y += ROW
    if x(1) > 0.2:
        parts.append(_axis_label(x(1) / 2, f"← {chart.lower}", bottom))
    if x(1) < 0.8:
        parts.append(_axis_label((1 + x(1)) / 2, f"{chart.higher} →", bottom))
    return Drawn(_svg(chart, number, bottom + AXIS, parts), left, 54)


def _ratio(row: Ratio, x: Callable[[float], float], y: float, ends: tuple[float, float]) -> Iterator[str]:
    yield f'<text x="0" dx="-10" y="{y}" dy=".35em" text-anchor="end">{escape(row.label)}</text>'
    if row.estimate is None:
        yield f'<text class="soft" x="{_percent(x(1))}" dx="8" y="{y}" dy=".35em">no figure</text>'
        return
    low, high = ends
    if row.low is not None and row.high is not None:
        first, last = max(row.low, low), min(row.high, high)
        yield (
            f'<line class="interval {row.state}" x1="{_percent(x(min(first, high)))}"'
            f' x2="{_percent(x(max(last, low)))}" y1="{y}" y2="{y}"/>'
        )
        if row.low < low:
            yield f'<text class="arrow" x="0" dx="-2" y="{y}" dy=".35em">◂</text>'
        if row.high > high:
            yield f'<text class="arrow" x="100%" dx="2" y="{y}" dy=".35em" text-anchor="end">▸</text>'
    mark_x = x(min(max(row.estimate, low), high))
    yield _mark(mark_x, y, row.state)
    yield f'<text class="value" x="100%" dx="8" y="{y}" dy=".35em">{row.estimate:.2f}×</text>'


def _with_room(places: Sequence[tuple[float, float]], gap: float) -> set[float]:
    """The values that have room for a label: 1 has one, and the others as far as they are `gap` apart."""
    marked = [(x, value) for x, value in places if value == 1]
    for x, value in places:
        if all(abs(x - marked_x) >= gap for marked_x, _ in marked):
            marked.append((x, value))
    return {value for _, value in marked}


def _mark(x: float, y: float, state: str) -> str:
    """A state by its shape: a disc is good, a square is bad, a ring is undecided."""
    if state == "bad":
        square = f'x="{_percent(x)}" y="{y - 5}" width="10" height="10" transform="translate(-5)"'
        return f'<rect class="mark bad" {square}/>'
    return f'<circle class="mark {state}" cx="{_percent(x)}" cy="{y}" r="5"/>'


def _range(rows: Iterable[Ratio]) -> tuple[float, float]:
    """The ends of an axis of ratios: from below 1 to above it, with all that is within `RATIO_RANGE`."""
    values = [1.0]
    for row in rows:
        values += [v for v in (row.estimate, row.low, row.high) if v is not None and v > 0]
    low = max(min(min(values) / 1.06, 0.8), RATIO_RANGE[0])
    high = min(max(max(values) * 1.06, 1.25), RATIO_RANGE[1])
    return low, high


def ticks(most: float, count: int = 4) -> list[float]:
    """Round values from 0 up to `most`, about `count` apart from 0.

    >>> ticks(2.3)
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """
    step = most / count
    magnitude = 10.0 ** math.floor(math.log10(step))
    step = next(size * magnitude for size in (1, 2, 2.5, 5, 10) if size * magnitude >= step * 0.999)
    return [place * step for place in range(int(most / step * (1 + 1e-9)) + 1)]


def duration(ms: float) -> str:
    """A short label of milliseconds."""
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"


def _quantile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    first = math.floor(position)
    last = min(first + 1, len(ordered) - 1)
    return ordered[first] + (position - first) * (ordered[last] - ordered[first])


def _line(
    points: Sequence[tuple[float, float] | None], most: float, number: int, *, dots: bool = False
) -> Iterator[str]:
    """A path that is interrupted at holes. A point between two holes is a dot."""
    kind = f"line-{number + 1}"
    pieces = [[p for p in group if p is not None] for present, group in groupby(points, bool) if present]
    path = " ".join(
        "M" + " L".join(f"{_round(x * WIDTH)} {_y(value, most)}" for x, value in piece)
        for piece in pieces
        if len(piece) > 1
    )
    if path:
        yield (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" width="100%" height="{HEIGHT}"'
            f' overflow="visible"><path class="{kind}" d="{path}"/></svg>'
        )
    for piece in pieces:
        if dots or len(piece) == 1:
            for x, value in piece:
                yield _dot(x, _y(value, most), kind)


def _dot(x: float, y: float, kind: str) -> str:
    return f'<circle class="{kind}" cx="{_percent(x)}" cy="{y}" r="3"/>'


def _grid(labels: Iterable[tuple[float, str]], most: float) -> Iterator[str]:
    for value, label in labels:
        y = _y(value, most)
        yield f'<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        yield f'<text x="0" dx="-8" y="{y}" dy=".35em" text-anchor="end">{escape(label)}</text>'


def _bands(axis: Axis, height: float) -> Iterator[str]:
    for begin, end in axis.unknown:
        x, width = _percent(begin / axis.hours), _percent((end - begin) / axis.hours)
        yield f'<rect class="hole" x="{x}" width="{width}" y="{TOP}" height="{height - TOP}"/>'


def _hours(axis: Axis, height: float) -> Iterator[str]:
    """Labels begin at their tick; every other one is left out where the page is narrow."""
    for place, (hour, label) in enumerate(axis.ticks):
        position = _percent(hour / axis.hours)
        narrow = ' class="minor"' if place % 2 else ""
        yield f'<line class="tick" x1="{position}" x2="{position}" y1="{height}" y2="{height + 5}"/>'
        yield f'<text{narrow} x="{position}" dx="2" y="{height + 18}">{escape(label)}</text>'


def _tick_label(x: float, label: str, bottom: float, *, minor: bool = False) -> str:
    narrow = ' class="minor"' if minor else ""
    return f'<text{narrow} x="{_percent(x)}" y="{bottom + 17}" text-anchor="middle">{escape(label)}</text>'


def _axis_label(x: float, label: str, bottom: float) -> str:
    return (
        f'<text class="soft" x="{_percent(x)}" y="{bottom + 33}" text-anchor="middle">{escape(label)}</text>'
    )


def _legend(lines: Sequence[Line]) -> tuple[tuple[str, str], ...]:
    """Draw the legend; none for a single line, which the caption names."""
    return (
        tuple((line.label, f"line-{index + 1}") for index, line in enumerate(lines)) if len(lines) > 1 else ()
    )


def _gutter(labels: Iterable[str]) -> int:
    longest = max((len(label) for label in labels), default=0)
    return 14 + int(CHARACTER * longest) if longest else 0


def _y(value: float, most: float) -> float:
    return _round(TOP + (1 - value / most) * (HEIGHT - TOP))


def _percent(share: float) -> str:
    return f"{_round(100 * share)}%"


def _round(value: float) -> float:
    return round(value, 2)


def _svg(chart: Chart, number: int, height: float, parts: Iterable[str]) -> str:
    name = f"chart-{number}"
    title = f'<title id="{name}">{escape(chart.title)}: {escape(chart.description)}</title>'
    inner = "\n".join(parts)
    return (
        f'<svg role="img" aria-labelledby="{name}" width="100%" height="{_round(height)}">'
        f"{title}\n{inner}</svg>"
    )
