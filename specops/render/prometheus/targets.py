"""Who is scraped: both pools, the routers, the guard and the GPUs' exporters, by the rollout file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from specops.config import Pool, Rollout
from specops.errors import ConfigError
from specops.prometheus.series import POOLS, PoolName

Kind = Literal["standard", "speculative", "routers", "guard", "gpus"]


@dataclass(frozen=True)
class Targets:
    """A job of the scrape configuration: HOST:PORT each, all exposing the same names."""

    job: str
    addresses: tuple[str, ...]
    scheme: str = "http"
    path: str = "/metrics"
    pool: PoolName | None = None


def job_name(rollout: Rollout, kind: Kind) -> str:
    """Unique within a Prometheus that scrapes several rollouts, or one rollout in several clusters: it has
    the values of `monitor.labels`."""
    return "-".join(("specops", rollout.rollout, *rollout.monitor.labels.values(), kind))


def targets(rollout: Rollout) -> list[Targets]:
    """In the order of the file: pools first. ConfigError for a pool of which no address is known."""
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
        return Targets(job, tuple(given), pool=pool)
    served: Pool = getattr(rollout.pools, pool)
    if served.endpoint is not None:
        return _beside(served.endpoint.base_url, job, pool)
    raise ConfigError(
        f"where the {pool} pool's servers answer is not known, so they cannot be scraped",
        hint=f"add addresses.{pool}: [HOST:PORT] to the rollout file, as Prometheus reaches them",
    )


def _beside(base_url: str, job: str, pool: PoolName) -> Targets:
    """An engine exposes its metrics beside /v1, not below it."""
    url = urlsplit(base_url)
    netloc = url.netloc.rpartition("@")[2]
    path = url.path.rstrip("/").removesuffix("/v1") + "/metrics"
    return Targets(job, (netloc,), scheme=url.scheme, path=path, pool=pool)
