"""KAITO: a Workspace or an InferenceSet serves a preset with vLLM; inference.config names a ConfigMap whose
inference_config.yaml has vLLM's flags under `vllm`. Read in kaito-project/kaito, presets/workspace/inference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from specops.launch.command_files import containers
from specops.launch.command_files.flags_file import words_of_settings
from specops.launch.command_files.form import Document, DocumentForm
from specops.launch.command_files.kubernetes import commands as pod_commands
from specops.launch.command_files.kubernetes import named
from specops.launch.command_files.recognition import usual_in
from specops.serving import Command, Files, Unknown

SETTINGS = "inference_config.yaml"


def matches(document: Document) -> bool:
    return str(document.get("apiVersion", "")).startswith("kaito.sh/") and _inference(document) is not None


def commands(document: Document, where: str, files: Files) -> Iterator[Command]:
    inference = _inference(document) or {}
    yield from pod_commands(document, where, files)  # inference.template is a pod
    preset = containers.mapping(inference.get("preset"))
    if not preset:
        return
    engine, called = usual_in("KAITO")
    words, unread = [*called, str(preset.get("name", ""))], []
    name = inference.get("config")
    if name is not None:
        text = files.maps.get(str(name), {}).get(SETTINGS)
        settings = _settings(text, engine)
        if settings is None:
            how = f"kubectl get configmap {name} -o yaml"
            unread.append(
                Unknown(str(name), f"the ConfigMap with {SETTINGS} was not read: it is not here", how)
            )
        else:
            words += words_of_settings(settings)
    yield Command(named(document), engine, tuple(words), files=files, unread=tuple(unread))


def _inference(document: Document) -> dict[str, Any] | None:
    spec = containers.mapping(document.get("spec"))
    template = containers.mapping(spec.get("template"))
    for node in (document, spec, template, containers.mapping(template.get("spec"))):
        if isinstance(node.get("inference"), dict):
            return dict(node["inference"])
    return None


def _settings(text: str | None, engine: str) -> dict[str, Any] | None:
    try:
        content = yaml.safe_load(text or "")
    except (yaml.YAMLError, ValueError):
        return None
    return containers.mapping(content.get(engine)) if isinstance(content, dict) else None


FORM = DocumentForm(
    "a workspace of KAITO", matches, commands, "kubectl get pods -o yaml > pods.yaml  # then lint it"
)
