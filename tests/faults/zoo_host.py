"""The zoo's servers in a process of their own, so that their work does not delay the client's stamps."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo_knobs import Server, knobs_of

ZOO = Path(__file__).with_name("zoo.py")


@dataclass
class Up:
    """Servers that are up."""

    ports: list[int]
    requests: list[int] = field(default_factory=list)
    """How many requests each has had; known once they are down."""

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}/v1" for port in self.ports]


class Host:
    """The process. It serves one set of servers at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @contextmanager
    def up(self, servers: Sequence[Server]) -> Iterator[Up]:
        found = Up(self._call({"open": [knobs_of(server) for server in servers]})["ports"])
        try:
            yield found
        finally:
            found.requests = self._call({"close": True})["requests"]

    def _call(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the zoo's process has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def hosted() -> Iterator[Host]:
    process = subprocess.Popen(
        [sys.executable, str(ZOO)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        yield Host(process)
        assert process.stdin is not None
        process.stdin.close()  # it ends where its commands do
        process.wait(10)
