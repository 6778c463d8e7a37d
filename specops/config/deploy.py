"""Settings of deployment: where pools run and answer, and the load that the standard pool must carry
alone."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specops.quantities import Cores, Count, Gibibytes, Port, Rate, Share, WholeSeconds
from specops.section import HostPort, Section, Url


class Addresses(Section):
    """Addresses of what runs, HOST:PORT each, for `specops monitor`, `specops route` and `specops guard`."""

    standard: list[HostPort] = Field(
        default=[], description="Servers of the standard pool; empty: the address of an endpoint pool."
    )
    speculative: list[HostPort] = Field(
        default=[], description="Servers of the speculative pool; empty: the address of an endpoint pool."
    )
    routers: list[HostPort] = Field(
        default=[], description="Admin listeners of all routers, with metrics and the switch."
    )
    guard: HostPort | None = Field(
        default=None, description="Listener of `specops guard run`, with metrics and health; default: none."
    )
    gpus: list[HostPort] = Field(default=[], description="DCGM exporters on the machines of the pools.")
    alertmanagers: list[HostPort] = Field(
        default=[], description="Alertmanagers that receive alerts from Prometheus."
    )
    prometheus: Url | None = Field(
        default=None, description="Root URL of Prometheus; SPECOPS_PROMETHEUS_TOKEN and "
        "SPECOPS_PROMETHEUS_HEADERS (Name: value, …) hold its secrets; default: none.",
    )  # fmt: skip


Label = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
AbsolutePath = Annotated[str, Field(pattern=r"^/[^\s:]*$")]


class Peak(Section):
    """Highest load of all users, which the standard pool must carry alone after a fallback: the
    capacity gate of `specops launch render`."""

    requests_per_s: Rate | None = Field(
        default=None, gt=0.0, description="Requests per second; default: none, tokens_per_s is given."
    )
    tokens_per_s: Rate | None = Field(
        default=None, gt=0.0, description="Output tokens per second; default: none, requests_per_s is given."
    )
    headroom: Share = Field(
        default=0.2, ge=0.0, lt=1.0, description="Share of the pool's throughput that stays free, 0 to 1."
    )

    @model_validator(mode="after")
    def _says_how_much(self) -> Peak:
        if self.requests_per_s is None and self.tokens_per_s is None:
            raise PydanticCustomError(
                "peak",
                "the peak has no load",
                {"advice": "add requests_per_s, tokens_per_s or both, from your busiest minutes"},
            )
        return self


class Probes(Section):
    """Probes of /health. A busy SGLang answers late, since it decodes a token for the answer."""

    period_s: WholeSeconds = Field(default=10, ge=1, description="Interval between two probes, in seconds.")
    timeout_s: WholeSeconds = Field(default=20, ge=1, description="Timeout of one probe, in seconds.")
    unready_after: Count = Field(
        default=3, ge=1, description="Number of failures in a row after which a server gets no traffic."
    )
    restart_after: Count = Field(
        default=6, ge=1, description="Number of failures in a row after which a server is restarted."
    )


class Deploy(Section):
    """Settings of the Compose file and Kubernetes manifests of `specops launch render`."""

    image: str | None = Field(
        default=None,
        pattern=r"^\S+$",
        description="Container image; default: the engine's own image "
        "of the pool's version, where there is one.",
    )
    standard_replicas: Count = Field(default=1, ge=1, description="Number of servers of the standard pool.")
    speculative_replicas: Count = Field(
        default=1, ge=1, description="Number of servers of the speculative pool."
    )
    gpus: Count | None = Field(
        default=None,
        ge=0,
        description="Number of GPUs per server; default: the product of its parallel sizes.",
    )
    nodes: Count = Field(
        default=1, ge=1, description="Number of hosts per server; above 1, Kubernetes uses LeaderWorkerSets."
    )
    cpus: Cores | None = Field(
        default=None, gt=0.0, description="CPU cores requested per server; default: no request."
    )
    memory_gib: Gibibytes | None = Field(
        default=None, ge=1, description="Memory per server in GiB, requested and limit; default: no limit."
    )
    shm_gib: Gibibytes = Field(
        default=8, ge=1, description="Shared memory between the processes of a server, in GiB."
    )
    port: Port = Field(
        default=8000,
        ge=1,
        le=65000,
        description="Port of the first server on a host; the others count up from it.",
    )
    namespace: Label | None = Field(
        default=None, description="Kubernetes namespace; default: the current one of kubectl."
    )
    model_folder: AbsolutePath | None = Field(
        default=None,
        description="Folder of the models that pools name by path, "
        "mounted read-only at the same path; default: none.",
    )
    model_claim: ObjectName | None = Field(
        default=None,
        description="PersistentVolumeClaim that holds model_folder; default: none, the node's own folder.",
    )
    cache_claim: ObjectName | None = Field(
        default=None,
        description="PersistentVolumeClaim that stores downloaded "
        "models; default: none, each server downloads.",
    )
    secrets: dict[Variable, ObjectName] = Field(
        default={},
        description="Environment variables and the Kubernetes Secret of each; "
        "Compose and scripts read them from the environment.",
    )
    start_timeout_s: WholeSeconds = Field(
        default=1800,
        ge=1,
        description="Timeout of a start, in seconds, for downloads, weights and CUDA graphs.",
    )
    drain_s: WholeSeconds = Field(
        default=120, ge=1, description="Time for running requests to finish at a stop, in seconds."
    )
    probes: Probes = Probes()
