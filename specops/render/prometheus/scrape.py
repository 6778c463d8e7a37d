"""prometheus.yml: who is scraped and with which labels, the rule files, and where alerts go."""

from __future__ import annotations

from typing import Any

from specops.config import Rollout
from specops.prometheus.series import POOL, POOLS, ROLLOUT, exposed
from specops.render.prometheus.targets import Targets, job_name, targets
from specops.render.server import header, to_yaml

RULE_FILES = ("rules.yml", "alerts.yml")


def prometheus_config(rollout: Rollout) -> str:
    """The text; rule files lie beside it. ConfigError for a pool of which no address is known."""
    interval = f"{rollout.monitor.scrape_interval_s}s"
    config: dict[str, Any] = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": list(RULE_FILES),
    }
    if rollout.addresses.alertmanagers:
        config["alerting"] = {
            "alertmanagers": [{"static_configs": [{"targets": list(rollout.addresses.alertmanagers)}]}]
        }
    config["scrape_configs"] = [_job(rollout, each) for each in targets(rollout)]
    notes = [
        "A Prometheus of its own takes the file as it is; into another one go scrape_configs and rule_files."
    ]
    return header(rollout.rollout, *notes) + to_yaml(config)


def _job(rollout: Rollout, job: Targets) -> dict[str, Any]:
    labels = {ROLLOUT: rollout.rollout} | ({POOL: job.pool} if job.pool else {}) | rollout.monitor.labels
    config: dict[str, Any] = {"job_name": job.job}
    if job.scheme != "http":
        config["scheme"] = job.scheme
    if job.path != "/metrics":
        config["metrics_path"] = job.path
    config["static_configs"] = [{"targets": list(job.addresses), "labels": labels}]
    if job.pool:
        config["metric_relabel_configs"] = [_renamed(exposed(rollout, job.pool).prefix)]
    elif job.job == job_name(rollout, "routers") and any(
        exposed(rollout, pool).requests_by_router for pool in POOLS
    ):
        config["metric_relabel_configs"] = [OF_THE_POOL]
    return config


OF_THE_POOL = {"source_labels": ["pool"], "regex": "(speculative|standard)", "target_label": POOL}
"""For an engine whose requests the router alone counts: its series are then among the pool's."""


def _renamed(prefix: str) -> dict[str, Any]:
    # prometheus_client from 0.23 on writes vllm_ for vllm: when Prometheus asks for OpenMetrics without
    # UTF-8 names, which Prometheus 2.x does. A page of /metrics in a browser looks right all the same.
    return {
        "source_labels": ["__name__"],
        "regex": f"{prefix}_(.+)",
        "target_label": "__name__",
        "replacement": f"{prefix}:${{1}}",
    }
