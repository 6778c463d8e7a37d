"""How a report writes its figures. What is not known is a dash; the section on what is missing says why."""

from __future__ import annotations

import math
from datetime import datetime

from specops.phases.report.report import Extreme, Quantile

NONE = "–"


def share(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}"


def rate(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def times(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}×"


def whole(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Of a latency."""
    if value is None:
        return NONE
    if value < 0.01:
        return f"{value * 1000:.2f} ms"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def hours(value: float | None) -> str:
    """Of servers; saved ones may be less than none."""
    if value is None:
        return NONE
    text = f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def money(value: float | None) -> str:
    """An amount without its currency: whole from 100 on, else to the hundredth, below 0.1 to two digits."""
    if value is None:
        return NONE
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if value and abs(value) < 0.1:
        return f"{value:.{1 - math.floor(math.log10(abs(value)))}f}"
    return f"{value:.2f}"


def lasted(value: float) -> str:
    minutes = round(value / 60)
    if value < 60:
        return f"{value:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def when(iso: str) -> str:
    return f"{datetime.fromisoformat(iso):%a %d %b %H:%M}"


def bounds(quantile: Quantile | None) -> str:
    if quantile is None:
        return NONE
    if quantile.to is None:
        return f"> {seconds(quantile.above)}"
    return (
        f"{seconds(quantile.above)} to {seconds(quantile.to)}"
        if quantile.above
        else f"≤ {seconds(quantile.to)}"
    )


def at(extreme: Extreme | None, form: str = ".3f", unit: str = "") -> str:
    return NONE if extreme is None else f"{extreme.value:{form}}{unit} ({when(extreme.at)})"
