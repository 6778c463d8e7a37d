"""alerts.yml: what a person is told, from which value on, and where that value comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specops.config import Rollout
from specops.config.monitor import AlertName
from specops.prometheus.series import ROLLOUT
from specops.render.prometheus.conditions import CONDITIONS, Scope
from specops.render.prometheus.rule_file import Alert, rule_file

RUNBOOK = "runbook.md"


@dataclass(frozen=True)
class Limit:
    """From which value on an alert fires, and for how long it must be so; each with where it comes from."""

    value: float | None
    """None: it has none, as when something is either there or not."""

    source: str
    for_s: int
    for_source: str

    def __str__(self) -> str:
        where = (
            self.source if self.source == self.for_source else f"{self.source}; how long: {self.for_source}"
        )
        return where if self.value is None else f"{self.value:g}: {where}"


Limits = Mapping[AlertName, Limit]
"""Of the alerts that there are: one that is left out has no entry."""


def alerts(rollout: Rollout, limits: Limits) -> str:
    """The text of the file: one alert for each entry of `limits`."""
    written = [_alert(rollout, name, limit) for name, limit in limits.items()]
    return rule_file(rollout.rollout, f"specops-{rollout.rollout}-alerts", written)


def _alert(rollout: Rollout, name: AlertName, limit: Limit) -> Alert:
    condition = CONDITIONS[name](Scope(rollout), limit.value if limit.value is not None else 0.0)
    annotations = {
        "summary": condition.summary,
        "description": condition.description,
        "threshold_source": str(limit),
        "runbook_url": f"{rollout.monitor.runbook or RUNBOOK}#{name.lower()}",
    }
    # What `absent` finds has no labels: without the rollout's, nobody could tell whose alert it is.
    labels = {"severity": condition.severity, ROLLOUT: rollout.rollout} | rollout.monitor.labels
    return Alert(name, condition.expr, limit.for_s, labels, annotations)
