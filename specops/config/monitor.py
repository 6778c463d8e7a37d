"""The section `monitor` of the rollout file (scraping, recording and alerts), and the alerts that ship.

One alert is one file in alerts/; its name is the file's.

A record has the expression, its threshold, the severity, the texts, the section of the runbook and the unit
tests. `monitor render` makes rules, runbook and receivers from these records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.assets import asset
from specops.quantities import RATIO, SECONDS, SHARE, THRESHOLD, Quantity, Threshold, WholeSeconds
from specops.section import Frozen, Section
from specops.serving import namings

if TYPE_CHECKING:
    NamingName = str
else:
    NamingName = Literal[tuple(namings())]

ALERTS: tuple[str, ...] = tuple(sorted(path.stem for path in asset("alerts").glob("*.yml")))
OURS = "a default of specops"
Need = Literal[
    "baseline", "measured acceptance", "judgeable acceptance", "counted requests", "routers", "guard"
]

if TYPE_CHECKING:
    AlertName = str
else:
    AlertName = Literal[ALERTS]


class AlertThreshold(Frozen):
    """The value at which an alert fires."""

    unit: str
    """The unit in words, for the runbook."""

    default: float | None = None
    source: str = OURS
    """Where the default, or the default of the setting that is its basis, comes from."""

    basis: str | None = None
    """A measurement or setting that gives the value: a key of `BASES` in phases/monitor/thresholds.py."""

    @property
    def quantity(self) -> Quantity:
        """The kind of the number, by the words of its unit."""
        if self.unit.endswith("0 to 1"):
            return SHARE
        return RATIO if self.unit.startswith("times as long") else THRESHOLD


class AlertRecord(Frozen):
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


LabelName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
OWN_LABELS = ("specops_pool", "specops_rollout", "model_name", "job", "instance")


class AlertSetting(Section):
    """Threshold and duration of one alert."""

    threshold: Threshold | None = Field(
        default=None,
        gt=0.0,
        description="Threshold in the unit that alerts/runbook.md "
        "names, seconds for ages; default: the alert's own.",
    )
    for_s: Annotated[int, Field(ge=0), SECONDS] | None = Field(
        default=None, description="Seconds for which the condition must hold; default: the alert's own."
    )


class Monitor(Section):
    """Scraping, recording rules and alerts, as `specops monitor render` writes them."""

    scrape_interval_s: WholeSeconds = Field(
        default=15, ge=1, description="Interval between two scrapes, in seconds."
    )
    window_s: WholeSeconds = Field(
        default=300,
        ge=10,
        description="Window of rates in rules, panels and the guard, "
        "in seconds; at least 4 scrape intervals.",
    )
    labels: dict[LabelName, str] = Field(
        default={}, description="Labels that every query selects, such as cluster: a."
    )
    names: dict[Literal["standard", "speculative"], NamingName] = Field(
        default={},
        description="Metric names of a pool whose engine does not determine them, such as vllm, or "
        "vllm-0.10 of releases up to that one; default: vllm.",
    )
    alerts: dict[AlertName, AlertSetting] = Field(
        default={}, description="Thresholds and durations that replace those of an alert, by its name."
    )
    runbook: str | None = Field(
        default=None,
        pattern=r"^\S+$",
        description="Address of your copy of alerts/runbook.md, for links "
        "in alerts; default: the copy beside the rules.",
    )

    @model_validator(mode="after")
    def _a_window_of_several_scrapes(self) -> Monitor:
        if self.window_s < 4 * self.scrape_interval_s:
            raise PydanticCustomError(
                "monitor",
                "a window of {window} s has too few scrapes, {interval} s apart, for a rate",
                {
                    "window": self.window_s,
                    "interval": self.scrape_interval_s,
                    "advice": f"window_s: {4 * self.scrape_interval_s} or more",
                },
            )
        return self

    @model_validator(mode="after")
    def _labels_of_their_own(self) -> Monitor:
        for name in self.labels:
            if name in OWN_LABELS:
                raise PydanticCustomError(
                    "monitor", "the label {name} is set by specops", {"name": name, "advice": "leave it out"}
                )
        return self

    @model_validator(mode="after")
    def _thresholds_where_there_are_any(self) -> Monitor:
        for name, setting in self.alerts.items():
            if setting.threshold is None:
                continue
            limit = alert_record(name).threshold
            if limit is None:
                raise PydanticCustomError(
                    "alerts", "{name} has no threshold", {"name": name, "advice": "for_s can be set"}
                )
            kind = limit.quantity
            if not kind.lowest < setting.threshold < kind.highest:
                raise PydanticCustomError(
                    "alerts",
                    "the threshold of {name} is a {kind}, and is {value}",
                    {
                        "name": name,
                        "kind": kind.name,
                        "value": f"{setting.threshold:g}",
                        "advice": kind.correction(setting.threshold) or f"the unit is {limit.unit}",
                    },
                )
        return self
