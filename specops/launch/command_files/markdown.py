"""Markdown: commands and manifests in the code blocks of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from specops.errors import UsageError
from specops.launch.command_files import shell
from specops.launch.command_files.form import LOOK, FileForm
from specops.launch.command_files.recognition import mentions_engine
from specops.serving import Command, Files

BLOCK = re.compile(
    r"(?ms)^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+-]*)[^\n]*\n(?P<text>.*?)^ {0,3}(?P=fence)"
)
SHELLS = ("", "sh", "bash", "shell", "console", "zsh", "shell-session", "text")
DOCUMENTS = {
    "yaml": ".yaml",
    "yml": ".yaml",
    "json": ".json",
    "dockerfile": "",
    "ini": ".ini",
    "python": ".py",
}
PROMPT = re.compile(r"(?m)^\s*[$#>] (?=\S)")


def commands(text: str, where: str, files: Files) -> Iterator[Command]:
    """Yield the commands of blocks that call an engine. One that cannot be read is about something else."""
    from specops.launch.command_files import forms

    for block in BLOCK.finditer(text):
        language, content = block["language"].lower(), block["text"]
        if not mentions_engine(content):
            continue
        place = f"{where}, line {text.count(chr(10), 0, block.start()) + 2}"
        if language in DOCUMENTS:
            name = f"{language or 'block'}{DOCUMENTS[language]}"
            held = forms.held_commands(name, content, place, files)
        elif language in SHELLS:
            held = shell.commands(PROMPT.sub("", content), place, files=files)
        else:
            continue
        with suppress(UsageError):
            yield from [replace(command, where=place) for command in held]


FORM = FileForm(
    "a page of Markdown",
    lambda path, text: path.suffix.lower() in (".md", ".markdown"),
    commands,
    LOOK,
)
