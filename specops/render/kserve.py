"""KServe: a pool as an InferenceService with a container of its own, and as many servers as the rollout says.

The fields are those of serving.kserve.io/v1beta1 (https://github.com/kserve/kserve). Its mode is KServe's
Standard, which earlier releases call RawDeployment: a Deployment behind a Service, without Knative.
"""

from __future__ import annotations

from specops.config import Deploy
from specops.render.kubernetes import heading, metadata, pod, steps
from specops.render.server import Server, to_yaml

CONTAINER = "kserve-container"
"""The name by which KServe finds the server among a pod's containers."""
PORT = "http1"


def inference_service(server: Server, deploy: Deploy) -> str:
    """The text of one pool's file, for `kubectl apply -f`."""
    spec = pod(server, deploy)
    (container,) = spec["containers"]
    container["name"] = CONTAINER
    container["ports"] = [{"name": PORT, "containerPort": deploy.port, "protocol": "TCP"}]
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
