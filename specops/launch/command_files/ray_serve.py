"""Ray Serve LLM: `llm_configs` of an application, a file of one configuration, and a RayService."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from specops.launch.command_files import kubernetes
from specops.launch.command_files.flags_file import words_of
from specops.launch.command_files.recognition import command_lines, usual_in
from specops.serving import Command


def is_one(document: dict[str, Any]) -> bool:
    return (
        isinstance(document.get("applications"), list)
        or ("model_loading_config" in document and "kind" not in document)
        or (document.get("kind") == "RayService")
    )


def commands(document: dict[str, Any], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    if document.get("kind") == "RayService":
        spec = document.get("spec")
        text = spec.get("serveConfigV2") if isinstance(spec, dict) else None
        yield from _service(text, kubernetes.named(document), files)
        yield from kubernetes.commands(document, where, files)
    elif "model_loading_config" in document:
        yield from _configured(document, where)
    else:
        for application in document["applications"]:
            yield from _application(application, where)


def _service(text: Any, where: str, files: Mapping[str, str]) -> Iterator[Command]:
    try:
        document = yaml.safe_load(text) if isinstance(text, str) else text
    except yaml.YAMLError:
        return
    if isinstance(document, dict) and isinstance(document.get("applications"), list):
        yield from commands(document, where, files)


def _application(application: Any, where: str) -> Iterator[Command]:
    arguments = application.get("args") if isinstance(application, dict) else None
    configs = arguments.get("llm_configs") if isinstance(arguments, dict) else None
    name = application.get("name") if isinstance(application, dict) else None
    for config in configs if isinstance(configs, list) else ():
        if isinstance(config, dict):
            yield from _configured(config, f"{where}, application {name}" if name else where)


def _configured(config: dict[str, Any], where: str) -> Iterator[Command]:
    """As the command that would serve it: `engine_kwargs` are the engine's flags."""
    loading = config.get("model_loading_config")
    loading = loading if isinstance(loading, dict) else {}
    model = loading.get("model_source") or loading.get("model_id")
    served = loading.get("model_id")
    engine = str(config.get("llm_engine") or usual_in("Ray")[0]).lower()
    if engine not in command_lines() or not isinstance(config.get("engine_kwargs", {}), dict):
        return
    settings = {
        key: json.dumps(value) if isinstance(value, dict) else value
        for key, value in (config.get("engine_kwargs") or {}).items()
    }
    words = [word for key, value in settings.items() for word in words_of(str(key), value)]
    target = ["--model", str(model)] if isinstance(model, str) else []
    runtime = config.get("runtime_env")
    variables = runtime.get("env_vars") if isinstance(runtime, dict) else None
    environment = {str(k): str(v) for k, v in variables.items()} if isinstance(variables, dict) else {}
    place = f"{where}, model {served}" if served else where
    yield Command(place, engine, (*target, *words), environment=environment)
