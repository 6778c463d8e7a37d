"""alertmanager.yml: who is notified. The guard by its webhook; people by severity."""

from __future__ import annotations

from typing import Any

from specops.config import Rollout
from specops.prometheus.series import ROLLOUT
from specops.render.server import header, to_yaml

PEOPLE, GUARD = "people", "specops-guard"
BY_SEVERITY = {"critical": "on-call", "warning": "team", "info": "log"}
"""The receiver of each severity. Alerts without one go to PEOPLE."""
REPEAT = {"critical": "1h", "warning": "12h", "info": "7d"}
NOTES = (
    "Add to each receiver how it is reached: pagerduty_configs for `on-call` (critical), slack_configs or",
    "email_configs for `team` (warning), a channel without notifications for `log` (info). `people` gets",
    "alerts of others, without a severity. Secrets belong into files that these name, such as api_url_file.",
)


def alertmanager_config(rollout: Rollout) -> str:
    receivers: list[dict[str, Any]] = [{"name": name} for name in (PEOPLE, *BY_SEVERITY.values())]
    routes: list[dict[str, Any]] = []
    if rollout.addresses.guard:
        url = f"http://{rollout.addresses.guard}/alerts"
        receivers.append({"name": GUARD, "webhook_configs": [{"url": url, "send_resolved": True}]})
        # An alert makes the guard look at once. It goes on to people all the same.
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
    """One fault, one message."""
    ours = [ROLLOUT, *rollout.monitor.labels]
    same = [*ours, "specops_pool"]
    return [
        _inhibition("CriticalAcceptRatio", "LowAcceptRatio", same),
        _inhibition("SpeculationTargetDown", "SpeculationSeriesAbsent|SpeculationNoTraffic", same),
        _inhibition("SpeculationPoolFailing", "SpeculationErrors|SpeculationFailovers", same),
        _inhibition("SpecopsGuardActionUnconfirmed", "SpecopsPartialSwitch", ours),
    ]


def _inhibition(source: str, target: str, equal: list[str]) -> dict[str, Any]:
    return {
        "source_matchers": [f'alertname="{source}"'],
        "target_matchers": [f'alertname=~"{target}"'],
        "equal": equal,
    }
