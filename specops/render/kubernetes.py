"""Kubernetes manifests of a pool: a Deployment, a Service and a PodDisruptionBudget. For 1.25 and later.

The labels contain `specops_pool`, which scrape configurations and the router use.

KServe: a pool as an InferenceService or an LLMInferenceService, with as many servers as the rollout says.

The fields are those of serving.kserve.io/v1beta1 and v1alpha2 (https://github.com/kserve/kserve, read at
aaac4e2). The mode of an InferenceService is KServe's Standard, which earlier releases call RawDeployment: a
Deployment behind a Service, without Knative.

LeaderWorkerSet: a pool whose servers span several hosts, a pod each.

The fields are those of leaderworkerset.x-k8s.io/v1 (https://github.com/kubernetes-sigs/lws). Its controller
sets LWS_LEADER_ADDRESS and LWS_WORKER_INDEX in each container. The leader alone answers requests.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from specops.config import Deploy
from specops.render.server import CACHE, Server, header, label, literal, to_yaml

SETTLE_S = 10
"""Seconds for which a terminating pod still answers, until the last router knows."""
MARGIN_S = 30
"""Seconds for a server's work after its last request, such as freeing GPU memory, before it is killed."""
KSERVE_CONTAINER = "kserve-container"
"""The name by which KServe finds the server among a pod's containers."""
KSERVE_PORT = "http1"
KSERVE_MAIN = "main"
"""The server's container of an LLMInferenceService."""
KSERVE_LLM_PORT = 8000
"""The only port of a server to which an LLMInferenceService leads."""
ADDRESS, RANK = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"
ROLE = "specops_role"
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def manifests(server: Server, deploy: Deploy) -> str:
    """The text of one pool's file, for `kubectl apply -f`."""
    return heading(server, deploy) + to_yaml(
        _deployment(server, deploy), service(server, deploy), _disruption_budget(server, deploy)
    )


def heading(server: Server, deploy: Deploy, how: str = "kubectl apply -f this file.") -> str:
    """The comment at the top of a pool's file."""
    notes = [f"The {server.pool} pool, from one rollout with the other: {how}"]
    if deploy.secrets:
        named = ", ".join(f"{secret} (key {name})" for name, secret in sorted(deploy.secrets.items()))
        notes.append(f"It reads these Secrets, which must exist: {named}.")
    return header(server.rollout, *notes)


def metadata(server: Server, deploy: Deploy) -> dict[str, Any]:
    namespace = {"namespace": deploy.namespace} if deploy.namespace else {}
    return {"name": server.name, **namespace, "labels": labels(server)}


def labels(server: Server) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": server.engine,
        "app.kubernetes.io/instance": server.name,
        "app.kubernetes.io/managed-by": "specops",
        **selector(server),
    }


def selector(server: Server) -> dict[str, str]:
    return {"specops_rollout": label(server.rollout), "specops_pool": server.pool}


def _deployment(server: Server, deploy: Deploy) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(server, deploy),
        "spec": {
            "replicas": server.replicas,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": deploy.start_timeout_s + 60,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": steps(server)},
            "selector": {"matchLabels": selector(server)},
            "template": {"metadata": {"labels": labels(server)}, "spec": pod(server, deploy)},
        },
    }


def steps(server: Server) -> dict[str, int]:
    """Return the limits of a rolling update. The standard pool must carry all traffic at any moment, so a new
    server is up before an old one goes. The speculative one can lose a server: its traffic has somewhere to
    go, and no spare GPU is needed."""
    standard = server.pool == "standard"
    return {"maxSurge": int(standard), "maxUnavailable": int(not standard)}


def pod(server: Server, deploy: Deploy) -> dict[str, Any]:
    """The spec of a server's pod, with one container."""
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        # A Service called vllm would set VLLM_PORT to an address, which vLLM then fails to read as a port.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": SETTLE_S + deploy.drain_s + MARGIN_S,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(server, deploy)],
        "volumes": volumes(server, deploy),
    }
    if server.gpus:
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    if server.replicas > 1:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector(server)},
            }
        ]
    return spec


def _container(server: Server, deploy: Deploy) -> dict[str, Any]:
    # A server that does not finish its requests after SIGTERM gets their time before it.
    before_term = SETTLE_S if server.drains else SETTLE_S + deploy.drain_s
    return {
        "name": server.engine,
        "image": server.image,
        "command": [literal(word) for word in server.command],
        "env": env(server, deploy),
        "ports": [{"name": "http", "containerPort": deploy.port}],
        "startupProbe": probe("startupProbe", deploy, "http"),
        "readinessProbe": probe("readinessProbe", deploy, "http"),
        "livenessProbe": probe("livenessProbe", deploy, "http"),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(before_term)]}}},
        "resources": _resources(server, deploy),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts(server, deploy),
    }


def probe(name: str, deploy: Deploy, port: int | str) -> dict[str, Any]:
    probes = deploy.probes
    patience = {
        "startupProbe": math.ceil(deploy.start_timeout_s / probes.period_s),
        "readinessProbe": probes.unready_after,
        "livenessProbe": probes.restart_after,
    }
    return {
        "httpGet": {"path": "/health", "port": port},
        "periodSeconds": probes.period_s,
        "timeoutSeconds": probes.timeout_s,
        "failureThreshold": patience[name],
    }


