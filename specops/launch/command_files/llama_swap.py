"""llama-swap's configuration: models.NAME.cmd is a command, with macros of the file and of the model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from specops.launch.command_files import containers, shell
from specops.launch.command_files.form import LOOK, Document, DocumentForm
from specops.serving import Command, Files

NESTED = 10
"""Levels of macros within macros."""


def matches(document: Document) -> bool:
    models = document.get("models")
    return isinstance(models, dict) and any(
        isinstance(model, dict) and isinstance(model.get("cmd"), str) for model in models.values()
    )


def commands(document: Document, where: str, files: Files) -> Iterator[Command]:
    shared = containers.mapping(document.get("macros"))
    for name, model in document["models"].items():
        if not isinstance(model, dict) or not isinstance(model.get("cmd"), str):
            continue
        macros = {**shared, **containers.mapping(model.get("macros")), "MODEL_ID": name}
        text = model["cmd"]
        for _ in range(NESTED):
            text = re.sub(r"\$\{([\w-]+)\}", lambda m: str(macros.get(m[1], m[0])), text)  # noqa: B023
        # A line of its own goes on in the next; a comment line is left out.
        lines = [line for line in text.strip().splitlines() if not line.lstrip().startswith("#")]
        joined = " ".join(line.rstrip().removesuffix("\\") for line in lines)
        yield from containers.relocated(
            shell.commands(joined, where, environment=containers.variables(model.get("env")), files=files),
            f"{where}, model {name}",
        )


FORM = DocumentForm("a configuration of llama-swap", matches, commands, LOOK)
