"""Where pools are deployed, where they answer, and the load that the standard pool must carry alone."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.section import HostPort, Section, Url


class Addresses(Section):
    """HOST:PORT each, from the machine that reads it."""

    standard: list[HostPort] = Field(
        default=[], description="Servers of the pool; left out: an endpoint pool's own."
    )
    speculative: list[HostPort] = Field(
        default=[], description="Servers of the pool; left out: an endpoint pool's own."
    )
    routers: list[HostPort] = Field(
        default=[], description="Admin listeners of all NGINX routers: metrics, and the switch."
    )
    guard: HostPort | None = Field(default=None, description="Of `specops guard run`: metrics, health.")
    gpus: list[HostPort] = Field(default=[], description="DCGM exporters, on the pools' machines.")
    alertmanagers: list[HostPort] = Field(default=[], description="That Prometheus sends alerts to.")
    prometheus: Url | None = Field(
        default=None, description="Its root, such as http://127.0.0.1:9090. A token or headers for it come"
        " from the environment: SPECOPS_PROMETHEUS_TOKEN, SPECOPS_PROMETHEUS_HEADERS (Name: value, …).",
    )  # fmt: skip


Label = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
AbsolutePath = Annotated[str, Field(pattern=r"^/[^\s:]*$")]
Seconds = Annotated[int, Field(ge=1)]


class Peak(Section):
    """The most that users ask for: should all fall back to the standard pool, it must carry this."""

    requests_per_s: float | None = Field(default=None, gt=0.0)
    tokens_per_s: float | None = Field(default=None, gt=0.0, description="Output tokens.")
    headroom: float = Field(default=0.2, ge=0.0, lt=1.0, description="Share of its throughput left free.")

    @model_validator(mode="after")
    def _says_how_much(self) -> Peak:
        if self.requests_per_s is None and self.tokens_per_s is None:
            raise PydanticCustomError(
                "peak",
                "the peak names no load",
                {"hint": "add requests_per_s, tokens_per_s or both, from your busiest minutes"},
            )
        return self


class Probes(Section):
    """Of /health. SGLang answers it with a token that it decodes, so a busy server may take its time."""

    period_s: Seconds = Field(default=10, description="Between two questions.")
    timeout_s: Seconds = Field(default=20, description="Longest time for one answer.")
    unready_after: Seconds = Field(default=3, description="Failures in a row after which no traffic comes.")
    restart_after: Seconds = Field(default=6, description="Failures in a row after which it is started anew.")


class Deploy(Section):
    """Of `launch render`'s Compose file and Kubernetes manifests."""

    image: str | None = Field(
        default=None,
        pattern=r"^\S+$",
        description="Left out: the engine's own of the pool's version, where it publishes one.",
    )
    standard_replicas: int = Field(default=1, ge=1, description="Servers of the standard pool.")
    speculative_replicas: int = Field(default=1, ge=1, description="Servers of the speculative pool.")
    gpus: int | None = Field(
        default=None, ge=0, description="Of one server; left out: what its parallel sizes multiply to."
    )
    nodes: int = Field(
        default=1, ge=1, description="Hosts that one server spans; above 1: LeaderWorkerSets on Kubernetes."
    )
    cpus: float | None = Field(default=None, gt=0.0, description="Requested for one server.")
    memory_gib: int | None = Field(default=None, ge=1, description="Of one server, requested and the limit.")
    shm_gib: int = Field(default=8, ge=1, description="Shared memory, over which a server's processes talk.")
    port: int = Field(
        default=8000, ge=1, le=65000, description="Further servers on one host count up from it."
    )
    namespace: Label | None = Field(default=None, description="Left out: the one that kubectl is set to.")
    model_folder: AbsolutePath | None = Field(
        default=None, description="Holds the models that pools name by path; read-only, at the same path."
    )
    model_claim: ObjectName | None = Field(
        default=None, description="PersistentVolumeClaim with model_folder; left out: the node's own folder."
    )
    cache_claim: ObjectName | None = Field(
        default=None, description="Keeps downloaded models; left out: each server downloads its own."
    )
    secrets: dict[Variable, ObjectName] = Field(
        default={},
        description="Variable: name of a Kubernetes Secret with that key. Compose and scripts take it from"
        " their environment. Values are written nowhere.",
    )
    start_timeout_s: Seconds = Field(
        default=1800, description="Longest time to come up: downloads, loads weights, captures graphs."
    )
    drain_s: Seconds = Field(default=120, description="That running requests have to finish in at the end.")
    probes: Probes = Probes()
