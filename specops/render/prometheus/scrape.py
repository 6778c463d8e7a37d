"""prometheus.yml: the targets by the rollout file, their labels, the rule files and the Alertmanagers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from specops.config import Pool, Rollout
from specops.errors import ConfigError
from specops.prometheus.series import POOL, POOLS, ROLLOUT, PoolName, exposed
from specops.render.server import header, to_yaml

Kind = Literal["standard", "speculative", "routers", "guard", "gpus"]


@dataclass(frozen=True)
class Targets:
    """A job of the scrape configuration. All its addresses (HOST:PORT) expose the same names."""

    job: str
    addresses: tuple[str, ...]
    scheme: str = "http"
    path: str = "/metrics"
    pool: PoolName | None = None


def job_name(rollout: Rollout, kind: Kind) -> str:
    """A job's name. It contains the values of `monitor.labels`, so it is unique in a Prometheus that
    scrapes several rollouts, or one rollout in several clusters."""
    return "-".join(("specops", rollout.rollout, *rollout.monitor.labels.values(), kind))


def targets(rollout: Rollout) -> list[Targets]:
    """All jobs, pools first. ConfigError for a pool without a known address."""
    addresses = rollout.addresses
    found = [pool_targets(rollout, pool) for pool in POOLS]
    if addresses.routers:
        found.append(Targets(job_name(rollout, "routers"), tuple(addresses.routers)))
    if addresses.guard:
        found.append(Targets(job_name(rollout, "guard"), (addresses.guard,)))
    if addresses.gpus:
        found.append(Targets(job_name(rollout, "gpus"), tuple(addresses.gpus)))
    return found


def pool_targets(rollout: Rollout, pool: PoolName) -> Targets:
    given: list[str] = getattr(rollout.addresses, pool)
    job = job_name(rollout, pool)
    if given:
        return Targets(job, tuple(given), path=exposed(rollout, pool).path, pool=pool)
    served: Pool = getattr(rollout.pools, pool)
    if served.endpoint is not None:
        return _beside(served.endpoint.base_url, job, pool, exposed(rollout, pool).path)
    raise ConfigError(
        f"where the {pool} pool's servers answer is not known, so they cannot be scraped",
        hint=f"add addresses.{pool}: [HOST:PORT] to the rollout file, as Prometheus reaches them",
    )


def _beside(base_url: str, job: str, pool: PoolName, metrics: str) -> Targets:
    """The job of an endpoint. An engine exposes its metrics beside /v1, not below it."""
    url = urlsplit(base_url)
    netloc = url.netloc.rpartition("@")[2]
    path = url.path.rstrip("/").removesuffix("/v1") + metrics
    return Targets(job, (netloc,), scheme=url.scheme, path=path, pool=pool)


RULE_FILES = ("rules.yml", "alerts.yml")


def prometheus_config(rollout: Rollout) -> str:
    """The text of prometheus.yml; its rule files are beside it. ConfigError for a pool without a known
    address."""
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
    notes = ["For a separate Prometheus. Into an existing one, copy scrape_configs and rule_files."]
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
"""For an engine whose requests only the router counts: the router's series then belong to the pool."""


def _renamed(prefix: str) -> dict[str, Any]:
    # prometheus_client from 0.23 on writes vllm_ for vllm: when Prometheus asks for OpenMetrics without
    # UTF-8 names, which Prometheus 2.x does. A page of /metrics in a browser looks right all the same.
    return {
        "source_labels": ["__name__"],
        "regex": f"{prefix}_(.+)",
        "target_label": "__name__",
        "replacement": f"{prefix}:${{1}}",
    }
