"""Kubernetes manifests of a pool: a Deployment, a Service and a PodDisruptionBudget. For 1.25 and later.

The labels contain `specops_pool`, which scrape configurations and the router use.
"""

from __future__ import annotations

import math
from typing import Any

from specops.config import Deploy
from specops.render.server import CACHE, Server, header, label, to_yaml

SETTLE_S = 10
"""Seconds for which a terminating pod still answers, until the last router knows."""
MARGIN_S = 30
"""Seconds for a server's work after its last request, such as freeing GPU memory, before it is killed."""


def manifests(server: Server, deploy: Deploy) -> str:
    """The text of one pool's file, for `kubectl apply -f`."""
    notes = [f"The {server.pool} pool, from one rollout with the other: kubectl apply -f this file."]
    if deploy.secrets:
        named = ", ".join(f"{secret} (key {name})" for name, secret in sorted(deploy.secrets.items()))
        notes.append(f"It reads these Secrets, which must exist: {named}.")
    return header(server.rollout, *notes) + to_yaml(
        _deployment(server, deploy), _service(server, deploy), _disruption_budget(server, deploy)
    )


def _metadata(server: Server, deploy: Deploy) -> dict[str, Any]:
    namespace = {"namespace": deploy.namespace} if deploy.namespace else {}
    return {"name": server.name, **namespace, "labels": _labels(server)}


def _labels(server: Server) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": server.engine,
        "app.kubernetes.io/instance": server.name,
        "app.kubernetes.io/managed-by": "specops",
        **_selector(server),
    }


def _selector(server: Server) -> dict[str, str]:
    return {"specops_rollout": label(server.rollout), "specops_pool": server.pool}


def _deployment(server: Server, deploy: Deploy) -> dict[str, Any]:
    # The standard pool must carry all traffic at any moment, so a new server is up before an old one goes.
    # The speculative one can lose a server: its traffic has somewhere to go, and no spare GPU is needed.
    standard = server.pool == "standard"
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(server, deploy),
        "spec": {
            "replicas": server.replicas,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": deploy.start_timeout_s + 60,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": int(standard), "maxUnavailable": int(not standard)},
            },
            "selector": {"matchLabels": _selector(server)},
            "template": {"metadata": {"labels": _labels(server)}, "spec": _pod(server, deploy)},
        },
    }


def _pod(server: Server, deploy: Deploy) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        # A Service called vllm would set VLLM_PORT to an address, which vLLM then fails to read as a port.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": SETTLE_S + deploy.drain_s + MARGIN_S,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(server, deploy)],
        "volumes": _volumes(server, deploy),
    }
    if server.gpus:
        pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    if server.replicas > 1:
        pod["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": _selector(server)},
            }
        ]
    return pod


def _container(server: Server, deploy: Deploy) -> dict[str, Any]:
    probes = deploy.probes
    health = {
        "httpGet": {"path": "/health", "port": "http"},
        "periodSeconds": probes.period_s,
        "timeoutSeconds": probes.timeout_s,
    }
    patience = math.ceil(deploy.start_timeout_s / probes.period_s)
    # A server that does not finish its requests after SIGTERM gets their time before it.
    before_term = SETTLE_S if server.drains else SETTLE_S + deploy.drain_s
    return {
        "name": server.engine,
        "image": server.image,
        "command": [_literal(word) for word in server.command],
        "env": _env(server, deploy),
        "ports": [{"name": "http", "containerPort": deploy.port}],
        "startupProbe": {**health, "failureThreshold": patience},
        "readinessProbe": {**health, "failureThreshold": probes.unready_after},
        "livenessProbe": {**health, "failureThreshold": probes.restart_after},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(before_term)]}}},
        "resources": _resources(server, deploy),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": _mounts(server, deploy),
    }


def _env(server: Server, deploy: Deploy) -> list[dict[str, Any]]:
    values = dict(server.environment) | ({"HF_HOME": CACHE} if server.downloads else {})
    given: list[dict[str, Any]] = [{"name": k, "value": _literal(v)} for k, v in sorted(values.items())]
    return given + [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}}
        for name, secret in sorted(deploy.secrets.items())
    ]


def _resources(server: Server, deploy: Deploy) -> dict[str, Any]:
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    if deploy.cpus:
        requests["cpu"] = f"{deploy.cpus:g}"
    if deploy.memory_gib:
        requests["memory"] = limits["memory"] = f"{deploy.memory_gib}Gi"
    if server.gpus:
        limits["nvidia.com/gpu"] = str(server.gpus)
    return {name: value for name, value in (("requests", requests), ("limits", limits)) if value}


def _volumes(server: Server, deploy: Deploy) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{deploy.shm_gib}Gi"}}
    ]
    if deploy.model_folder:
        where: dict[str, Any] = (
            {"persistentVolumeClaim": {"claimName": deploy.model_claim, "readOnly": True}}
            if deploy.model_claim
            else {"hostPath": {"path": deploy.model_folder, "type": "Directory"}}
        )
        volumes.append({"name": "models", **where})
    if server.downloads:
        source: dict[str, Any] = (
            {"persistentVolumeClaim": {"claimName": deploy.cache_claim}}
            if deploy.cache_claim
            else {"emptyDir": {}}
        )
        volumes.append({"name": "cache", **source})
    return volumes


def _mounts(server: Server, deploy: Deploy) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]
    if deploy.model_folder:
        mounts.append({"name": "models", "mountPath": deploy.model_folder, "readOnly": True})
    if server.downloads:
        mounts.append({"name": "cache", "mountPath": CACHE})
    return mounts


def _service(server: Server, deploy: Deploy) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(server, deploy),
        "spec": {
            "selector": _selector(server),
            "ports": [{"name": "http", "port": deploy.port, "targetPort": "http"}],
        },
    }


def _disruption_budget(server: Server, deploy: Deploy) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(server, deploy),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _selector(server)}},
    }


def _literal(text: str) -> str:
    """Escape for Kubernetes, which expands $(NAME); $$ is a dollar."""
    return text.replace("$", "$$")
