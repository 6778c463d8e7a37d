"""alertmanager.yml: who is told. The guard by its webhook; people by what the operator adds."""

from __future__ import annotations

from typing import Any

from specops.config import Rollout
from specops.prometheus.series import ROLLOUT
from specops.render.server import header, to_yaml

PEOPLE, GUARD = "people", "specops-guard"
NOTES = (
    "Add to the receiver `people` how you are reached: email_configs, slack_configs, pagerduty_configs, …",
    "Secrets belong into files that those name (such as api_url_file), not in here.",
)


def alertmanager_config(rollout: Rollout) -> str:
    receivers: list[dict[str, Any]] = [{"name": PEOPLE}]
    route: dict[str, Any] = {
        "receiver": PEOPLE,
        "group_by": [ROLLOUT, "alertname"],
        "group_wait": "10s",
        "group_interval": "1m",
        "repeat_interval": "4h",
    }
    if rollout.addresses.guard:
        url = f"http://{rollout.addresses.guard}/alerts"
        receivers.append({"name": GUARD, "webhook_configs": [{"url": url, "send_resolved": True}]})
        # An alert makes the guard look at once. It goes on to people all the same.
        told = {"receiver": GUARD, "matchers": [f'{ROLLOUT}="{rollout.rollout}"'], "continue": True}
        route["routes"] = [told | {"group_wait": "0s", "group_interval": "10s"}, {"receiver": PEOPLE}]
    return header(rollout.rollout, *NOTES) + to_yaml(
        {"route": route, "receivers": receivers, "inhibit_rules": _inhibitions()}
    )


def _inhibitions() -> list[dict[str, Any]]:
    """One fault, one message."""
    same = [ROLLOUT, "specops_pool"]
    return [
        _inhibition("CriticalAcceptRatio", "LowAcceptRatio", same),
        _inhibition("SpeculationTargetDown", "SpeculationSeriesAbsent|SpeculationNoTraffic", same),
        _inhibition("SpecopsGuardActionUnconfirmed", "SpecopsPartialSwitch", [ROLLOUT]),
    ]


def _inhibition(source: str, target: str, equal: list[str]) -> dict[str, Any]:
    return {
        "source_matchers": [f'alertname="{source}"'],
        "target_matchers": [f'alertname=~"{target}"'],
        "equal": equal,
    }
