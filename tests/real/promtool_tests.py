"""The tests of an alert's record, as promtool reads them."""

from __future__ import annotations

import re
from typing import Any

import yaml

from specops.prometheus.promql import selector

LABELS = {
    "[[rollout]]": 'specops_rollout="example"',
    "[[speculative]]": 'specops_rollout="example",specops_pool="speculative",model_name="m"',
    "[[standard]]": 'specops_rollout="example",specops_pool="standard",model_name="m"',
}
BLIND = {"SpeculationSeriesAbsent", "SpecopsGuardDown"}
"""They fire in every test that does not have all series, so only their own records expect them."""


def fired(test: dict[str, Any]) -> list[str]:
    return [alert.partition("{")[0] for alerts in test["firing"].values() for alert in alerts]


def promtool_test(name: str, test: dict[str, Any]) -> dict[str, Any]:
    """A record's test for promtool: a sample every 15 s, `firing` as all alerts that fire at a time."""
    compared = {label for alerts in test["firing"].values() for alert in alerts for label in labels_of(alert)}
    by = ", ".join(sorted({"alertname"} | compared))
    ignored = "|".join(BLIND - {name})
    expr = f'count by ({by}) (ALERTS{{alertstate="firing",alertname!~"{ignored}"}})'
    firing = [
        {
            "expr": expr,
            "eval_time": at,
            "exp_samples": [{"labels": selector(labels_of(alert)), "value": 1} for alert in alerts],
        }
        for at, alerts in test["firing"].items()
    ]
    written = {key: value for key, value in test.items() if key != "firing"}
    text = yaml.safe_dump(
        {"interval": "15s"} | written | {"promql_expr_test": [*written.get("promql_expr_test", []), *firing]}
    )
    for short, labels in LABELS.items():
        text = text.replace(short, labels)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def labels_of(alert: str) -> dict[str, str]:
    """NAME{label="value"} as labels."""
    name, _, labels = alert.partition("{")
    return {"alertname": name} | dict(re.findall(r'(\w+)="([^"]*)"', labels))
