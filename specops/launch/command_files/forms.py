"""The registry of forms in which people store commands, and what a file is that holds none."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from specops.errors import UsageError
from specops.launch.command_files import (
    compose,
    dockerfile,
    flags_file,
    helm,
    kaito,
    kserve,
    kubernetes,
    kustomize,
    llama_swap,
    llmkube,
    markdown,
    presets,
    python_source,
    ray_serve,
    scripts,
    shell,
    systemd,
    windows,
)
from specops.launch.command_files.form import LOOK, Document, DocumentForm, FileForm
from specops.launch.command_files.recognition import command_lines, engine_of_image
from specops.serving import Command, Files

FILES: tuple[FileForm, ...] = (
    dockerfile.FORM,
    systemd.CONTAINER,
    systemd.SERVICE,
    presets.FORM,
    python_source.FORM,
    markdown.FORM,
    windows.BATCH_FORM,
    windows.POWERSHELL_FORM,
)
"""Text files, one line a form. The first that takes a file reads it; any other text is a shell's."""

DOCUMENTS: tuple[DocumentForm, ...] = (
    compose.FORM,
    kserve.FORM,
    kaito.FORM,
    llmkube.FORM,
    kustomize.FORM,
    ray_serve.FORM,
    helm.RUNTIME,
    kubernetes.FORM,
    llama_swap.FORM,
    scripts.RECIPE,
    helm.FORM,
    flags_file.FORM,
    scripts.FORM,
)
"""Documents of YAML and JSON, one line a form. The first that takes a document reads it."""

YAML = (".yaml", ".yml", ".json")

OTHERS: tuple[tuple[str, str, str], ...] = (
    # a pattern of the text, what it is, what to give in its place
    (r"\{\{-?\s*[.$]?\w", "a template of Helm", helm.RENDER),
    (r'(?m)^\s*(resource|module|variable|provider)\s+"', "Terraform", helm.RENDER),
    (r"(?m)^#\s*(HELP|TYPE)\s", "metrics of a server", "specops doctor --base-url http://127.0.0.1:8000/v1"),
    (r'(?s)^\s*\{.*"(total_input_tokens|benchmarks|request_throughput)"', "results of a benchmark", LOOK),
    (
        r"(?m)\A(\s*(#.*)?\n)*[A-Za-z_]\w*=",
        "a file of variables",
        "grep -rn env_file . ; grep -rn EnvironmentFile .",
    ),
    (r"(?m)^\[[^\]]+\]\s*$", "settings in sections", LOOK),
)
"""Texts that are no command, and from which a person may expect one."""


def file_commands(path: Path, text: str, files: Files) -> tuple[list[Command], str, str]:
    """Return the commands in a file, what it is, and a runnable command for one without any. `files`: those
    that the text may name.

    Raises UsageError for a file that its form cannot read.
    """
    form: FileForm | DocumentForm | None
    if path.suffix in YAML:
        commands, form = _documents(text, str(path), path.name, files)
    else:
        form = next((form for form in FILES if form.matches(path, text)), None)
        read = form.commands(text, path.name, files) if form else shell.commands(text, path.name, files=files)
        commands = list(read)
    name, instead = _named(form, path, text)
    place = {"path": shlex.quote(str(path)), "stem": shlex.quote(path.stem)}
    return (
        [entry for command in commands for entry in presets.expanded(_pinned(command, text))],
        name,
        instead.format(**place),
    )


def _pinned(command: Command, text: str) -> Command:
    """Return the command with the version that the same file installs, where it has none and runs outside of
    the engine's own image. A file that installs several says nothing."""
    own_image = engine_of_image(command.image) if command.image else command.files.contained
    if command.version or own_image:
        return command
    names = "|".join(map(re.escape, command_lines()[command.engine].packages))
    pin = rf"(?<![\w.-])(?:{names})(?:\[[\w,-]+\])?\s*==\s*(\d+\.[\w.]*\w)"
    pins = set(re.findall(pin, re.sub(r"(?m)(^|\s)#.*$", "", text))) if names else set()
    if len(pins) != 1:
        return command
    return replace(command, version=pins.pop(), version_source="as the file installs it")


def _named(form: FileForm | DocumentForm | None, path: Path, text: str) -> tuple[str, str]:
    """Return what a file is, and what to do with one that holds no command."""
    if form is not None:
        return form.name, form.instead
    for pattern, name, instead in OTHERS:
        if re.search(pattern, text):
            return name, instead
    return ("a document of another kind" if path.suffix in YAML else "a script"), LOOK


def held_commands(name: str, text: str, where: str, files: Files) -> Iterator[Command]:
    """Yield the commands of a text that another file writes or holds, by its name; none where it is about
    something else, or cannot be read."""
    path = Path(name)
    try:
        if path.suffix in YAML:
            yield from _documents(text, where, where, files, flags=False)[0]
            return
        form = next((form for form in FILES if form.matches(path, text)), None)
        if form is not None:
            yield from list(form.commands(text, where, files))
    except UsageError:
        return


def _documents(
    text: str, path: str, where: str, files: Files, *, flags: bool = True
) -> tuple[list[Command], DocumentForm | None]:
    """Return the commands of documents, and the form of the first. `flags`: a file of flags may be one."""
    documents = _loaded(text, path)
    for document in documents:
        if {"rollout", "pools"} <= document.keys():
            raise UsageError(
                f"{path} is a rollout file: expected a command or a manifest",
                hint=f"specops launch render {shlex.quote(path)}  # renders and lints its pools",
            )
    maps: dict[str, dict[str, str]] = {}
    for document in documents:
        maps |= kubernetes.maps_of(document)
    texts: dict[str, str] = {}
    unlike = set()  # two maps have a file of this name: only a mount says which one is meant
    for name, held_text in ((name, text) for entries in maps.values() for name, text in entries.items()):
        unlike |= {name} if texts.setdefault(name, held_text) != held_text else set()
    texts = {name: held_text for name, held_text in texts.items() if name not in unlike}
    held = replace(files.with_texts(texts), maps={**files.maps, **maps})
    commands, first = [], None
    for document in documents:
        form = next((form for form in DOCUMENTS if form.matches(document)), None)
        if form is flags_file.FORM and not flags:
            continue
        first = first or form
        commands += list(form.commands(document, where, held)) if form is not None else []
    return commands, first


def _loaded(text: str, where: str) -> list[Document]:
    try:
        loaded = [json.loads(text)]  # JSON may be indented by tabs, which YAML refuses
    except (ValueError, RecursionError):
        loaded = []
    try:
        loaded = loaded or list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an invalid date
        problem = str(error).splitlines()[0]
        raise UsageError(
            f"could not read {where}: invalid YAML: {problem}; a template must be rendered first",
            hint=helm.RENDER,
        ) from error
    documents = [{kustomize.OPERATIONS: part} if isinstance(part, list) else part for part in loaded]
    return [document for document in documents if isinstance(document, dict)]
