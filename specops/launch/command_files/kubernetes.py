"""Kubernetes manifests: containers of a pod, wherever in an object they are.

KServe: InferenceService, and LLMInferenceService with its configurations.

What KServe itself puts into a command was read in its repository, at aaac4e2. Where an LLMInferenceService's
container `main` names no command, it runs `eval "exec vllm serve /mnt/models … ${VLLM_ADDITIONAL_ARGS} $@"`
(config/llmisvcconfig/config-llm-template.yaml), so that a shell reads the words of both. A model of an
InferenceService in the format `huggingface` is served by huggingfaceserver, which hands the flags that are
not its own to vLLM.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from specops.launch.command_files import containers
from specops.launch.command_files.recognition import command_lines, recognised, usual_in
from specops.serving import Command

KSERVE_KINDS = ("InferenceService", "LLMInferenceService", "LLMInferenceServiceConfig")
MOUNTED = "/mnt/models"
ADDITIONAL = "VLLM_ADDITIONAL_ARGS"
SERVED = "huggingface"
"""A word in the format of a model, or in the name of a runtime: the usual engine serves it."""

OWN_FLAGS = (
    "--model-name",
    "--model-dir",
    "--model-id",
    "--max-length",
    "--backend",
    "--tensor-input-names",
    "--return-probabilities",
    "--return-raw-logits",
    "--return-token-type-ids",
    "--return-offsets-mapping",
    "--disable-lower-case",
    "--disable-special-tokens",
    "--http-port",
    "--grpc-port",
    "--workers",
    "--max-threads",
    "--enable-docs-url",
    "--enable-grpc",
    "--predictor-host",
    "--log-config-file",
)
"""Flags of huggingfaceserver (python/huggingfaceserver, python/kserve)."""

LOST = re.compile(r"[^{}\"']*\{[^{}\"']*,[^{}\"']*\}")
"""A word in braces, without the quotes that JSON has."""

SIZES = {"tensor": "--tensor-parallel-size", "pipeline": "--pipeline-parallel-size"}


def is_one(document: dict[str, Any]) -> bool:
    return isinstance(document.get("kind"), str)


def commands(document: dict[str, Any], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    yield from _within(document, "", files)


def texts_of(document: dict[str, Any]) -> dict[str, str]:
    """Return the texts of a ConfigMap, or of those in a List."""
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        inner = [item for item in document["items"] if isinstance(item, dict)]
        return {name: text for item in inner for name, text in texts_of(item).items()}
    data = document.get("data") if document.get("kind") == "ConfigMap" else None
    entries = data.items() if isinstance(data, dict) else ()
    return {str(name): text for name, text in entries if isinstance(text, str)}


def named(document: Mapping[str, Any]) -> str:
    """Return the kind and name of an object, such as `Deployment llm`."""
    name = containers.mapping(document.get("metadata")).get("name", "")
    return f"{document.get('kind', '')} {name}".strip()


def of_container(container: Any, where: str, files: Mapping[str, str]) -> Iterator[Command]:
    if isinstance(container, dict):
        place = f"{where}, container {container.get('name', '')}"
        yield from containers.of_container(container, place, files)


def _within(node: Any, where: str, files: Mapping[str, str]) -> Iterator[Command]:
    if isinstance(node, dict):
        if "kind" in node and isinstance(node.get("metadata"), dict):
            where = named(node)
        for key, value in node.items():
            if key in ("containers", "initContainers") and isinstance(value, list):
                for container in value:
                    yield from of_container(container, where, files)
            else:
                yield from _within(value, where, files)
    elif isinstance(node, list):
        for part in node:
            yield from _within(part, where, files)


# KServe


def is_kserve(document: dict[str, Any]) -> bool:
    return document.get("kind") in KSERVE_KINDS and isinstance(document.get("spec"), dict)


def kserve_commands(document: dict[str, Any], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    spec, name = document["spec"], named(document)
    if document["kind"] == "InferenceService":
        yield from _inference_service(spec, name, files)
        return
    yield from _llm(spec, spec, name, files)
    if isinstance(spec.get("prefill"), dict):
        yield from _llm(spec["prefill"], spec, f"{name}, prefill", files)


def _inference_service(spec: dict[str, Any], name: str, files: Mapping[str, str]) -> Iterator[Command]:
    predictor = containers.mapping(spec.get("predictor"))
    model = predictor.get("model")
    if isinstance(model, dict):
        yield from _model(model, f"{name}, model", files)
    for container in _items(predictor.get("containers")):
        yield from of_container(container, name, files)
    for container in _items(containers.mapping(predictor.get("workerSpec")).get("containers")):
        yield from of_container(container, f"{name}, worker", files)


def _model(model: dict[str, Any], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    form = model.get("modelFormat")
    named = [form.get("name") if isinstance(form, dict) else form, model.get("runtime"), model.get("image")]
    text = " ".join(str(one).lower() for one in named if one)
    engine = next((name for name in command_lines() if name in text), None)
    if engine is None and SERVED in text:
        engine, _ = usual_in("KServe")
    if engine is None:
        return
    environment = containers.variables(model.get("env"))
    words = containers.filled(
        [*containers.listed(model.get("command")), *containers.listed(model.get("args"))], environment
    )
    found = recognised(words, where, environment=environment, files=files)
    if found is None:
        target = model.get("storageUri") or MOUNTED
        own = _without_own(words)
        found = Command(where, engine, (*_target(own, str(target)), *own), environment=environment)
    yield found


def _target(words: list[str], target: str) -> list[str]:
    given = any(word.replace("_", "-").partition("=")[0] in ("--model", "--model-path") for word in words)
    return [] if given else ["--model", target]


def _without_own(words: list[str]) -> list[str]:
    """--model_id=org/m is the model; other flags of huggingfaceserver say nothing to vLLM."""
    retained: list[str] = []
    skipping = False
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        if flag == "--model-id":
            retained += (
                ["--model", value if equals else words[index + 1 : index + 2][0]]
                if (equals or index + 1 < len(words))
                else []
            )
            skipping = not equals
        elif flag in OWN_FLAGS:
            skipping = not equals
        elif not word.startswith("--") and skipping:
            skipping = False
        else:
            retained.append(word)
            skipping = False
    return retained


def _llm(
    part: dict[str, Any], spec: dict[str, Any], name: str, files: Mapping[str, str]
) -> Iterator[Command]:
    """Yield the command of an LLMInferenceService. `part`: the service, or its prefill. Both serve the
    service's model."""
    for template, what in ((part.get("template"), ""), (part.get("worker"), ", worker")):
        for container in _items(containers.mapping(template).get("containers")):
            if not isinstance(container, dict) or container.get("name") != "main" or container.get("command"):
                yield from of_container(container, name + what, files)
                continue
            yield from _main(container, part, spec, f"{name}{what}, container main", files)


