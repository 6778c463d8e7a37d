"""The section `monitor` of the rollout file: scraping, recording and alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.config.alerts import AlertName, alert_record
from specops.section import Section
from specops.serving import namings

if TYPE_CHECKING:
    NamingName = str
else:
    NamingName = Literal[tuple(namings())]

LabelName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
OURS = ("specops_pool", "specops_rollout", "model_name", "job", "instance")


class AlertSetting(Section):
    threshold: float | None = Field(
        default=None,
        gt=0.0,
        description="In the alert's own unit, as alerts/runbook.md says; seconds for ages.",
    )
    for_s: int | None = Field(default=None, ge=0, description="How long it must be so.")


class Monitor(Section):
    scrape_interval_s: int = Field(default=15, ge=1)
    window_s: int = Field(
        default=300, ge=10, description="That rates are taken over, in rules, panels and the guard."
    )
    labels: dict[LabelName, str] = Field(
        default={}, description="Every query is held to series with these, such as cluster: a."
    )
    names: dict[Literal["standard", "speculative"], NamingName] = Field(
        default={},
        description="Whose names a pool's series have, where its engine does not say: an endpoint's are"
        " vllm's; vllm-0.10 is for releases before 0.11.",
    )
    alerts: dict[AlertName, AlertSetting] = Field(
        default={}, description="In place of a measured threshold, or the playbook's."
    )
    runbook: str | None = Field(
        default=None,
        pattern=r"^\S+$",
        description="Where you keep alerts/runbook.md, for links in alerts; left out: beside the rules.",
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
                    "hint": f"window_s: {4 * self.scrape_interval_s} or more",
                },
            )
        return self

    @model_validator(mode="after")
    def _labels_of_their_own(self) -> Monitor:
        for name in self.labels:
            if name in OURS:
                raise PydanticCustomError(
                    "monitor", "the label {name} is set by specops", {"name": name, "hint": "leave it out"}
                )
        return self

    @model_validator(mode="after")
    def _thresholds_where_there_are_any(self) -> Monitor:
        for name, setting in self.alerts.items():
            if setting.threshold is not None and alert_record(name).threshold is None:
                raise PydanticCustomError(
                    "alerts", "{name} has no threshold", {"name": name, "hint": "for_s can be set"}
                )
        return self
