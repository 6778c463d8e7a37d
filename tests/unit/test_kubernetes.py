"""Kubernetes manifests: by Kubernetes' own schemas, oldest to newest, and what they must say besides."""

from __future__ import annotations

import re
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from made_servers import WORDS, deploy, server, words

from specops.config import Deploy
from specops.render.kubernetes import manifests
from specops.render.server import Server, dns_name, label

VERSIONS = ("1.25", kubernetes_validate.latest_version())


def read(one: Server, asked: Deploy | None = None) -> dict[str, dict[str, Any]]:
    documents = list(yaml.safe_load_all(manifests(one, asked or deploy())))
    return {document["kind"]: document for document in documents}


def pod(one: Server, asked: Deploy | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = read(one, asked)["Deployment"]["spec"]["template"]["spec"]
    return spec


def container(one: Server, asked: Deploy | None = None) -> dict[str, Any]:
    found: dict[str, Any] = pod(one, asked)["containers"][0]
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"cpus": 7.5, "memory_gib": 64, "namespace": "llm", "secrets": {"HF_TOKEN": "hugging-face"}},
        {"model_folder": "/models", "cache_claim": "cache"},
        {"model_folder": "/models", "model_claim": "weights"},
    ],
)
def test_they_are_of_kubernetes_own_schemas(asked: dict[str, Any], version: str) -> None:
    for one in (server(gpus=0, downloads=False), server("speculative", replicas=3, environment={"A": "b"})):
        documents = read(one, deploy(**asked))
        assert list(documents) == ["Deployment", "Service", "PodDisruptionBudget"]
        for document in documents.values():
            kubernetes_validate.validate(document, version, strict=True)


def test_the_schema_would_have_found_a_fault() -> None:
    deployment = read(server())["Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["startupProbe"]["failureTreshold"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


def test_service_and_budget_select_the_pods_of_their_pool_alone() -> None:
    standard, speculative = read(server()), read(server("speculative"))
    for documents in (standard, speculative):
        labels = documents["Deployment"]["spec"]["template"]["metadata"]["labels"]
        selectors = [
            documents["Service"]["spec"]["selector"],
            documents["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
            documents["Deployment"]["spec"]["selector"]["matchLabels"],
        ]
        assert all(selector.items() <= labels.items() for selector in selectors)
    one, other = (d["Service"]["spec"]["selector"] for d in (standard, speculative))
    assert (one["specops_pool"], other["specops_pool"]) == ("standard", "speculative")
    assert one["specops_rollout"] == other["specops_rollout"] == "My.Rollout_1"
    assert standard["Service"]["metadata"]["name"] == "my-rollout-1-standard"


def test_a_server_has_its_start_and_its_drain_before_it_is_killed() -> None:
    asked = deploy(start_timeout_s=3600, drain_s=300)
    for drains, waits in ((True, 10), (False, 310)):
        one = server(drains=drains)
        found, grace = container(one, asked), pod(one, asked)["terminationGracePeriodSeconds"]
        assert found["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", str(waits)]
        left = grace - waits
        assert left >= (300 if drains else 0)
        assert left > 0
        startup = found["startupProbe"]
        assert startup["failureThreshold"] * startup["periodSeconds"] >= 3600
        assert read(one, asked)["Deployment"]["spec"]["progressDeadlineSeconds"] > 3600
    paths = {
        container(server())[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "readiness", "liveness")
    }
    assert paths == {"/health"}


def test_the_standard_pool_never_has_a_server_less_and_the_other_needs_no_spare_gpu() -> None:
    rolling = {
        pool: read(server(pool))["Deployment"]["spec"]["strategy"]["rollingUpdate"]
        for pool in ("standard", "speculative")
    }
    assert rolling["standard"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert rolling["speculative"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_gpus_are_asked_for_and_nothing_where_there_are_none() -> None:
    assert container(server(gpus=4))["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert container(server(gpus=0))["resources"] == {}
    assert "tolerations" not in pod(server(gpus=0))


def test_a_secret_is_read_where_it_is_kept() -> None:
    env = container(server(), deploy(secrets={"HF_TOKEN": "hugging-face"}))["env"]
    reference = {"secretKeyRef": {"name": "hugging-face", "key": "HF_TOKEN"}}
    assert {"name": "HF_TOKEN", "valueFrom": reference} in env


def test_every_mount_has_its_volume() -> None:
    asked = deploy(model_folder="/models", model_claim="weights", cache_claim="cache")
    found = pod(server(), asked)
    mounts = {mount["name"]: mount["mountPath"] for mount in found["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in found["volumes"]}
    assert mounts == {"shm": "/dev/shm", "models": "/models", "cache": "/cache"}
    assert volumes.keys() == mounts.keys()
    assert volumes["models"]["persistentVolumeClaim"] == {"claimName": "weights", "readOnly": True}


def expanded(text: str) -> str:
    """As Kubernetes expands: third_party/forked/golang/expansion. $(NAME) of no variable stays."""
    return re.sub(r"\$(\$|\([^)]*\))", lambda found: "$" if found[1] == "$" else "<variable>", text)


@settings(max_examples=50)
@given(st.lists(words, min_size=1, max_size=5), words)
def test_words_and_variables_arrive_as_they_are(said: list[str], value: str) -> None:
    found = container(server(command=(*WORDS, *said), environment={"A": value}, downloads=False))
    assert [expanded(word) for word in found["command"]] == [*WORDS, *said]
    assert [expanded(each["value"]) for each in found["env"]] == [value]


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}", fullmatch=True)


@given(NAMES)
def test_any_rollouts_name_makes_names_and_labels_that_kubernetes_takes(rollout: str) -> None:
    one = server("speculative", rollout=rollout)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", one.name)  # RFC 1035, which Services ask for
    assert len(one.name) <= 63
    assert dns_name(rollout) == dns_name(rollout)
    assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", label(rollout))
    assert len(label(rollout)) <= 63
