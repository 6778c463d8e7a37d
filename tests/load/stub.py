"""A scripted OpenAI endpoint on loopback: a real aiohttp server in a thread, told what to answer.

    python tests/load/stub.py PORT GAP_S

is one in a process of its own, as a pool's command: it sends its four chunks GAP_S seconds apart.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Body = dict[str, Any]


@dataclass
class Reply:
    """What one request gets: pieces of bytes, written one by one."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"
    first_s: float = 0.0
    gap_s: float = 0.0
    hang: bool = False
    """After the pieces the stream stays open and silent."""

    cut: bool = False
    """After the pieces the connection is torn down."""


def event(payload: Any) -> bytes:
    return f"data: {payload if isinstance(payload, str) else json.dumps(payload)}\n\n".encode()


DONE = event("[DONE]")


def stream(
    body: Body,
    chunks: Sequence[tuple[str, int]],
    *,
    usage: bool = True,
    role: bool = True,
    finish: str | None = "length",
    done: bool = True,
) -> list[bytes]:
    """Events of an answer whose chunks are (text, tokens), with the usage that `body` asks for."""
    chat = "messages" in body
    options = body.get("stream_options") or {}
    events, total = [], 0

    def add(text: str, finish_reason: str | None = None, **delta: str) -> None:
        inner = {"delta": {"content": text} | delta} if chat else {"text": text}
        payload: Body = {"choices": [{"index": 0, "finish_reason": finish_reason} | inner]}
        if usage and options.get("continuous_usage_stats"):
            payload["usage"] = {"completion_tokens": total}
        events.append(event(payload))

    if chat and role:
        add("", role="assistant")
    for number, (text, tokens) in enumerate(chunks, start=1):
        total += tokens
        add(text, finish if number == len(chunks) else None)
    if usage and options.get("include_usage"):
        events.append(event({"choices": [], "usage": {"completion_tokens": total}}))
    return [*events, DONE] if done else events


def fault(status: int, message: str, **headers: str) -> Reply:
    body = json.dumps({"error": {"message": message}}).encode()
    return Reply([body], status, {k.replace("_", "-"): v for k, v in headers.items()}, "application/json")


CHUNKS = [("Once", 1), (" upon a", 2), (" time", 3), (".", 2)]


class Stub:
    """`answer` decides each reply; set it before requests come. What came is in `requests`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answer: Callable[[Body], Reply] = lambda body: Reply(stream(body, CHUNKS))
        self.metrics: Callable[[], str | None] = lambda: None
        self.page: tuple[str, str] | None = None
        """Content type and text that GET /v1/models and /version answer with."""
        self.tls = tls
        self.admits: Callable[[Mapping[str, str]], bool] = lambda headers: True
        """Whether a request with these headers is answered; 401 otherwise, with the headers in its text."""
        self.visitors: list[tuple[str, Mapping[str, str]]] = []
        """Path and headers of every request, of whatever kind."""
        self.requests: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.cancelled = 0
        self.hold_until = 0
        """No request but the first is answered before so many were in flight at once."""

    @property
    def base_url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.hold_until and self.in_flight >= self.hold_until:
                self._together.set()
            if self.hold_until and len(self.requests) > 1:
                await asyncio.wait_for(self._together.wait(), 10)
            return await self._send(request, self.answer(body))
        except (asyncio.CancelledError, ConnectionError):
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1

    async def _send(self, request: web.Request, reply: Reply) -> web.StreamResponse:
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        response.content_type = reply.content_type
        await response.prepare(request)
        for number, piece in enumerate(reply.pieces):
            await asyncio.sleep(reply.gap_s if number else reply.first_s)
            await response.write(piece)
        if reply.hang:
            await asyncio.sleep(3600)
        if reply.cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    async def _models(self, _: web.Request) -> web.Response:
        if self.page:
            return web.Response(content_type=self.page[0], text=self.page[1])
        return web.json_response({"object": "list", "data": [{"id": "stub", "object": "model"}]})

    async def _metrics(self, _: web.Request) -> web.Response:
        text = self.metrics()
        return web.Response(text=text) if text is not None else web.Response(status=404)

    async def _version(self, _: web.Request) -> web.Response:
        if self.page:
            return web.Response(content_type=self.page[0], text=self.page[1])
        return web.json_response({"version": "stub-1"})

    async def _serve(self, ready: threading.Event, port: int = 0) -> None:
        @web.middleware
        async def door(request: web.Request, handler: Any) -> web.StreamResponse:
            self.visitors.append((request.path, request.headers.copy()))
            if not self.admits(request.headers):
                text = json.dumps({"error": {"message": f"go away: {dict(request.headers)}"}})
                return web.Response(status=401, content_type="application/json", text=text)
            answer: web.StreamResponse = await handler(request)
            return answer

        app = web.Application(middlewares=[door])
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/health", self._version)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/version", self._version)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=self.tls)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._together = asyncio.Event()
        ready.set()
        await self._stop.wait()
        await runner.cleanup()


@contextmanager
def running_stub(tls: ssl.SSLContext | None = None) -> Iterator[Stub]:
    stub = Stub(tls)
    ready = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(stub._serve(ready)), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield stub
    finally:
        stub._loop.call_soon_threadsafe(stub._stop.set)
        thread.join(10)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


if __name__ == "__main__":
    sleeper = Stub()
    sleeper.answer = lambda body: Reply(stream(body, CHUNKS), gap_s=float(sys.argv[2]))
    asyncio.run(sleeper._serve(threading.Event(), int(sys.argv[1])))
