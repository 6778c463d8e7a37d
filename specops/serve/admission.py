"""Admission to a server: the address it takes, the token a client sends, the refusal it may get, and the gate
that closes when the server drains.

This module needs neither aiohttp nor torch, so that a port is taken before anything slow is imported.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from specops.errors import EnvironmentFailure
from specops.hints import with_options

_ERROR_TYPES = {
    429: "rate_limit_error",
    500: "internal_error",
    503: "service_unavailable",
}


def bind(host: str, port: int) -> socket.socket:
    """Take an address, so that a taken one is known before models are loaded. Port 0 takes a free one.

    The socket does not listen yet: until the server is ready, clients are refused and not left waiting.
    Raises EnvironmentFailure if the host is unknown or the port is taken.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise not_listening(host, port, error) from error
    return bound


def not_listening(host: str, port: int, error: OSError) -> EnvironmentFailure:
    """The error to raise if the address cannot be listened on."""
    reason = error.strerror or str(error)
    return EnvironmentFailure(
        f"could not listen on {host} port {port}: {reason}",
        hint=f"{with_options({'--port': '0'})}  # takes a free port",
    )


def bearer_token(authorization: bytes) -> bytes:
    """The token of an Authorization header, `Bearer TOKEN`; empty for any other scheme.

    The scheme may be written in any case (RFC 9110, section 11.1).
    """
    scheme, _, token = authorization.partition(b" ")
    return token.lstrip(b" ") if scheme.lower() == b"bearer" else b""


class Refusal(Exception):
    """The refusal of a request: an HTTP status, and the body that OpenAI clients read."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """OpenAI's {error: {message, type, param, code}}."""
        return {
            "error": {
                "message": self.message,
                "type": _ERROR_TYPES.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }


FAULT = Refusal(500, "a fault in the server; its log has the details")
"""Text for an unforeseen error: its own text may hold what clients should not see."""


class RequestGate:
    """Counts the requests that are being answered; once closed, it refuses further ones."""

    def __init__(self) -> None:
        self.closed = False
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def passage(self) -> Iterator[None]:
        """Hold one request inside while it is answered. Raises Refusal (503) once the gate is closed."""
        if self.closed:
            raise Refusal(503, "the server is shutting down", code="draining", headers={"Retry-After": "5"})
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if self._inside == 0:
                self._empty.set()

    def close(self) -> None:
        self.closed = True

    async def empty(self) -> None:
        """Wait until no request is inside."""
        await self._empty.wait()
