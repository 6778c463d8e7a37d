"""The alerts that ship with specops. One alert is one file in alerts/; its name is the file's.

A record has the expression, its threshold, the severity, the texts, the section of the runbook and the unit
tests. `monitor render` makes rules, runbook and receivers from these records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from specops.assets import asset

ALERTS: tuple[str, ...] = tuple(sorted(path.stem for path in asset("alerts").glob("*.yml")))
OURS = "a default of specops"
Need = Literal[
    "baseline", "measured acceptance", "judgeable acceptance", "counted requests", "routers", "guard"
]

if TYPE_CHECKING:
    AlertName = str
else:
    AlertName = Literal[ALERTS]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AlertThreshold(_Strict):
    """The value at which an alert fires."""

    unit: str
    """In words, for the runbook."""

    default: float | None = None
    source: str = OURS
    """Where the default, or the default of the setting that is its basis, comes from."""

    basis: str | None = None
    """A measurement or setting that gives the value: a key of `BASES` in phases/monitor/thresholds.py."""


class AlertRecord(_Strict):
    """A file of alerts/. In its texts, [[name]] is replaced; render/prometheus/alerts.py lists the names."""

    severity: Literal["critical", "warning", "info"]
    for_s: int = Field(ge=0)
    """Seconds for which the expression must hold."""

    for_source: str = OURS
    threshold: AlertThreshold | None = None
    """None: the alert is about a state, not about a value."""

    needs: list[Need] = Field(default=[])
    """What must be known or scraped for this alert; phases/monitor/thresholds.py decides it."""

    inhibits: list[AlertName] = Field(default=[])
    """Alerts of the same pool that are silent while this one fires."""

    expr: str
    title: str
    """What it means, in one sentence without values; the dashboard shows it."""

    summary: str
    description: str
    runbook: str
    """Markdown, below the heading: it begins with commands."""

    tests: list[dict[str, Any]]
    """Tests of promtool, with `firing`: the alerts that fire, by time."""


def alert_record(name: str) -> AlertRecord:
    """The record of one alert."""
    text = asset("alerts", f"{name}.yml").read_text(encoding="utf-8")
    return AlertRecord.model_validate(yaml.safe_load(text))
