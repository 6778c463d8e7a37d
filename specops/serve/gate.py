"""Lets requests in, and when the server drains no more of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from specops.serve.refusal import Refusal


class Gate:
    def __init__(self) -> None:
        self.closed = False
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def passage(self) -> Iterator[None]:
        """One request, for as long as it is being answered. Raises Refusal (503) once the gate is closed."""
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
