"""What is measured, and how it is asked: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EndpointKind = Literal["chat", "completions"]

MAX_IN_FLIGHT = 1000
"""Connections of the openai client's pool: one request more would wait inside the client, unseen."""


@dataclass(frozen=True)
class Endpoint:
    base_url: str
    model: str
    kind: EndpointKind = "chat"
    api_key: str = "none"
    connect_s: float = 10.0
    timeout_s: float = 120.0
    """For the whole of one attempt."""

    stall_s: float = 30.0
    """Between two reads once the answer has begun."""

    retries: int = 2
    """After 429, 503 and a refused connection, and only before any byte of an answer."""


@dataclass(frozen=True)
class Decoding:
    """How every prompt of a run is sampled."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    ignore_eos: bool = False
    max_tokens: int | None = None
    """In place of what each prompt asks for."""


@dataclass(frozen=True)
class Capabilities:
    """Which usage reports the endpoint sends when asked. What it refuses is not asked for again."""

    usage: bool = False
    continuous_usage: bool = False

    def stream_options(self) -> dict[str, bool]:
        wanted = {"include_usage": self.usage, "continuous_usage_stats": self.continuous_usage}
        return {option: True for option, on in wanted.items() if on}
