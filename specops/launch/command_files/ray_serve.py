"""Ray Serve LLM: `llm_configs` of an application, a file of one configuration, and a RayService."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from specops.launch.command_files import containers, kubernetes
from specops.launch.command_files.flags_file import words_of_settings
from specops.launch.command_files.form import LOOK, Document, DocumentForm
from specops.launch.command_files.recognition import command_lines, usual_in
from specops.serving import Command, Files


def matches(document: Document) -> bool:
    return (
        isinstance(document.get("applications"), list)
        or ("model_loading_config" in document and "kind" not in document)
        or (document.get("kind") == "RayService")
    )


def commands(document: Document, where: str, files: Files) -> Iterator[Command]:
    if document.get("kind") == "RayService":
        text = containers.mapping(document.get("spec")).get("serveConfigV2")
        yield from _service(text, kubernetes.named(document), files)
        yield from kubernetes.commands(document, where, files)
    elif "model_loading_config" in document:
        yield from configured(document, where)
    else:
        for application in document["applications"]:
            yield from _application(application, where)


def _service(text: Any, where: str, files: Files) -> Iterator[Command]:
    try:
        document = yaml.safe_load(text) if isinstance(text, str) else text
    except yaml.YAMLError:
        return
    if isinstance(document, dict) and isinstance(document.get("applications"), list):
        yield from commands(document, where, files)


def _application(application: Any, where: str) -> Iterator[Command]:
    application = containers.mapping(application)
    configs = containers.mapping(application.get("args")).get("llm_configs")
    name = application.get("name")
    for config in configs if isinstance(configs, list) else ():
        if isinstance(config, dict):
            yield from configured(config, f"{where}, application {name}" if name else where)


def configured(config: Document, where: str) -> Iterator[Command]:
    """Yield the configuration as the command that would serve it: `engine_kwargs` are the engine's flags."""
    loading = containers.mapping(config.get("model_loading_config"))
    model = loading.get("model_source") or loading.get("model_id")
    model_id = loading.get("model_id")
    engine = str(config.get("llm_engine") or usual_in("Ray")[0]).lower()
    if engine not in command_lines() or not isinstance(config.get("engine_kwargs", {}), dict):
        return
    settings = {
        key: json.dumps(value) if isinstance(value, dict) else value
        for key, value in (config.get("engine_kwargs") or {}).items()
    }
    words = words_of_settings(settings)
    target = ["--model", str(model)] if isinstance(model, str) else []
    variables = containers.mapping(containers.mapping(config.get("runtime_env")).get("env_vars"))
    environment = {str(k): str(v) for k, v in variables.items()}
    place = f"{where}, model {model_id}" if model_id else where
    yield Command(place, engine, (*target, *words), environment=environment)


FORM = DocumentForm("a Ray Serve configuration", matches, commands, LOOK)
