"""LeaderWorkerSet: a pool whose servers span several hosts, a pod each.

The fields are those of leaderworkerset.x-k8s.io/v1 (https://github.com/kubernetes-sigs/lws). Its controller
sets LWS_LEADER_ADDRESS and LWS_WORKER_INDEX in each container. The leader alone answers requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specops.config import Deploy
from specops.render.kubernetes import heading, labels, metadata, pod, selector, service, steps
from specops.render.server import Server, to_yaml

ADDRESS, RANK = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"
ROLE = "specops_role"
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def leader_worker_set(server: Server, worker: tuple[str, ...], deploy: Deploy) -> str:
    """The text of one pool's file. `server` has the leader's command and the GPUs of one pod; `worker`: the
    command of the others."""
    leading = pod(server, deploy)
    following = pod(replace(server, command=worker), deploy)
    leading.pop("topologySpreadConstraints", None)
    following.pop("topologySpreadConstraints", None)
    for one in (leading, following):
        _filled(one["containers"][0])
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
    """Without the labels by which Prometheus finds servers of the pool: a worker has no metrics."""
    return {name: value for name, value in labels(server).items() if name not in selector(server)} | {
        ROLE: "worker"
    }


def _filled(container: dict[str, Any]) -> None:
    """The controller's variables are to be expanded; every other $ of a command stays escaped."""
    for variable in (ADDRESS, RANK):
        container["command"] = [word.replace(f"${variable}", variable) for word in container["command"]]
