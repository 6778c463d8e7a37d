"""Limits of time and size on each stage of a request. docs/engine.md has them as a table, which a test
compares with this one.

Other limits are where their stage is: the lines and headers of a request (aiohttp), its fields (protocol.py),
and the requests that wait (`--max-queue`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Seconds and bytes; one stage each, in the order of a request's stages."""

    headers_s: float = 30.0
    """From the opening of a connection, or from an answer, to the end of the next request's headers."""

    body_bytes: int = 4 * 2**20
    """Body of a request, unpacked."""

    body_s: float = 30.0
    """From a request's headers to the end of its body."""

    linger_s: float = 1.0
    """From an answer to the end of a body that was not read, which is dropped."""

    queue_s: float = 300.0
    """From a request to its first step."""

    write_s: float = 30.0
    """For a client to read what was written to it, where it does not fit into the socket's buffer."""

    step_s: float = 30.0
    """Between two messages of an engine that has work, or four of its longest steps, if these are longer.
    Then the server is not healthy."""

    idle_answer_s: float = 2.0
    """For an engine without work to answer. Then the server is not healthy."""


DEFAULT = Limits()
