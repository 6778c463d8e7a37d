"""A deployed server, the input of manifests; how YAML is written; and scripts and Compose files of servers.

A Compose file has both pools on one host, each server with its own GPUs and port; or each pool on its own.
The fields are those of the Compose specification (https://github.com/compose-spec/compose-spec), for
`docker compose` 2 and later.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from specops import __version__
from specops.config import Deploy

CACHE = "/cache"
"""The folder of downloaded models in a container (HF_HOME)."""
MODELS = "models"
LOOPBACK = "127.0.0.1"
ADDRESS = "SPECOPS_ADDRESS"
"""The variable with the address on which a host of its own publishes."""


@dataclass(frozen=True)
class Server:
    """A server of a pool; all servers of a pool are alike. In its container it listens on all addresses."""

    rollout: str
    pool: str
    """standard or speculative"""

    engine: str
    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    replicas: int
    gpus: int
    downloads: bool
    """Whether it may download models, into CACHE."""

    drains: bool
    """Whether it finishes running requests after SIGTERM. Otherwise they get their time before SIGTERM."""

    @property
    def name(self) -> str:
        return f"{dns_name(self.rollout)}-{self.pool}"


def dns_name(text: str) -> str:
    """`text` as a part of a name in Kubernetes, Compose and DNS. The same text gives the same name."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return name if name[:1].isalpha() else f"r-{name}".rstrip("-")


def label(text: str) -> str:
    """`text` as the value of a label: unchanged if Kubernetes accepts it, otherwise its `dns_name`."""
    return text if re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", text) else dns_name(text)


def health_question(port: int, timeout_s: int) -> list[str]:
    """A command that fails unless /health is good. It runs in the container; every image has Python."""
    address = f"http://127.0.0.1:{port}/health"
    return ["python3", "-c", f"import urllib.request as r; r.urlopen('{address}', timeout={timeout_s})"]


def header(rollout: str, *notes: str) -> str:
    origin = f"Made by specops {__version__} from the rollout {rollout}: change its file and render again."
    return "".join(f"# {line}\n" for line in (origin, *notes))


def to_yaml(*documents: dict[str, Any]) -> str:
    """YAML with keys in the given order. Strings that any YAML version may read as another type are quoted:
    PyYAML knows 1.1, and Go's readers also take 1e3 and 0o7 for numbers."""
    return "---\n".join(
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)
        for document in documents
    )


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)  # lists are indented below their key

    def ignore_aliases(self, data: Any) -> bool:
        return True


_PLAIN = re.compile(r"(--?[A-Za-z]|[A-Za-z/])([A-Za-z0-9_./:@-]*[A-Za-z0-9_./@-])?")


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # A JSON word reads better in single quotes, which know no escapes.
    style = None if _PLAIN.fullmatch(text) else "'" if '"' in text and text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def script(
    command: Sequence[str], environment: Mapping[str, str], secrets: Iterable[str], *, rollout: str, pool: str
) -> str:
    """A Bash script that starts one server on this machine, with `exec`. `secrets` are names of variables
    that must be set; the script does not contain their values."""
    lines = ["#!/usr/bin/env bash", header(rollout, f"Starts a server of the {pool} pool.").rstrip()]
    lines += ["set -euo pipefail", ""]
    lines += [f': "${{{name}:?set it first; this script does not contain it}}"' for name in sorted(secrets)]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
    return "\n".join([*lines, "exec " + " \\\n  ".join(_lines(command)), ""])


def _lines(command: Sequence[str]) -> list[str]:
    """The lines of a command: the program and its first words, then one flag with its value a line."""
    lines: list[list[str]] = [[]]
    for word in command:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return [" ".join(line) for line in lines if line]


# Compose


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
        "entrypoint": [literal(word) for word in server.command],
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
    environment: dict[str, str | None] = {k: literal(v) for k, v in sorted(server.environment.items())}
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


def literal(text: str) -> str:
    """Escape for Compose, which expands $NAME, and Kubernetes, which expands $(NAME); $$ is a dollar."""
    return text.replace("$", "$$")
