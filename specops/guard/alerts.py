"""Alertmanager's webhook."""

from __future__ import annotations

from typing import Any

from specops.prometheus.series import ROLLOUT

MOST = 100
"""Names that are kept of one message, and characters of one."""


def firing(body: Any, rollout: str) -> list[str]:
    """Names of the alerts that fire, in the body of a webhook (version 4): the rollout's, and those that name
    none. A body of another shape has none."""
    alerts = body.get("alerts") if isinstance(body, dict) else None
    names = []
    for alert in alerts if isinstance(alerts, list) else []:
        labels = alert.get("labels") if isinstance(alert, dict) else None
        if not isinstance(labels, dict) or alert.get("status") != "firing":
            continue
        if labels.get(ROLLOUT, rollout) == rollout:
            names.append(str(labels.get("alertname", "an alert without a name"))[:MOST])
    return names[:MOST]
