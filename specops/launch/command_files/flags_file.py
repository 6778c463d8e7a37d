"""YAML files of a server: of flags, as `vllm serve --config` reads them, such as the playbook's
speculative_decoding_config.yaml; or of settings that have no flags, as trtllm-serve's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from specops.launch.command_files.recognition import command_lines
from specops.serving import Command


def is_one(document: dict[str, Any]) -> bool:
    return _engine(document) is not None


def commands(document: dict[str, Any], where: str, files: Mapping[str, str]) -> Iterator[Command]:
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
    return [flag] if value is None else [flag, str(value)]


def _words(document: dict[str, Any]) -> list[str]:
    return [word for key, value in document.items() for word in words_of(str(key), value)]


def _engine(document: dict[str, Any]) -> str | None:
    """The first engine whose settings it holds, or that has most of these flags. None: it is about something
    else, which may well name a model too."""
    if "kind" in document:
        return None
    for name, line in command_lines().items():
        if line.document is not None and line.document(document):
            return name
    flags = [words_of(str(key), None)[0] for key in document]
    for name, line in command_lines().items():
        if flags and line.flag is not None and 2 * sum(map(line.flag, flags)) > len(flags):
            return name
    return None
