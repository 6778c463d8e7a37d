"""Helm values: of vLLM's production-stack, of llm-d's modelservice, and of charts that have a command.

Also the VLLMRuntime of production-stack's operator, whose settings have the names of the chart's. What the
charts make of them was read in their templates: production-stack at a6c01db
(helm/templates/deployment-vllm-multi.yaml, operator/internal/controller/vllmruntime_controller.go),
llm-d-modelservice at 3051935 (templates/_helpers.tpl).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specops.launch.command_files import containers
from specops.launch.command_files.form import DocumentForm
from specops.launch.command_files.recognition import engine_of_image, program_of, recognised, usual_in
from specops.serving import Command, Files

CONFIG = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "maxLoras": "--max-loras",
    "runner": "--runner",
    "convert": "--convert",
}
"""Keys of `vllmConfig` that have a value, and their flags."""

ROLES = ("decode", "prefill")
SIZES = {"tensor": "--tensor-parallel-size", "data": "--data-parallel-size"}


def is_runtime(document: dict[str, Any]) -> bool:
    return document.get("kind") == "VLLMRuntime" and isinstance(document.get("spec"), dict)


def runtime_commands(document: dict[str, Any], where: str, files: Files) -> Iterator[Command]:
    """Yield the command of a runtime: its model, its vLLM's settings and its image as one entry of the
    chart's."""
    spec = {key: part for key, part in document["spec"].items() if isinstance(part, dict)}
    model, config = spec.get("model", {}), spec.get("vllmConfig", {})
    image = containers.mapping(spec.get("deploymentConfig", {}).get("image"))
    repository, _, tag = str(image.get("name", "")).rpartition(":")
    entry = model | {
        "name": containers.mapping(document.get("metadata")).get("name", ""),
        "repository": repository,
        "tag": tag,
        "vllmConfig": {key: model[key] for key in CONFIG if key in model} | config,
        "env": config.get("env"),
    }
    yield from _production_stack({"modelSpec": [entry]}, files)


def matches(document: dict[str, Any]) -> bool:
    return "kind" not in document and (
        isinstance(document.get("servingEngineSpec"), dict)
        or isinstance(document.get("modelArtifacts"), dict)
        or any(True for _ in _described(document, ""))
    )


def commands(document: dict[str, Any], where: str, files: Files) -> Iterator[Command]:
    if isinstance(document.get("servingEngineSpec"), dict):
        yield from _production_stack(document["servingEngineSpec"], files)
    elif isinstance(document.get("modelArtifacts"), dict):
        yield from _modelservice(document, files)
    else:
        for node, place in _described(document, ""):
            yield from containers.of_container(node, place or where, files)


# production-stack


def _production_stack(engines: dict[str, Any], files: Files) -> Iterator[Command]:
    shared = containers.variables(engines.get("env"))
    models = engines.get("modelSpec")
    for spec in models if isinstance(models, list) else ():
        if not isinstance(spec, dict):
            continue
        config = containers.mapping(spec.get("vllmConfig"))
        environment = shared | containers.variables(spec.get("env"))
        if str(config.get("v0")) == "1":
            environment["VLLM_USE_V1"] = "0"
        if isinstance(spec.get("hf_token"), str):
            environment["HF_TOKEN"] = spec["hf_token"]
        called = usual_in("production-stack")[1]
        words = [*called, str(spec.get("modelURL", "")), *_switches(spec), *_configured(config)]
        image = f"{spec.get('repository', '')}:{spec.get('tag', '')}"
        where = f"modelSpec {spec.get('name', '')}"
        command = recognised(
            containers.filled(words, environment), where, image=image, environment=environment, files=files
        )
        if command is not None:
            yield command


def _switches(spec: dict[str, Any]) -> list[str]:
    words = ["--enable-lora"] if spec.get("enableLoRA") else []
    words += ["--enable-auto-tool-choice"] if spec.get("enableTool") else []
    return words + (["--tool-call-parser", str(spec["toolCallParser"])] if spec.get("toolCallParser") else [])


def _configured(config: dict[str, Any]) -> list[str]:
    """Return the flags in the chart's order, which leaves the last word to `extraArgs`."""
    words = []
    if "enableChunkedPrefill" in config:
        words.append(_switch("enable-chunked-prefill", config["enableChunkedPrefill"]))
    if config:  # left out, the chart turns it off
        words.append(_switch("enable-prefix-caching", config.get("enablePrefixCaching")))
    for key, flag in CONFIG.items():
        if key in config:
            words += [flag, str(config[key])]
    return words + containers.listed(config.get("extraArgs"))


def _switch(name: str, on: Any) -> str:
    return f"--{name}" if on else f"--no-{name}"


# llm-d


def _modelservice(document: dict[str, Any], files: Files) -> Iterator[Command]:
    artifacts = document["modelArtifacts"]
    target = str(artifacts.get("uri") or artifacts.get("name") or "").removeprefix("hf://")
    for role in ROLES:
        part = document.get(role)
        if not isinstance(part, dict):
            continue
        sizes = containers.mapping(part.get("parallelism"))
        for container in part.get("containers") or []:
            if not isinstance(container, dict):
                continue
            environment = containers.variables(container.get("env"))
            way = container.get("modelCommand", "custom")
            words = containers.listed(container.get("command")) if way == "custom" else []
            if way == "vllmServe":
                words = [*usual_in("llm-d")[1], target]
            elif way == "imageDefault":
                words = ["--model", target]
            if way != "custom":
                words += [w for k, f in SIZES.items() if sizes.get(k, 1) != 1 for w in (f, str(sizes[k]))]
            words += containers.listed(container.get("args"))
            words = containers.filled(words, environment)
            where = f"{role}, container {container.get('name', '')}"
            image = container.get("image")
            if way == "imageDefault":  # whatever the image is called
                tag = engine_of_image(str(image))
                engine = tag[0] if tag else usual_in("llm-d")[0]
                version = tag[1] if tag else None
                yield Command(where, engine, tuple(words), version, environment=environment)
            else:
                yield from containers.commands(words, where, image, environment, files)


# Any other chart


def _described(node: Any, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Mappings with a command, or with arguments of an engine's image."""
    if isinstance(node, dict):
        words = [*containers.listed(node.get("command")), *containers.listed(node.get("args"))]
        calls = program_of(words)[0] is not None or any("serve" in word for word in words)
        if words and (calls or engine_of_image(containers.image_of(node)) is not None):
            yield node, where
            return
        for key, value in node.items():
            yield from _described(value, f"{where}.{key}" if where else str(key))
    elif isinstance(node, list):
        for index, part in enumerate(node):
            yield from _described(part, f"{where}[{index}]")


RENDER = "helm template RELEASE CHART > rendered.yaml  # then lint that file"
RUNTIME = DocumentForm("a VLLMRuntime", is_runtime, runtime_commands, RENDER)
FORM = DocumentForm("Helm values", matches, commands, RENDER)
