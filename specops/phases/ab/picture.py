"""What of a comparison is drawn (specops.render.ab_plot). Pure."""

from __future__ import annotations

from specops.load.arrivals import Level
from specops.phases.ab.report import Challenger, Measured, Report
from specops.render.ab_plot import Curve, Mark, Panel, Picture, Row
from specops.stats import Interval

ALL = "all"


def picture(report: Report) -> Picture:
    """Every challenger by class and with all classes together, end to end."""
    return Picture(
        standard=report.standard,
        panels=tuple(
            Panel(name, tuple(_rows(challenger)), _curves(report.arms[name]), _missing(report.arms[name]))
            for name, challenger in report.challengers.items()
        ),
        expected=report.expected["e2e"],
        confidence=f"Intervals of a class have {_percent(report.confidence_of_classes)} confidence, those of "
        f"all classes together {_percent(report.confidence_of_levels)}, so that all hold at every look.",
    )


def _rows(challenger: Challenger) -> list[Row]:
    rows = [
        Row(
            name,
            tuple(dot.e2e for dot in challenger.prompts if dot.traffic_class == name and dot.e2e),
            tuple(_mark(found.level, found.e2e) for found in of_class.levels if found.e2e),
        )
        for name, of_class in challenger.classes.items()
    ]
    together = [level.speedups for level in challenger.levels]
    return [*rows, Row(ALL, (), tuple(_mark(found.level, found.e2e) for found in together if found.e2e))]


def _mark(level: Level, interval: Interval) -> Mark:
    return Mark(str(level), interval.estimate, interval.low, interval.high)


def _curves(measured: list[Measured]) -> tuple[Curve, ...]:
    return tuple(
        Curve(
            str(found.level),
            found.acceptance.rate,
            tuple(share for share in found.acceptance.per_position if share is not None),
        )
        for found in measured
        if found.acceptance is not None and found.acceptance.per_position
    )


def _missing(measured: list[Measured]) -> str:
    return next((found.acceptance_missing for found in measured if found.acceptance_missing), "no position")


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"
