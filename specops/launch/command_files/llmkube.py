"""LLMKube: an InferenceService whose operator makes the command of llama-server, vLLM or SGLang.

What the operator makes of each setting was read in defilantech/LLMKube, internal/controller/runtime_*.go, of
November 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from specops.launch.command_files import containers
from specops.launch.command_files.form import Document, DocumentForm
from specops.launch.command_files.kubernetes import named
from specops.launch.command_files.recognition import command_lines, engine_of_image, usual_in
from specops.serving import Command, Files

TYPES = {"mtp": "draft-mtp", "draft": "draft-simple"}
"""Aliases of spec.speculativeDecoding.type."""

MODEL, SLOTS = {"sglangConfig": "--model-path"}, {"vllmConfig": "--max-num-seqs"}

WITH_DRAFT = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark", "draft-mtp")
SPEC = {
    "contextSize": "--ctx-size",
    "parallelSlots": "--parallel",
    "batchSize": "--batch-size",
    "uBatchSize": "--ubatch-size",
    "cacheTypeK": "--cache-type-k",
    "cacheTypeV": "--cache-type-v",
    "cacheTypeCustomK": "--cache-type-k",
    "cacheTypeCustomV": "--cache-type-v",
}
CONFIGS = {
    "vllmConfig": {
        "tensorParallelSize": "--tensor-parallel-size",
        "maxModelLen": "--max-model-len",
        "quantization": "--quantization",
        "dtype": "--dtype",
        "kvCacheDtype": "--kv-cache-dtype",
        "maxNumBatchedTokens": "--max-num-batched-tokens",
        "attentionBackend": "--attention-backend",
        "gpuMemoryUtilization": "--gpu-memory-utilization",
        "enablePrefixCaching": "--enable-prefix-caching",
        "enableChunkedPrefill": "--enable-chunked-prefill",
        "enableExpertParallel": "--enable-expert-parallel",
    },
    "sglangConfig": {
        "tensorParallelSize": "--tp",
        "contextLength": "--context-length",
        "memFractionStatic": "--mem-fraction-static",
        "maxRunningRequests": "--max-running-requests",
        "quantization": "--quantization",
        "kvCacheDtype": "--kv-cache-dtype",
        "attentionBackend": "--attention-backend",
    },
}
"""Settings of the engines that have a section of their own; those of the first engine stand in the spec."""

SPECULATIVE = {
    "vllmConfig": {"model": "--speculative-model", "numSpeculativeTokens": "--num-speculative-tokens"},
    "sglangConfig": {
        "algorithm": "--speculative-algorithm",
        "draftModelPath": "--speculative-draft-model-path",
        "numSteps": "--speculative-num-steps",
        "eagleTopK": "--speculative-eagle-topk",
        "numDraftTokens": "--speculative-num-draft-tokens",
        "acceptThresholdSingle": "--speculative-accept-threshold-single",
        "acceptThresholdAcc": "--speculative-accept-threshold-acc",
    },
}


def matches(document: Document) -> bool:
    group = str(document.get("apiVersion", "")).partition("/")[0]
    return group == "inference.llmkube.dev" and document.get("kind") == "InferenceService"


def commands(document: Document, where: str, files: Files) -> Iterator[Command]:
    spec = containers.mapping(document.get("spec"))
    engine = str(spec.get("runtime") or usual_in("LLMKube")[0])
    if engine not in command_lines():
        return
    target, extra = str(spec.get("modelRef", "")), containers.listed(spec.get("extraArgs"))
    section = f"{engine}Config"
    if section not in CONFIGS:
        words = ["--model", target, *_words(SPEC, spec), *_speculation(spec), *extra]
        words += [] if "--metrics" in words else ["--metrics"]
    else:
        config, slots = containers.mapping(spec.get(section)), spec.get("parallelSlots")
        words = [MODEL.get(section, "--model"), target, *_words(CONFIGS[section], config)]
        words += [SLOTS[section], str(slots)] if slots and section in SLOTS else []
        speculative = containers.mapping(config.get("speculative"))
        words += _words(SPECULATIVE[section], speculative) if speculative.get("enabled") else []
        words += [*containers.listed(config.get("extraArgs")), *extra]
    image = str(spec.get("image", ""))
    tag = engine_of_image(image)
    environment = containers.variables(spec.get("env"), files)
    yield Command(
        named(document),
        engine,
        tuple(words),
        tag[1] if tag else None,
        environment=environment,
        files=replace(files, contained=True),
        image=image or None,
    )


def _words(flags: dict[str, str], settings: dict[str, Any]) -> list[str]:
    words = []
    for key, flag in flags.items():
        value = settings.get(key)
        if value is not None and value is not False:
            words += [flag] if value is True else [flag, str(value)]
    return words


def _speculation(spec: dict[str, Any]) -> list[str]:
    speculation = containers.mapping(spec.get("speculativeDecoding"))
    kind = str(speculation.get("type", "none"))
    kind = TYPES.get(kind, kind)
    if kind in ("none", "disabled"):
        return []
    words = ["--spec-type", kind]
    draft = speculation.get("draftModelRef") or speculation.get("draftModel")
    words += ["-md", str(draft)] if kind in WITH_DRAFT and draft else []
    for key, flag in (("nDraftMax", "--spec-draft-n-max"), ("pMin", "--spec-draft-p-min")):
        words += [flag, str(speculation[key])] if speculation.get(key) is not None else []
    return words


FORM = DocumentForm(
    "a service of LLMKube",
    matches,
    commands,
    "kubectl get deployment NAME -o yaml > rendered.yaml  # then lint it",
)
