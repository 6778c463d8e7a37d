"""YAML and JSON: which reader each document is for. Three of the readers are here.

Ray Serve LLM: `llm_configs` of an application, a file of one configuration, and a RayService.
Files of a server: of flags, as `vllm serve --config` reads them, such as the playbook's
speculative_decoding_config.yaml; or of settings that have no flags, as trtllm-serve's.
Scripts in other files: `run` of a GitHub workflow or of SkyPilot, and their like.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from specops.errors import UsageError
from specops.launch.command_files import containers, helm, kubernetes, shell
from specops.launch.command_files.recognition import command_lines, usual_in
from specops.serving import Command

# Ray Serve


def is_ray_serve(document: dict[str, Any]) -> bool:
    return (
        isinstance(document.get("applications"), list)
        or ("model_loading_config" in document and "kind" not in document)
        or (document.get("kind") == "RayService")
    )


def ray_serve_commands(document: dict[str, Any], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    if document.get("kind") == "RayService":
        text = containers.mapping(document.get("spec")).get("serveConfigV2")
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
        yield from ray_serve_commands(document, where, files)


def _application(application: Any, where: str) -> Iterator[Command]:
    application = containers.mapping(application)
    configs = containers.mapping(application.get("args")).get("llm_configs")
    name = application.get("name")
    for config in configs if isinstance(configs, list) else ():
        if isinstance(config, dict):
            yield from _configured(config, f"{where}, application {name}" if name else where)


def _configured(config: dict[str, Any], where: str) -> Iterator[Command]:
    """Yield the configuration as the command that would serve it: `engine_kwargs` are the engine's flags."""
    loading = containers.mapping(config.get("model_loading_config"))
    model = loading.get("model_source") or loading.get("model_id")
    served = loading.get("model_id")
    engine = str(config.get("llm_engine") or usual_in("Ray")[0]).lower()
    if engine not in command_lines() or not isinstance(config.get("engine_kwargs", {}), dict):
        return
    settings = {
        key: json.dumps(value) if isinstance(value, dict) else value
        for key, value in (config.get("engine_kwargs") or {}).items()
    }
    words = _words(settings)
    target = ["--model", str(model)] if isinstance(model, str) else []
    variables = containers.mapping(containers.mapping(config.get("runtime_env")).get("env_vars"))
    environment = {str(k): str(v) for k, v in variables.items()}
    place = f"{where}, model {served}" if served else where
    yield Command(place, engine, (*target, *words), environment=environment)


# Files of flags or settings


def is_flags_file(document: dict[str, Any]) -> bool:
    return _engine(document) is not None


def flags_file_commands(document: dict[str, Any], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    engine = _engine(document)
    assert engine is not None
    line = command_lines()[engine]
    if line.document is not None and line.document(document):
        text = yaml.safe_dump(document, sort_keys=False, width=1000)
        words = (*line.call.programs[0], "--config", where)
        yield Command(where, engine, words, flags_file=True, files={where: text})
        return
    yield Command(where, engine, tuple(_words(document)), flags_file=True)


def words_of(key: str, value: Any) -> list[str]:
    """A setting as a flag and its words; --no-FLAG of a switch that is off, as vLLM reads it."""
    flag = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag.removeprefix('--')}"]
    if isinstance(value, dict):
        return [flag, json.dumps(value, default=str)]  # YAML has dates
    if isinstance(value, list):
        return [flag, *(str(part) for part in value)]
    return [flag, str(value)]


def _words(document: dict[str, Any]) -> list[str]:
    stated = {key: value for key, value in document.items() if value is not None}
    return [word for key, value in stated.items() for word in words_of(str(key), value)]


def _engine(document: dict[str, Any]) -> str | None:
    """The first engine whose settings it holds, or that has most of these flags. None: it is about something
    else, which may well name a model too."""
    if "kind" in document:
        return None
    for name, line in command_lines().items():
        if line.document is not None and line.document(document):
            return name
    flags = [words_of(str(key), "")[0] for key in document]
    for name, line in command_lines().items():
        if flags and line.flag is not None and 2 * sum(map(line.flag, flags)) > len(flags):
            return name
    return None


# Scripts in other files

SCRIPTS = ("run", "script", "source", "command", "customCommand")
"""Keys of scripts: of GitHub's workflows and SkyPilot, GitLab, Argo, and llm-d's benchmark."""


def holds_scripts(document: dict[str, Any]) -> bool:
    return next(_scripts(document, ()), None) is not None


def script_commands(document: dict[str, Any], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    """A script that cannot be read is about something else."""
    given: dict[str, shell.Value] = dict(containers.variables(document.get("envs") or document.get("env")))
    for keys, script in _scripts(document, ()):
        text = re.sub(r"\$\{\{\s*([\w.-]+)[^}]*\}\}", r"${\1}", script)  # as GitHub writes variables
        with suppress(UsageError):
            yield from list(shell.commands(text, f"{where}, {'.'.join(keys)}", given=given, files=files))


def _scripts(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, str) and keys and keys[-1] in SCRIPTS:
        yield keys, value
    for key, one in value.items() if isinstance(value, dict) else ():
        yield from _scripts(one, (*keys, str(key)))
    for one in value if isinstance(value, list) else ():
        yield from _scripts(one, keys)


# Any document

Document = dict[str, Any]
READERS: tuple[tuple[Callable[[Document], bool], Callable[..., Iterator[Command]]], ...] = (
    (containers.is_compose, containers.compose_commands),
    (kubernetes.is_kserve, kubernetes.kserve_commands),
    (is_ray_serve, ray_serve_commands),
    (helm.is_runtime, helm.runtime_commands),
    (kubernetes.is_one, kubernetes.commands),
    (helm.is_one, helm.commands),
    (is_flags_file, flags_file_commands),
    (holds_scripts, script_commands),
)
"""The first that takes a document reads it: `commands(document, name, files)`, `name` of the file, `files`
the texts that ConfigMaps and here documents beside it hold, by name."""


def commands(text: str, path: Path) -> Iterator[Command]:
    """Yield the commands of YAML documents. Raises UsageError for invalid YAML, and for a rollout file."""
    documents = _loaded(text, str(path))
    for document in documents:
        if {"rollout", "pools"} <= document.keys():
            raise UsageError(
                f"{path} is a rollout file: expected a command or a manifest",
                hint=f"specops launch render {shlex.quote(str(path))}  # renders and lints its pools",
            )
    yield from _read(documents, path.name, {})


def of_text(text: str, where: str, files: Mapping[str, str]) -> Iterator[Command]:
    """Yield the commands of a here document; none if it is about something else."""
    try:
        documents = _loaded(text, where)
    except UsageError:
        return
    yield from _read([one for one in documents if not is_flags_file(one)], where, files)


def _loaded(text: str, where: str) -> list[Document]:
    try:
        documents = [document for document in yaml.safe_load_all(text) if isinstance(document, dict)]
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date
        problem = str(error).splitlines()[0]
        raise UsageError(
            f"could not read {where}: invalid YAML: {problem}; a template must be rendered first",
            hint="helm template RELEASE CHART > rendered.yaml  # then lint that file",
        ) from error
    return documents


def _read(documents: list[Document], where: str, files: Mapping[str, str]) -> Iterator[Command]:
    held = dict(files)
    for document in documents:
        held |= kubernetes.texts_of(document)
    for document in documents:
        reader = next((read for is_one, read in READERS if is_one(document)), None)
        if reader is not None:
            yield from reader(document, where, held)
