"""Where the parts of a deployment answer: what Prometheus scrapes, NGINX forwards to, the guard switches."""

from __future__ import annotations

from pydantic import Field

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
