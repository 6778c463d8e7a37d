"""What is measured, and how it is asked: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

EndpointKind = Literal["chat", "completions"]

MAX_IN_FLIGHT = 1000
"""Connections of the openai client's pool: one request more would wait inside the client, unseen."""

NO_KEY = "none"
"""What is sent where there is no API key, as servers without keys expect."""


@dataclass(frozen=True)
class Endpoint:
    base_url: str
    model: str
    kind: EndpointKind = "chat"
    api_key: str = NO_KEY
    connect_s: float = 10.0
    timeout_s: float = 120.0
    """From the sending of a request to the end of its answer."""

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
    miscount: str | None = None
    """Where its count of tokens contradicts the limit that a request set, the sentence that says so."""

    def stream_options(self) -> dict[str, bool]:
        wanted = {"include_usage": self.usage, "continuous_usage_stats": self.continuous_usage}
        return {option: True for option, on in wanted.items() if on}

    def described(self, *, retokenised: bool) -> dict[str, Any]:
        """How this endpoint's tokens are counted, kept with the figures that depend on it."""
        fallback = "retokenised" if retokenised else "unknown"
        return {
            "usage": self.usage,
            "continuous_usage": self.continuous_usage,
            "tokens_from": "usage" if self.usage else fallback,
        } | ({"miscount": self.miscount} if self.miscount else {})


def checked_base_url(url: str) -> str:
    """`url` without a trailing slash; ValueError for one that is no base URL, or that holds secrets."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http or https address, such as http://127.0.0.1:8000/v1")
    if parts.username or parts.password:
        raise ValueError("must not hold credentials: the API key comes from the environment")
    if parts.query or parts.fragment:  # paths are appended to it; and a query may hold a key
        raise ValueError("must end with its path: no query and no fragment")
    return url.rstrip("/")
