"""Where a server that is being started will listen: in a line of its log, or known beforehand."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Address(Protocol):
    def found(self, log: Path) -> str | None:
        """The server's root, such as http://127.0.0.1:8000; None while the log does not say it."""


@dataclass(frozen=True)
class Announced:
    """The first group of `pattern`, matched in the log line by line."""

    pattern: str

    def found(self, log: Path) -> str | None:
        said = re.search(self.pattern, log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        return said[1] if said else None


@dataclass(frozen=True)
class Known:
    root: str

    @classmethod
    def on(cls, port: int) -> Known:
        return cls(f"http://127.0.0.1:{port}")

    def found(self, log: Path) -> str | None:
        return self.root


def free_port() -> int:
    # Free now; another program may take it before the server does, which then says so in its log and ends.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
