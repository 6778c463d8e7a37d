"""Files of a server: of flags, as `vllm serve --config` reads them, such as the playbook's
speculative_decoding_config.yaml; or of settings that have no flags, as trtllm-serve's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from specops.launch.command_files.form import LOOK, Document, DocumentForm
from specops.launch.command_files.recognition import command_lines
from specops.serving import Command, Files, setting_words


def matches(document: Document) -> bool:
    return engine_of(document) is not None


def commands(document: Document, where: str, files: Files) -> Iterator[Command]:
    engine = engine_of(document)
    assert engine is not None
    line = command_lines()[engine]
    if line.document is not None and line.document(document):
        text = yaml.safe_dump(document, sort_keys=False, width=1000)
        words = (*line.call.programs[0], "--config", where)
        yield Command(where, engine, words, flags_file=True, files=files.with_texts({where: text}))
        return
    yield Command(where, engine, tuple(words_of_settings(document)), flags_file=True, files=files)


def words_of_settings(document: Mapping[str, Any]) -> list[str]:
    stated = {key: value for key, value in document.items() if value is not None}
    return [word for key, value in stated.items() for word in setting_words(str(key), value)]


def engine_of(document: Document) -> str | None:
    """The first engine whose settings it holds, or that has most of these flags. None: it is about something
    else, which may well name a model too."""
    if "kind" in document:
        return None
    lines = command_lines()
    for name, line in lines.items():
        if line.document is not None and line.document(document):
            return name
    flags = [setting_words(str(key), "")[0] for key in document]
    counts = {name: sum(map(line.flag, flags)) for name, line in lines.items() if line.flag is not None}
    name = max(counts, key=lambda name: counts[name])
    return name if 2 * counts[name] > len(flags) else None


FORM = DocumentForm("a file of flags", matches, commands, LOOK)
