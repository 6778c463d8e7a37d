"""A form in which people keep commands: how it is recognised, what reads it, what to give in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.serving import Command, Files

Document = dict[str, Any]
"""A document of YAML or JSON."""


@dataclass(frozen=True)
class FileForm:
    """A kind of text file. `commands(text, where, files)` yields what it starts."""

    name: str
    """With its article, for a sentence: a systemd unit."""

    matches: Callable[[Path, str], bool]
    commands: Callable[[str, str, Files], Iterator[Command]]
    instead: str
    """A runnable command for a file of this form that starts no engine; {path} stands for it."""


@dataclass(frozen=True)
class DocumentForm:
    """A kind of document in YAML or JSON. `commands(document, where, files)` yields what it starts."""

    name: str
    matches: Callable[[Document], bool]
    commands: Callable[[Document, str, Files], Iterator[Command]]
    instead: str


LOOK = "head {path}"
"""What to do where nothing better is known."""
RENDERED = "kubectl get deployment NAME -o yaml > rendered.yaml  # then lint that file"
