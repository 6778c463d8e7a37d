"""KServe, Helm values, LeaderWorkerSet and Compose on hosts of their own: of their schemas, and read back by
the lint's readers as the settings that they were rendered from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft7Validator, ValidationError
from made_servers import deploy, server

from specops.config import Rollout
from specops.errors import ConfigError
from specops.launch.command_files import commands_in, judge
from specops.phases.launch import render
from specops.progress import SilentProgress
from specops.render import helm
from specops.render.kubernetes import inference_service, llm_inference_service
from specops.render.server import ADDRESS, own_host
from specops.serving import Command
from specops.serving.argv import Words

SCHEMAS = Path(__file__).parents[1] / "schemas"
NEWEST = kubernetes_validate.latest_version()
VLLM = {"engine": "vllm", "model": "org/target", "version": "0.33.0", "max_model_len": 4096}
NGRAM = {"speculation": {"method": "ngram", "prompt_lookup_max": 4}}
SGLANG = {"engine": "sglang", "model_path": "org/target", "version": "0.5.23", "tp_size": 4}
EAGLE = {"speculation": {"algorithm": "EAGLE3", "draft_model_path": "org/draft"}}
LLAMACPP = {"engine": "llamacpp", "model": "org/t:Q8_0", "version": "b11549"}
SIMPLE = {"speculation": {"type": "draft-simple", "model": "org/d:Q8_0"}}
TRTLLM = {"engine": "trtllm", "model": "org/target", "version": "1.4.0rc1"}
MTP = {"speculation": {"decoding_type": "MTP"}}
ENGINES = {
    "vllm": (VLLM, NGRAM),
    "sglang": (SGLANG, EAGLE),
    "llamacpp": (LLAMACPP, SIMPLE),
    "trtllm": (TRTLLM, MTP),
}
SIZED = {"cpus": 8, "memory_gib": 64, "secrets": {"HF_TOKEN": "hub"}, "model_folder": "/models"}


def validated(document: dict[str, Any], schema: str) -> dict[str, Any]:
    Draft7Validator(json.loads((SCHEMAS / schema).read_text(encoding="utf-8"))).validate(document)
    return document


def pod_is_of_kubernetes(spec: dict[str, Any]) -> None:
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    kubernetes_validate.validate(deployment, NEWEST, strict=True)


def rendered(folder: Path, engine: str, **deployed: Any) -> Path:
    standard, speculation = ENGINES[engine]
    pools = {"standard": standard, "speculative": standard | speculation}
    render(
        Rollout.model_validate({"rollout": "r", "pools": pools, "deploy": deployed}), folder, SilentProgress()
    )
    return folder / "rendered"


def settings(words: Sequence[str]) -> list[str]:
    """Program, model and each flag with its values, in no order."""
    given = Words.parse(words)
    return sorted([*given.program, *(" ".join((one.flag, *one.values)) for one in given.options)])


def found(path: Path) -> list[Command]:
    return commands_in(path)


POOLS = ("standard", "speculative")
FOLDERS = ("compose", "kubernetes", "kserve", "llminferenceservice")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("pool", POOLS)
def test_what_is_rendered_is_read_back_as_the_same_command(engine, folder, pool, tmp_path) -> None:
    made = rendered(tmp_path, engine)
    if folder == "llminferenceservice" and engine != "vllm":  # KServe's template is vLLM's
        assert not (made / folder).exists()
        return
    both = {one.where: one for one in found(made / "compose.yaml")}
    (one,) = found(made / folder / f"{pool}.yaml")
    assert settings(one.words) == settings(both[f"service {pool}"].words)
    assert one.version == both[f"service {pool}"].version is not None
    verdict = judge(one, None)
    assert [finding for finding in verdict.findings if finding.level == "error"] == []


@pytest.mark.parametrize("pool", POOLS)
def test_helm_values_are_read_back_as_the_same_command(pool, tmp_path) -> None:
    made = rendered(tmp_path, "vllm", cpus=8, memory_gib=64)
    (one,) = found(made / "helm" / f"{pool}.yaml")
    (plain,) = found(made / "kubernetes" / f"{pool}.yaml")
    port = plain.words.index("--port")
    named = [*plain.words[:3], *plain.words[port + 2 :], "--enable-prefix-caching"]  # vLLM's default
    assert settings(one.words) == settings(named)
    assert one.version == "0.33.0"
    assert [finding for finding in judge(one, None).findings if finding.level == "error"] == []


def test_prefix_caching_that_is_off_stays_off(tmp_path) -> None:
    words = (
        "vllm",
        "serve",
        "m",
        "--host",
        "0.0.0.0",
        "--port",
        "1",
        "--no-enable-prefix-caching",
        "--seed",
        "1",
    )
    made = yaml.safe_load(helm.values(server(command=words), deploy(cpus=2, memory_gib=8)))
    (spec,) = made["servingEngineSpec"]["modelSpec"]
    assert spec["vllmConfig"] == {"enablePrefixCaching": False, "extraArgs": ["--seed", "1"]}


@pytest.mark.parametrize("asked", [SIZED, {"cpus": 1.5, "memory_gib": 1, "namespace": "llm"}])
def test_helm_values_are_of_the_charts_schema(asked) -> None:
    words = ("vllm", "serve", "org/m", "--host", "0.0.0.0", "--port", "8000", "--seed", "1")
    made = yaml.safe_load(helm.values(server(command=words, environment={"A": "b"}), deploy(**asked)))
    validated(made, "production-stack.json")


def test_helm_values_are_left_out_with_the_reason(tmp_path) -> None:
    assert not (rendered(tmp_path, "vllm") / "helm").exists()
    left = json.loads(json.dumps(_data(tmp_path, "vllm")["pools"]["standard"]["left_out"]))
    assert left == {"Helm values": "the chart of production-stack needs deploy.cpus and deploy.memory_gib"}
    assert not (rendered(tmp_path / "s", "sglang", cpus=8, memory_gib=64) / "helm").exists()


def _data(folder: Path, engine: str, **deployed: Any) -> dict[str, Any]:
    standard, speculation = ENGINES[engine]
    pools = {"standard": standard, "speculative": standard | speculation}
    rollout = Rollout.model_validate({"rollout": "r", "pools": pools, "deploy": deployed})
    return render(rollout, folder, SilentProgress()).data


@pytest.mark.parametrize("asked", [{}, SIZED, {"namespace": "llm", "cache_claim": "c"}])
def test_an_inference_service_is_of_its_schemas(asked) -> None:
    for one in (server(gpus=0, downloads=False), server("speculative", replicas=3)):
        document = validated(yaml.safe_load(inference_service(one, deploy(**asked))), "kserve.json")
        predictor = document["spec"]["predictor"]
        own = {"minReplicas", "maxReplicas", "deploymentStrategy", "labels"}
        pod_is_of_kubernetes({key: value for key, value in predictor.items() if key not in own})
        assert predictor["minReplicas"] == predictor["maxReplicas"] == one.replicas
        assert predictor["containers"][0]["name"] == "kserve-container"
        assert predictor["labels"]["specops_pool"] == one.pool


@pytest.mark.parametrize("asked", [{}, SIZED, {"namespace": "llm", "cache_claim": "c"}])
def test_an_llm_inference_service_is_of_its_schemas(asked) -> None:
    for one in (server(gpus=0, downloads=False), server("speculative", replicas=3)):
        text = llm_inference_service(one, deploy(**asked))
        spec = validated(yaml.safe_load(text), "kserve-llm.json")["spec"]
        pod_is_of_kubernetes(spec["template"])
        (main,) = spec["template"]["containers"]
        assert main["name"] == "main"
        assert main["command"] == list(one.command)  # else KServe's own shell would read it
        assert main["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000, "scheme": "HTTP"}
        assert main["securityContext"]["runAsNonRoot"] is False
        assert spec["model"] == {"uri": "hf://org/model", "name": "org/model"}
        assert spec["storageInitializer"] == {"enabled": False}
        assert (spec["replicas"], spec["labels"]["specops_pool"]) == (one.replicas, one.pool)


def test_an_llm_inference_service_names_a_claims_model_and_how_it_is_called() -> None:
    words = ("vllm", "serve", "/models/llama/70b", "--served-model-name", "llama", "--port", "8000")
    text = llm_inference_service(server(command=words), deploy(model_folder="/models", model_claim="weights"))
    assert yaml.safe_load(text)["spec"]["model"] == {"uri": "pvc://weights/llama/70b", "name": "llama"}


@pytest.mark.parametrize(
    ("deployed", "model", "why"),
    [
        (
            {"port": 9000},
            "org/target",
            "KServe leads to port 8000 of a server alone, and deploy.port is 9000",
        ),
        (
            {"model_folder": "/models"},
            "/models/t",
            "KServe reads a model from a hub or a claim; name the claim as deploy.model_claim",
        ),
    ],
)
def test_an_llm_inference_service_is_left_out_with_the_reason(deployed, model, why, tmp_path) -> None:
    pools = {"standard": VLLM | {"model": model}, "speculative": VLLM | {"model": model} | NGRAM}
    rollout = Rollout.model_validate({"rollout": "r", "pools": pools, "deploy": deployed})
    data = render(rollout, tmp_path, SilentProgress()).data
    assert data["pools"]["speculative"]["left_out"]["LLMInferenceService"] == why
    assert not (tmp_path / "rendered" / "llminferenceservice").exists()


def test_the_schemas_would_have_found_a_fault() -> None:
    document = yaml.safe_load(inference_service(server(), deploy()))
    document["spec"]["predictor"]["minReplica"] = 1
    with pytest.raises(ValidationError):
        validated(document, "kserve.json")


def test_a_pool_on_its_own_host_publishes_where_the_host_says(tmp_path) -> None:
    schema = "compose-spec.json"
    document = validated(yaml.safe_load(own_host(server("speculative", replicas=2), deploy())), schema)
    services = document["services"]
    assert list(services) == ["speculative", "speculative-2"]
    assert all(one["ports"][0].startswith(f"${{{ADDRESS}:?") for one in services.values())
    assert services["speculative-2"]["ports"][0].endswith("}:8001:8000")


# Several hosts


SPREAD = {"vllm": {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}, "sglang": {"tp_size": 16}}


@pytest.fixture(params=SPREAD)
def spread(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    engine: str = request.param
    standard, speculation = ENGINES[engine]
    standard = standard | SPREAD[engine]
    pools = {"standard": standard, "speculative": standard | speculation}
    if engine == "vllm":  # vLLM refuses pipelines with speculation
        pools = {name: pool | {"pipeline_parallel_size": 1} for name, pool in pools.items()}
    rollout = Rollout.model_validate({"rollout": "r", "pools": pools, "deploy": {"nodes": 2}})
    render(rollout, tmp_path, SilentProgress())
    return engine, tmp_path / "rendered"


def test_a_server_over_hosts_is_a_leader_worker_set_alone(spread) -> None:
    engine, made = spread
    files = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    assert {name for name in files if name.endswith(".yaml")} == {
        "leaderworkerset/standard.yaml",
        "leaderworkerset/speculative.yaml",
    }
    for pool in POOLS:
        documents = list(yaml.safe_load_all((made / "leaderworkerset" / f"{pool}.yaml").read_text()))
        group, service = documents
        validated(group, "leaderworkerset.json")
        kubernetes_validate.validate(service, NEWEST, strict=True)
        template = group["spec"]["leaderWorkerTemplate"]
        leader, worker = template["leaderTemplate"], template["workerTemplate"]
        assert template["size"] == 2
        for one in (leader, worker):
            pod_is_of_kubernetes(one["spec"])
            limits = one["spec"]["containers"][0]["resources"]["limits"]
            assert limits == {"nvidia.com/gpu": "4" if engine == "vllm" else "8"}
        assert service["spec"]["selector"].items() <= leader["metadata"]["labels"].items()
        assert "specops_pool" not in worker["metadata"]["labels"]
        assert "readinessProbe" in leader["spec"]["containers"][0]
        assert "readinessProbe" not in worker["spec"]["containers"][0]


def test_leader_and_worker_are_read_back_with_the_same_settings(spread) -> None:
    engine, made = spread
    for pool in POOLS:
        leader, worker = found(made / "leaderworkerset" / f"{pool}.yaml")
        for one in (leader, worker):
            assert [finding for finding in judge(one, None).findings if finding.level == "error"] == []
        address = "--master-addr" if engine == "vllm" else "--dist-init-addr"
        assert leader.words[leader.words.index(address) + 1].startswith("$(LWS_LEADER_ADDRESS)")
        assert leader.words[leader.words.index("--node-rank") + 1] == "0"
        assert worker.words[worker.words.index("--node-rank") + 1] == "$(LWS_WORKER_INDEX)"
        differs = {"--node-rank 0", "--node-rank $(LWS_WORKER_INDEX)", "--headless"}
        assert set(settings(leader.words)) ^ set(settings(worker.words)) <= differs


def test_what_cannot_be_spread_is_said(tmp_path) -> None:
    left = _data(tmp_path, "trtllm", nodes=2)["pools"]["standard"]["left_out"]
    assert left == {"LeaderWorkerSet": "specops cannot spread a server of TensorRT-LLM over hosts"}
    with pytest.raises(ConfigError, match="1 GPUs of the standard pool do not divide by 2"):
        _data(tmp_path, "vllm", nodes=2)
