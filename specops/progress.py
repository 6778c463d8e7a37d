"""The interface by which long work reports on itself. The command line draws it; tests and programs stay
silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

PhaseState = Literal["running", "yes", "no", "undecided", "skipped"]


class Progress(Protocol):
    def phases(self, seconds: Mapping[str, float | None]) -> None:
        """The phases of a walk in their order, each with its expected seconds; None: not known."""

    def phase(self, name: str, state: PhaseState, detail: str = "", *, reused: bool = False) -> None:
        """A phase of the walk begins or has ended. `detail`: its reason, in one sentence. `reused`: an
        earlier result stands."""

    def start(self, label: str, total: int) -> None:
        """A new piece of work of `total` units begins; it takes the place of the one before."""

    def advance(self, done: int = 1) -> None:
        """Advance by `done` units of the current piece."""

    def request(self, seconds: float, chunks: int) -> None:
        """A request of the current piece was answered after `seconds`, in `chunks` events of its stream."""

    def note(self, text: str) -> None:
        """Print a line worth keeping: a server is up, a phase was skipped and why."""


class SilentProgress:
    """Reports nothing."""

    def phases(self, seconds: Mapping[str, float | None]) -> None: ...

    def phase(self, name: str, state: PhaseState, detail: str = "", *, reused: bool = False) -> None: ...

    def start(self, label: str, total: int) -> None: ...

    def advance(self, done: int = 1) -> None: ...

    def request(self, seconds: float, chunks: int) -> None: ...

    def note(self, text: str) -> None: ...


class LineProgress(SilentProgress):
    """Gives lines to a function: each piece of work as it begins and at each tenth of it, and the notes."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._label, self._done, self._total = "", 0, 0

    def start(self, label: str, total: int) -> None:
        self._label, self._done, self._total = label, 0, total
        self._report(label)

    def advance(self, done: int = 1) -> None:
        before, self._done = self._done, self._done + done
        if self._total and 10 * before // self._total != 10 * self._done // self._total:
            self._report(f"{self._label}: {self._done}/{self._total}")

    def note(self, text: str) -> None:
        self._report(text)
