"""What of a sweep is drawn (specops.render.sweep_plot). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from specops.phases.sweep.jobs import ANY_LENGTH
from specops.phases.sweep.report import Cell, Report
from specops.render.sweep_plot import Panel, Picture, Point, Square


def picture(report: Report) -> Picture:
    """Every setting at every load; and what a user gets of it against what all of them do."""
    loads = list(dict.fromkeys((cell.temperature, cell.length) for cell in report.cells))
    return Picture(
        panels=tuple(
            Panel(
                _title(*load, alone=len(loads) == 1),
                tuple(
                    _square(cell, report)
                    for cell in report.cells
                    if (cell.temperature, cell.length) == load and cell.setting != report.standard
                ),
            )
            for load in loads
        ),
        points=tuple(
            Point(found.setting, found.concurrency, found.user_tokens_per_sec, found.tokens_per_sec)
            for found in report.together
            if found.user_tokens_per_sec is not None and found.tokens_per_sec is not None
        ),
        standard=report.standard,
        confidence=f"Intervals have {100 * report.confidence_of_each:.4g}% confidence each, so that all of "
        f"them hold together with {100 * report.confidence:.4g}%. Bold: surely faster. ?: it may be either.",
    )


def _square(cell: Cell, report: Report) -> Square:
    interval = cell.e2e_interval
    return Square(
        row=cell.setting,
        streams=cell.concurrency,
        estimate=interval.estimate if interval else None,
        ends=(interval.low, interval.high) if interval else None,
        chosen=(cell.setting, cell.concurrency) == (report.recommended, report.decided_at),
    )


def _title(temperature: float, length: str, *, alone: bool) -> str:
    said: Sequence[str] = [f"temperature {temperature:g}"] + ([] if length == ANY_LENGTH else [length])
    return "" if alone and temperature == 0 and length == ANY_LENGTH else ", ".join(said)
