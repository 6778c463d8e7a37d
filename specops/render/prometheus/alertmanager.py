"""alertmanager.yml: the guard is notified by its webhook, people by severity."""

from __future__ import annotations

from typing import Any

from specops.config import Rollout
from specops.config.alerts import ALERTS, alert_record
from specops.prometheus.series import POOL, ROLLOUT
from specops.render.server import header, to_yaml

PEOPLE, GUARD = "people", "specops-guard"
BY_SEVERITY = {"critical": "on-call", "warning": "team", "info": "log"}
"""The receiver of each severity. Alerts without a severity go to PEOPLE."""
REPEAT = {"critical": "1h", "warning": "12h", "info": "7d"}
NOTES = (
    "Add to each receiver how it is reached: pagerduty_configs for `on-call` (critical), slack_configs or",
    "email_configs for `team` (warning), a channel without notifications for `log` (info). `people` gets",
    "alerts of other sources, without a severity. Put secrets into files, such as api_url_file.",
)


def alertmanager_config(rollout: Rollout) -> str:
    receivers: list[dict[str, Any]] = [{"name": name} for name in (PEOPLE, *BY_SEVERITY.values())]
    routes: list[dict[str, Any]] = []
    if rollout.addresses.guard:
        url = f"http://{rollout.addresses.guard}/alerts"
        receivers.append({"name": GUARD, "webhook_configs": [{"url": url, "send_resolved": True}]})
        # An alert makes the guard evaluate at once. People get it as well.
        ours = {ROLLOUT: rollout.rollout} | rollout.monitor.labels
        matchers = [f"{name}={_quoted(value)}" for name, value in ours.items()]
        routes.append(
            {"receiver": GUARD, "matchers": matchers, "continue": True}
            | {"group_wait": "0s", "group_interval": "10s"}
        )
    for severity, receiver in BY_SEVERITY.items():
        by_severity = {"receiver": receiver, "matchers": [f'severity="{severity}"']}
        routes.append(by_severity | {"repeat_interval": REPEAT[severity]})
    route: dict[str, Any] = {
        "receiver": PEOPLE,
        "group_by": [ROLLOUT, "alertname", *rollout.monitor.labels],
        "group_wait": "10s",
        "group_interval": "1m",
        "repeat_interval": "4h",
        "routes": routes,
    }
    return header(rollout.rollout, *NOTES) + to_yaml(
        {"route": route, "receivers": receivers, "inhibit_rules": _inhibitions(rollout)}
    )


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _inhibitions(rollout: Rollout) -> list[dict[str, Any]]:
    """One fault, one message. Labels that neither alert has count as equal."""
    equal = [ROLLOUT, *rollout.monitor.labels, POOL]
    return [
        {
            "source_matchers": [f'alertname="{name}"'],
            "target_matchers": [f'alertname=~"{"|".join(silenced)}"'],
            "equal": equal,
        }
        for name in ALERTS
        if (silenced := alert_record(name).inhibits)
    ]
