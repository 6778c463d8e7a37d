"""The chart in deploy/helm as Helm renders it, for a rollout whose addresses are those of its objects."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from daemons import program

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "specops"
RELEASE = "mine"
TOKEN_SECRET = "mine-specops"

Manifest = dict[str, Any]
Manifests = Mapping[tuple[str, str], Manifest]
"""Manifests by kind and name."""


def rollout(*, routers: int = 2, **sections: Any) -> dict[str, Any]:
    """A rollout file for release `mine`; `sections` add to those of the file."""
    pools = {
        pool: {"engine": "endpoint", "base_url": f"http://mine-{pool}:{port}/v1", "model": "tiny"}
        for pool, port in (("standard", 8000), ("speculative", 8001))
    }
    file: dict[str, Any] = {
        "rollout": RELEASE,
        "pools": pools,
        "addresses": {
            "routers": [f"mine-router-{number}.mine-router-pods:8081" for number in range(routers)],
            "guard": "mine-guard:9469",
            "prometheus": "http://prometheus:9090",
        },
        "route": {"listen": "0.0.0.0:8080", "admin": "0.0.0.0:8081", "nginx": {"workers": 1}},
        "guard": {"listen": "0.0.0.0:9469"},
    }
    return {
        name: file[name] | sections[name] if name in file and name in sections else file.get(name, value)
        for name, value in (file | sections).items()
    }


def values(**more: Any) -> dict[str, Any]:
    """The smallest values of a release, and `more`."""
    return {
        "rollout": {"name": RELEASE, "existingConfigMap": "mine-rollout"},
        "router": {"existingConfigMap": "mine-router"},
        "routerTokenSecret": TOKEN_SECRET,
    } | more


def inline(file: Mapping[str, Any], more: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The value `rollout` with the text of the file, and `more` files by name."""
    return {"name": RELEASE, "files": {"rollout.yaml": yaml.safe_dump(dict(file)), **(more or {})}}


def helm(verb: Sequence[str], settings: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run Helm on the chart. It reaches no cluster."""
    command = [program("helm"), *verb, "--values", "-"]
    return subprocess.run(
        command, input=yaml.safe_dump(dict(settings)), text=True, capture_output=True, timeout=60, check=False
    )


def render(settings: Mapping[str, Any], release: str = RELEASE) -> Manifests:
    done = helm(["template", release, str(CHART), "--namespace", "llm"], settings)
    assert done.returncode == 0, done.stderr
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    manifests = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert len(manifests) == len(documents)
    return manifests


def refusal(settings: Mapping[str, Any]) -> str:
    """What Helm says of values that it does not take."""
    done = helm(["template", RELEASE, str(CHART), "--namespace", "llm"], settings)
    assert done.returncode != 0, "Helm took the values"
    return done.stderr


def pod_specs(manifests: Manifests) -> dict[str, Manifest]:
    """The specs of all pods, by the name of what starts them."""
    specs = {}
    for (kind, name), manifest in manifests.items():
        spec = manifest.get("spec", {})
        if kind == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            specs[name] = spec["template"]["spec"]
    return specs
