"""How long work reports on itself. The command line draws it; tests and programs stay silent."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    def start(self, label: str, total: int) -> None:
        """A new piece of work of `total` units begins; it takes the place of the one before."""

    def advance(self, done: int = 1) -> None:
        """`done` more units of the current piece are finished."""

    def note(self, text: str) -> None:
        """One line worth keeping: a server is up, a phase was skipped and why."""


class Silent:
    """Reports nothing."""

    def start(self, label: str, total: int) -> None: ...

    def advance(self, done: int = 1) -> None: ...

    def note(self, text: str) -> None: ...