def env(server: Server, deploy: Deploy) -> list[dict[str, Any]]:
    values = dict(server.environment) | ({"HF_HOME": CACHE} if server.downloads else {})
    literals: list[dict[str, Any]] = [{"name": k, "value": literal(v)} for k, v in sorted(values.items())]
    return literals + [
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


def volumes(server: Server, deploy: Deploy) -> list[dict[str, Any]]:
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


def mounts(server: Server, deploy: Deploy) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]
    if deploy.model_folder:
        mounts.append({"name": "models", "mountPath": deploy.model_folder, "readOnly": True})
    if server.downloads:
        mounts.append({"name": "cache", "mountPath": CACHE})
    return mounts


def service(server: Server, deploy: Deploy) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(server, deploy),
        "spec": {
            "selector": selector(server),
            "ports": [{"name": "http", "port": deploy.port, "targetPort": "http"}],
        },
    }


def _disruption_budget(server: Server, deploy: Deploy) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(server, deploy),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector(server)}},
    }


# KServe


def inference_service(server: Server, deploy: Deploy) -> str:
    """The text of one pool's file, for `kubectl apply -f`."""
    spec = pod(server, deploy)
    (container,) = spec["containers"]
    container["name"] = KSERVE_CONTAINER
    container["ports"] = [{"name": KSERVE_PORT, "containerPort": deploy.port, "protocol": "TCP"}]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        container[probe]["httpGet"]["port"] = deploy.port
    named = metadata(server, deploy)
    document = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": named | {"annotations": {"serving.kserve.io/deploymentMode": "RawDeployment"}},
        "spec": {
            "predictor": {
                "minReplicas": server.replicas,
                "maxReplicas": server.replicas,
                "deploymentStrategy": {"type": "RollingUpdate", "rollingUpdate": steps(server)},
                "labels": named["labels"],
                **spec,
            }
        },
    }
    return heading(server, deploy) + to_yaml(document)


def kserve_lacking(server: Server, deploy: Deploy) -> str | None:
    """Return why there is no LLMInferenceService of `server`. None: there is one."""
    if deploy.port != KSERVE_LLM_PORT:
        return f"KServe leads to port {KSERVE_LLM_PORT} of a server alone, and deploy.port is {deploy.port}"
    if _uri(server, deploy) is None:
        return "KServe reads a model from a hub or a claim; name the claim as deploy.model_claim"
    return None


def llm_inference_service(server: Server, deploy: Deploy) -> str:
    """The text of one pool's file, for `kubectl apply -f`.

    KServe merges its own template into it. The command is given whole, since the template's shell would read
    the quotes of JSON away; with it KServe downloads nothing, and the server does, as in every other file.
    """
    spec = pod(server, deploy)
    (container,) = spec["containers"]
    container["name"] = KSERVE_MAIN
    container["ports"] = [{"containerPort": KSERVE_LLM_PORT, "protocol": "TCP"}]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        # The template's scheme is HTTPS where KServe gives out certificates.
        container[probe]["httpGet"] |= {"port": KSERVE_LLM_PORT, "scheme": "HTTP"}
    container["securityContext"]["runAsNonRoot"] = False  # the template's is true; vLLM's image runs as root
    uri = _uri(server, deploy)
    assert uri is not None  # as `lacking` says
    named = metadata(server, deploy)
    document = {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": named,
        "spec": {
            "model": {"uri": uri, "name": _served_name(server)},
            "storageInitializer": {"enabled": False},
            "replicas": server.replicas,
            "rolloutStrategy": steps(server),
            "labels": named["labels"],
            "template": spec,
        },
    }
    return heading(server, deploy) + to_yaml(document)


def _uri(server: Server, deploy: Deploy) -> str | None:
    model = server.command[2]  # vllm serve MODEL
    if not model.startswith(("/", ".", "~")):
        return f"hf://{model}"
    if deploy.model_claim is None or deploy.model_folder is None:
        return None
    return f"pvc://{deploy.model_claim}/{model.removeprefix(deploy.model_folder).strip('/')}"


def _served_name(server: Server) -> str:
    """Return what requests call the model."""
    flags: dict[str, Any] = dict(zip(server.command, server.command[1:], strict=False))
    return str(flags.get("--served-model-name", server.command[2]))


# LeaderWorkerSet


def leader_worker_set(server: Server, worker: tuple[str, ...], deploy: Deploy) -> str:
    """The text of one pool's file. `server` has the leader's command and the GPUs of one pod; `worker`: the
    command of the others."""
    leading = pod(server, deploy)
    following = pod(replace(server, command=worker), deploy)
    leading.pop("topologySpreadConstraints", None)
    following.pop("topologySpreadConstraints", None)
    for pod_spec in (leading, following):
        container = pod_spec["containers"][0]
        # The controller's variables are to be expanded; every other $ of a command stays escaped.
        for variable in (ADDRESS, RANK):
            container["command"] = [word.replace(f"${variable}", variable) for word in container["command"]]
    for name in PROBES:  # a worker has no API
        del following["containers"][0][name]
    del following["containers"][0]["ports"]
    document = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata(server, deploy),
        "spec": {
            "replicas": server.replicas,
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": steps(server)},
            "leaderWorkerTemplate": {
                "size": deploy.nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": {
                    "metadata": {"labels": labels(server) | {ROLE: "leader"}},
                    "spec": leading,
                },
                "workerTemplate": {"metadata": {"labels": _of_worker(server)}, "spec": following},
            },
        },
    }
    front = service(server, deploy)
    front["spec"]["selector"] = selector(server) | {ROLE: "leader"}
    return heading(server, deploy) + to_yaml(document, front)


def _of_worker(server: Server) -> dict[str, str]:
    """Return the labels without those by which Prometheus finds servers of the pool: a worker has no
    metrics."""
    return {name: value for name, value in labels(server).items() if name not in selector(server)} | {
        ROLE: "worker"
    }
