"""Number formats of pages, on the terminal and as HTML: one way for each kind, readable without colour."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specops.stats import Interval

BARS = "▁▂▃▄▅▆▇█"
NONE = "–"
"""Mark in place of a figure that there were too few samples for; the result says how many it needs."""


def times(interval: Interval | None, estimate: float | None = None) -> str:
    """Return a speed-up with its interval, or the bare `estimate` where there were too few pairs for one.
    Extreme ends are `<0.01` and `>100`."""
    if interval is not None:
        low = "<0.01" if interval.low < 0.01 else f"{interval.low:.2f}"
        high = ">100" if interval.high > 100 else f"{interval.high:.2f}"
        return f"{interval.estimate:.2f}× [{low}, {high}]"
    return NONE if estimate is None else f"{estimate:.2f}×"


def decimals(value: float | None, digits: int) -> str:
    """Return a figure with so many digits after the point."""
    return NONE if value is None else f"{value:.{digits}f}"


def milliseconds(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.2f} ms" if value < 10 else f"{value:.0f} ms"


def change_ms(value: float | None) -> str:
    return NONE if value is None else f"{value:+.1f} ms"


def percent(ratio: float) -> str:
    """Return by how much a ratio is off 1, in percent."""
    return f"{100 * (ratio - 1):+.0f}%"


def age(seconds: float) -> str:
    """Return the age in words, rounded down.

    >>> age(90000.0)
    '1 day'
    """
    if seconds == math.inf:
        return "an unknown time"
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'s' if number > 1 else ''}"
    return "now"


def between(ends: tuple[float, float]) -> str:
    return f"{ends[0]:g}–{ends[1]:g}"


def count(number: int, singular: str, many: str | None = None) -> str:
    return f"{number} {singular if number == 1 else many or singular + 's'}"


def bar(share: float | None) -> str:
    """Return one character for a share from 0 to 1."""
    if share is None:
        return " "
    return BARS[min(int(max(share, 0.0) * len(BARS)), len(BARS) - 1)]


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """Return the text with its first letter large, unless it begins with a name that is spelt as it is, such
    as ab.json."""
    first = text.partition(" ")[0].rstrip(",;:").replace("-", "").replace("'", "")
    begins = text[:1].upper() if first.isalpha() and first.islower() else text[:1]
    return f"{begins}{text[1:]}" + ("" if text.endswith((".", "?", "!")) else ".")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the columns two spaces apart; all rows have as many."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    return [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
