"""The tests of an alert's record, as promtool reads them, and promtool's run of tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from daemons import program

from specops.prometheus.promql import selector

# A third of the CPU time went into promtool's garbage collection, and into its threads on a busy machine.
ONE_THREAD = {"GOGC": "400", "GOMAXPROCS": "1"}


def run_promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("promtool"), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env=os.environ | ONE_THREAD,
    )


def check_rules(
    tests: Sequence[dict[str, Any]], rule_files: Sequence[str], folder: Path, evaluation_interval: str
) -> None:
    """Fails unless all `tests` of the rules pass; their file is written into `folder`."""
    file = {"rule_files": rule_files, "evaluation_interval": evaluation_interval, "tests": tests}
    (folder / "tests.yml").write_text(json.dumps(file))  # which is YAML, and written in a tenth of the time
    done = run_promtool("test", "rules", folder / "tests.yml")
    assert done.returncode == 0, done.stdout + done.stderr


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
    tests = [*written.get("promql_expr_test", []), *firing]
    labelled: dict[str, Any] = _with_labels({"interval": "15s"} | written | {"promql_expr_test": tests})
    return labelled


def _with_labels(value: Any) -> Any:
    """A copy of a part of a test, with `LABELS` in the place of their short forms."""
    if isinstance(value, dict):
        return {_with_labels(key): _with_labels(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_labels(item) for item in value]
    if isinstance(value, str):
        for short, labels in LABELS.items():
            value = value.replace(short, labels)
    return value


def labels_of(alert: str) -> dict[str, str]:
    """NAME{label="value"} as labels."""
    name, _, labels = alert.partition("{")
    return {"alertname": name} | dict(re.findall(r'(\w+)="([^"]*)"', labels))