def _main(
    container: dict[str, Any],
    part: dict[str, Any],
    spec: dict[str, Any],
    where: str,
    files: Mapping[str, str],
) -> Iterator[Command]:
    environment = containers.variables(container.get("env"))
    target = str(containers.mapping(spec.get("model")).get("uri") or MOUNTED).removeprefix("hf://")
    sizes = containers.mapping(part.get("parallelism"))
    words = [*usual_in("KServe")[1], target]
    words += [word for key, flag in SIZES.items() if sizes.get(key) for word in (flag, str(sizes[key]))]
    given = containers.filled(containers.listed(container.get("args")), environment)
    read = _as_a_shell(" ".join([environment.get(ADDITIONAL, ""), *given]))
    if any(word.startswith("{") and word not in read for word in given):
        where += ", as the shell of KServe's template reads it"
    words += read
    image = container.get("image")
    around = {name: value for name, value in environment.items() if name != ADDITIONAL}
    found = recognised(
        words, where, image=image if isinstance(image, str) else None, environment=around, files=files
    )
    if found is not None:
        yield found


def _as_a_shell(text: str) -> list[str]:
    """The words of `text`. JSON whose quotes are gone is several words: a shell expands {a,b} to a and b."""
    try:
        words = shlex.split(text)
    except ValueError:
        return text.split()
    return [part for word in words for part in (_expanded(word) if LOST.fullmatch(word) else [word])]


def _expanded(word: str) -> list[str]:
    before, _, inner = word.rstrip("}").partition("{")
    return [before + part for part in inner.split(",")]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
