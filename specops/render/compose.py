"""Compose files: both pools on one host, each server with its own GPUs and port; or each pool on its own.

The fields are those of the Compose specification (https://github.com/compose-spec/compose-spec), for
`docker compose` 2 and later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from specops.config import Deploy
from specops.render.server import CACHE, Server, dns_name, header, health_question, label, to_yaml

MODELS = "models"
LOOPBACK = "127.0.0.1"
ADDRESS = "SPECOPS_ADDRESS"
"""The variable with the address on which a host of its own publishes."""


def compose(servers: Sequence[Server], deploy: Deploy) -> str:
    """The text of the file for one host. Ports are published on loopback only, from `deploy.port` upwards."""
    return _file(servers, deploy, LOOPBACK, "Both pools on one host: docker compose up.")


def own_host(server: Server, deploy: Deploy) -> str:
    """The text of the file for a pool's own host. It has no default for the address on which it publishes: a
    server answers whoever reaches it, and has no password."""
    address = f"${{{ADDRESS}:?the address of this host that the router reaches}}"
    how = f"The {server.pool} pool on a host of its own: {ADDRESS}=… docker compose up."
    return _file([server], deploy, address, how)


def _file(servers: Sequence[Server], deploy: Deploy, address: str, how: str) -> str:
    """GPUs are numbered here, since Compose would give every service that asks for two GPUs the same two."""
    services = {
        name: _service(server, deploy, f"{address}:{deploy.port + index}:{deploy.port}", first_gpu)
        for index, (name, server, first_gpu) in enumerate(_given_out(servers))
    }
    document: dict[str, Any] = {"name": dns_name(servers[0].rollout), "services": services}
    if any(server.downloads for server in servers):
        document["volumes"] = {MODELS: {}}
    gpus = sum(server.gpus * server.replicas for server in servers)
    needs = f"This host needs {gpus} GPUs and the NVIDIA Container Toolkit." if gpus else "It needs no GPU."
    return header(servers[0].rollout, f"{how} {needs}") + to_yaml(document)


def _given_out(servers: Sequence[Server]) -> Iterator[tuple[str, Server, int]]:
    gpu = 0
    for server in servers:
        for number in range(1, server.replicas + 1):
            yield server.pool if number == 1 else f"{server.pool}-{number}", server, gpu
            gpu += server.gpus


def _service(server: Server, deploy: Deploy, published: str, first_gpu: int) -> dict[str, Any]:
    service: dict[str, Any] = {
        "image": server.image,
        # Not `command`, which would go behind the image's own entry point.
        "entrypoint": [_literal(word) for word in server.command],
        "init": True,
        "restart": "unless-stopped",
        "ports": [published],
        "labels": {"specops_pool": server.pool, "specops_rollout": label(server.rollout)},
        "shm_size": f"{deploy.shm_gib}gb",
        "stop_grace_period": f"{deploy.drain_s}s",
        "security_opt": ["no-new-privileges:true"],
        "cap_drop": ["ALL"],
        "healthcheck": {
            "test": ["CMD", *health_question(deploy.port, deploy.probes.timeout_s)],
            "interval": f"{deploy.probes.period_s}s",
            "timeout": f"{deploy.probes.timeout_s}s",
            "retries": deploy.probes.unready_after,
            "start_period": f"{deploy.start_timeout_s}s",
        },
    }
    environment: dict[str, str | None] = {k: _literal(v) for k, v in sorted(server.environment.items())}
    environment |= dict.fromkeys(sorted(deploy.secrets))  # from where Compose is called
    volumes: list[dict[str, Any]] = []
    if deploy.model_folder:
        folder = deploy.model_folder
        volumes.append(
            {
                "type": "bind",
                "source": folder,
                "target": folder,
                "read_only": True,
                "bind": {"create_host_path": False},
            }
        )
    if server.downloads:
        volumes.append({"type": "volume", "source": MODELS, "target": CACHE})
        environment["HF_HOME"] = CACHE
    if environment:
        service["environment"] = environment
    if volumes:
        service["volumes"] = volumes
    if resources := _resources(server, deploy, first_gpu):
        service["deploy"] = {"resources": resources}
    return service


def _resources(server: Server, deploy: Deploy, first_gpu: int) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if deploy.memory_gib:
        resources["limits"] = {"memory": f"{deploy.memory_gib}gb"}
    reserved: dict[str, Any] = {}
    if deploy.cpus:
        reserved["cpus"] = deploy.cpus
    if server.gpus:
        ids = [str(first_gpu + number) for number in range(server.gpus)]
        reserved["devices"] = [{"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}]
    if reserved:
        resources["reservations"] = reserved
    return resources


def _literal(text: str) -> str:
    """Escape for Compose, which expands $NAME; $$ is a dollar."""
    return text.replace("$", "$$")
