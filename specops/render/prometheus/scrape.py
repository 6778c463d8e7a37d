"""prometheus.yml and alertmanager.yml: targets and labels, and whom an alert notifies: guard, people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from specops.config import Pool, Rollout
from specops.config.monitor import ALERTS, alert_record
from specops.errors import ConfigError
from specops.hints import in_rollout
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
    """All jobs, pools first. Raises ConfigError for a pool without a known address."""
    addresses = rollout.addresses
    jobs = [pool_targets(rollout, pool) for pool in POOLS]
    if addresses.routers:
        path = rollout.route.router.metrics_path
        jobs.append(Targets(job_name(rollout, "routers"), tuple(addresses.routers), path=path))
    if addresses.guard:
        jobs.append(Targets(job_name(rollout, "guard"), (addresses.guard,)))
    if addresses.gpus:
        jobs.append(Targets(job_name(rollout, "gpus"), tuple(addresses.gpus)))
    return jobs


def pool_targets(rollout: Rollout, pool: PoolName) -> Targets:
    addresses: list[str] = getattr(rollout.addresses, pool)
    job = job_name(rollout, pool)
    if addresses:
        return Targets(job, tuple(addresses), path=exposed(rollout, pool).path, pool=pool)
    pool_settings: Pool = getattr(rollout.pools, pool)
    if pool_settings.endpoint is not None:
        return _beside(pool_settings.endpoint.base_url, job, pool, exposed(rollout, pool).path)
    raise ConfigError(
        f"the addresses of the {pool} pool's servers are not known, so they cannot be scraped: expected "
        f"addresses.{pool}: [HOST:PORT], as Prometheus reaches them",
        hint=in_rollout("addresses", f"add addresses.{pool}: [HOST:PORT]"),
    )


def _beside(base_url: str, job: str, pool: PoolName, metrics: str) -> Targets:
    """The job of an endpoint. An engine exposes its metrics beside /v1, not below it."""
    url = urlsplit(base_url)
    netloc = url.netloc.rpartition("@")[2]
    path = url.path.rstrip("/").removesuffix("/v1") + metrics
    return Targets(job, (netloc,), scheme=url.scheme, path=path, pool=pool)


RULE_FILES = ("rules.yml", "alerts.yml")


def prometheus_config(rollout: Rollout) -> str:
    """The text of prometheus.yml; its rule files are beside it. Raises ConfigError for a pool without a known
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
    config["scrape_configs"] = [_job(rollout, job) for job in targets(rollout)]
    notes = ["For a separate Prometheus. Into an existing one, copy scrape_configs and rule_files."]
    notes += _secrets_to_add(rollout)
    return header(rollout.rollout, *notes) + to_yaml(config)


def _job(rollout: Rollout, job: Targets) -> dict[str, Any]:
    labels = {ROLLOUT: rollout.rollout} | ({POOL: job.pool} if job.pool else {}) | rollout.monitor.labels
    config: dict[str, Any] = {"job_name": job.job}
    if job.scheme != "http":
        config["scheme"] = job.scheme
    if job.path != "/metrics":
        config["metrics_path"] = job.path
    if job.pool and (tls := _tls(rollout, job)):
        config["tls_config"] = tls
    config["static_configs"] = [{"targets": list(job.addresses), "labels": labels}]
    if job.pool:
        config["metric_relabel_configs"] = [_renamed(exposed(rollout, job.pool).prefix)]
    elif job.job == job_name(rollout, "routers") and any(
        exposed(rollout, pool).requests_by_router for pool in POOLS
    ):
        config["metric_relabel_configs"] = [OF_THE_POOL]
    return config


def _tls(rollout: Rollout, job: Targets) -> dict[str, str]:
    """The files of an https endpoint's certificates."""
    endpoint = getattr(rollout.pools, str(job.pool)).endpoint
    if endpoint is None or job.scheme != "https":
        return {}
    files = {
        "ca_file": endpoint.access.ca_file,
        "cert_file": endpoint.access.client_cert,
        # Prometheus takes a certificate only together with a key; one file may hold both.
        "key_file": endpoint.access.client_key or endpoint.access.client_cert,
    }
    return {name: str(path) for name, path in files.items() if path is not None}


def _secrets_to_add(rollout: Rollout) -> Iterator[str]:
    """Yield what a person must add: Prometheus reads secrets from files, not from the environment."""
    for pool in POOLS:
        endpoint = getattr(rollout.pools, pool).endpoint
        if endpoint is None or getattr(rollout.addresses, pool):
            continue
        job, key = job_name(rollout, pool), endpoint.access.api_key_env
        if key is not None:
            yield f"{job}: where /metrics needs the key in {key}, add authorization.credentials_file."
        if endpoint.access.headers:
            yield f"{job}: where /metrics needs {', '.join(endpoint.access.headers)}, add http_headers."


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
        labels = {ROLLOUT: rollout.rollout} | rollout.monitor.labels
        matchers = [f"{name}={_quoted(value)}" for name, value in labels.items()]
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
