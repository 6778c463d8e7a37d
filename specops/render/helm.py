"""Helm values for vLLM's production-stack: a release of the chart for each pool.

The chart writes `vllm serve MODEL --host … --port …` itself, turns prefix caching off unless it is named, and
takes all other flags as `extraArgs`. Read in its templates (helm/ at a6c01db). Its router would mix two pools
that serve one model, so each release has its own, and the rollout's router stands before both.
"""

from __future__ import annotations

import math
from typing import Any

from specops.config import Deploy
from specops.render.kubernetes import env, heading, mounts, probe, selector, volumes
from specops.render.server import Server, label, literal, to_yaml

CHART = "production-stack"
CACHING = "enable-prefix-caching"
OWN = ("--host", "--port")
"""Flags with a value that the chart writes itself."""
GRACE_S = 30
"""Kubernetes' own, which the chart does not set."""


def lacking(server: Server, deploy: Deploy) -> str | None:
    """Return why there are no values of `server`. None: there are some."""
    if len(server.command) < 3 or server.command[1] != "serve":
        return f"the chart of {CHART} starts 'vllm serve MODEL' alone"
    missing = [name for name in ("cpus", "memory_gib") if getattr(deploy, name) is None]
    if missing:
        return f"the chart of {CHART} needs {' and '.join(f'deploy.{name}' for name in missing)}"
    return None


def values(server: Server, deploy: Deploy) -> str:
    """The text of one pool's file."""
    assert deploy.cpus is not None  # as `lacking` says
    repository, _, tag = server.image.rpartition(":")
    how = f"helm upgrade --install {server.name} vllm/vllm-stack -f this file."
    if deploy.drain_s > GRACE_S:
        how += f" The chart ends a pod after {GRACE_S} s, and not after deploy.drain_s."
    spec: dict[str, Any] = {
        "name": server.pool,
        "repository": repository,
        "tag": tag,
        "modelURL": literal(server.command[2]),
        "replicaCount": server.replicas,
        "requestCPU": math.ceil(deploy.cpus),  # the chart's schema has whole ones
        "requestMemory": f"{deploy.memory_gib}Gi",
        "limitMemory": f"{deploy.memory_gib}Gi",
        "requestGPU": server.gpus,
        "podLabels": selector(server),
        "vllmConfig": _config(server.command[3:]),
    }
    if variables := env(server, deploy):
        spec["env"] = variables
    spec |= {"extraVolumes": volumes(server, deploy), "extraVolumeMounts": mounts(server, deploy)}
    probes = {
        name: {"initialDelaySeconds": 0} | probe(name, deploy, deploy.port)
        for name in ("startupProbe", "readinessProbe", "livenessProbe")
    }
    document = {
        "servingEngineSpec": {
            "labels": {"environment": label(server.rollout), "release": server.pool},
            "containerPort": deploy.port,
            **probes,
            "modelSpec": [spec],
        }
    }
    return heading(server, deploy, how) + to_yaml(document)


def _config(flags: tuple[str, ...]) -> dict[str, Any]:
    retained: list[str] = []
    words = iter(flags)
    for word in words:
        if word in OWN:
            next(words)
        elif word not in (f"--{CACHING}", f"--no-{CACHING}"):
            retained.append(literal(word))
    return {"enablePrefixCaching": f"--no-{CACHING}" not in flags, "extraArgs": retained}
