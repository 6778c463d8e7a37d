"""KServe: InferenceService, and LLMInferenceService with its configurations.

What KServe itself puts into a command was read in its repository, at aaac4e2. Where an LLMInferenceService's
container `main` names no command, it runs `eval "exec vllm serve /mnt/models … ${VLLM_ADDITIONAL_ARGS} $@"`
(config/llmisvcconfig/config-llm-template.yaml), so that a shell reads the words of both. A model of an
InferenceService in the format `huggingface` is served by huggingfaceserver, which hands the flags that are
not its own to vLLM. `spec.speculator` becomes --speculative-config (the API that kserve#5687 proposes).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from specops.launch.command_files import containers
from specops.launch.command_files.form import Document, DocumentForm
from specops.launch.command_files.kubernetes import named, of_container
from specops.launch.command_files.recognition import command_lines, recognised, usual_in
from specops.serving import Command, Files, Unknown

GROUP = "serving.kserve.io"
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


def matches(document: Document) -> bool:
    group = str(document.get("apiVersion") or GROUP).partition("/")[0]
    return group == GROUP and document.get("kind") in KSERVE_KINDS and isinstance(document.get("spec"), dict)


def commands(document: Document, where: str, files: Files) -> Iterator[Command]:
    spec, name = document["spec"], named(document)
    if document["kind"] == "InferenceService":
        yield from _inference_service(spec, name, files)
        return
    unread = []
    if spec.get("baseRefs"):
        reason = "configurations that are not in this file add to the command"
        how = f"kubectl get llminferenceservice {name.partition(' ')[2]} -o yaml  # and its pods' arguments"
        unread.append(Unknown("spec.baseRefs", reason, how))
    parts = [(spec, name)]
    if isinstance(spec.get("prefill"), dict):
        parts.append((spec["prefill"], f"{name}, prefill"))
    for part, place in parts:
        for command in _llm(part, spec, place, files):
            yield replace(command, unread=(*command.unread, *unread))


def _inference_service(spec: Document, name: str, files: Files) -> Iterator[Command]:
    predictor = containers.mapping(spec.get("predictor"))
    model = predictor.get("model")
    if isinstance(model, dict):
        yield from _model(model, f"{name}, model", files)
    for container in containers.items(predictor.get("containers")):
        yield from of_container(container, name, files)
    for container in containers.items(containers.mapping(predictor.get("workerSpec")).get("containers")):
        yield from of_container(container, f"{name}, worker", files)


def _model(model: Document, where: str, files: Files) -> Iterator[Command]:
    form = model.get("modelFormat")
    named = [form.get("name") if isinstance(form, dict) else form, model.get("runtime"), model.get("image")]
    text = " ".join(str(label).lower() for label in named if label)
    engine = next((name for name in command_lines() if name in text), None)
    if engine is None and SERVED in text:
        engine, _ = usual_in("KServe")
    if engine is None:
        return
    environment = containers.variables(model.get("env"), files)
    words = containers.filled(
        [*containers.listed(model.get("command")), *containers.listed(model.get("args"))], environment
    )
    command = recognised(words, where, environment=environment, files=files)
    if command is None:
        target = model.get("storageUri") or MOUNTED
        flags = _without_own(words)
        names = {word.replace("_", "-").partition("=")[0] for word in flags}
        if names.isdisjoint(("--model", "--model-path")):
            flags = ["--model", str(target), *flags]
        command = Command(where, engine, tuple(flags), environment=environment, files=files)
    runtime = str(model.get("runtime") or "kserve-")
    if not runtime.startswith("kserve-"):  # KServe's own add the model's name and folder alone
        reason = "the runtime's own arguments were not judged with these"
        how = f"kubectl get servingruntime,clusterservingruntime {runtime} -o yaml"
        command = replace(command, unread=(*command.unread, Unknown(f"runtime {runtime}", reason, how)))
    yield command


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


def _llm(part: Document, spec: Document, name: str, files: Files) -> Iterator[Command]:
    """Yield the command of an LLMInferenceService. `part`: the service, or its prefill. Both serve the
    service's model."""
    for template, suffix in ((part.get("template"), ""), (part.get("worker"), ", worker")):
        for container in containers.items(containers.mapping(template).get("containers")):
            if not isinstance(container, dict) or container.get("name") != "main" or container.get("command"):
                for command in of_container(container, name + suffix, files):
                    yield replace(command, unread=(*command.unread, *_not_added(part)))
                continue
            yield from _main(container, part, spec, f"{name}{suffix}, container main", files)


def _main(
    container: Document,
    part: Document,
    spec: Document,
    where: str,
    files: Files,
) -> Iterator[Command]:
    environment = containers.variables(container.get("env"), files)
    target = str(containers.mapping(spec.get("model")).get("uri") or MOUNTED).removeprefix("hf://")
    sizes = containers.mapping(part.get("parallelism"))
    words = [*usual_in("KServe")[1], target]
    words += [word for key, flag in SIZES.items() if sizes.get(key) for word in (flag, str(sizes[key]))]
    arguments = containers.filled(containers.listed(container.get("args")), environment)
    read = _as_a_shell(" ".join([environment.get(ADDITIONAL, ""), *arguments]))
    if any(word.startswith("{") and word not in read for word in arguments):
        where += ", as the shell of KServe's template reads it"
    speculation, unread = _speculator(part)
    words += [*read, *speculation]
    image = container.get("image")
    around = {name: value for name, value in environment.items() if name != ADDITIONAL}
    command = recognised(
        words, where, image=image if isinstance(image, str) else None, environment=around, files=files
    )
    if command is not None:
        yield replace(command, unread=(*command.unread, *unread))


def _speculator(part: Document) -> tuple[list[str], list[Unknown]]:
    """Return the words that the controller makes of spec.speculator, and what of it was not read."""
    speculator = containers.mapping(part.get("speculator"))
    config = speculator.get("config")
    if not speculator:
        return [], []
    if not isinstance(config, dict):
        return [], _not_added(part)
    target = str(containers.mapping(speculator.get("model")).get("uri") or "").removeprefix("hf://")
    keys = ({"model": target} if target else {}) | config
    return ["--speculative-config", json.dumps(keys, default=str)], []


def _not_added(part: Document) -> list[Unknown]:
    if not part.get("speculator"):
        return []
    reason = "what the controller makes of it beside the container's own command was not judged"
    return [Unknown("spec.speculator", reason, "kubectl get pods -l kserve.io/component=workload -o yaml")]


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


FORM = DocumentForm(
    "a service of KServe", matches, commands, "kubectl get deployment -l serving.kserve.io -o yaml"
)
