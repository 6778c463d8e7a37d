"""A real server in a thread of the test, and the plainest client there is."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from specops.serve.admission import bind
from specops.serve.engine_worker import in_thread
from specops.serve.server import Server, ServeSettings

DEADLINE = 30.0  # seconds; a condition that a correct server meets at once


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, and fail by its name when it does not come true."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.002)


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> dict[str, Any]:
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


class Live:
    """Serves `engine` on a free port until `close`."""

    def __init__(self, engine: Any, **settings: Any) -> None:
        self.engine = engine
        defaults: dict[str, Any] = {"model": "tiny", "capacity": 64, "speculative": True}
        self._events = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._events.run_forever, name="live server")
        self._thread.start()
        self.server = self.call(self._make(engine, ServeSettings(**{**defaults, **settings})))
        self._bound = bind("127.0.0.1", 0)
        self.url = self.call(self.server.start(self._bound))

    async def _make(self, engine: Any, settings: ServeSettings) -> Server:
        return Server([in_thread(engine)], engine.tokenizer, settings)

    def call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._events).result(DEADLINE)

    def spawn(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._events)

    def close(self) -> None:
        self.call(self.server.stop())
        self._events.call_soon_threadsafe(self._events.stop)
        self._thread.join(DEADLINE)
        self._events.close()
        self._bound.close()

    def open(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> HTTPResponse:
        """The raw response, to be read and closed by the caller. `body`: JSON, or bytes as they are."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers or {})
        response: HTTPResponse = urllib.request.urlopen(request, timeout=DEADLINE)
        return response

    @contextmanager
    def asking(self, path: str, body: Any) -> Iterator[None]:
        """A client that has sent its request, reads nothing, and leaves at the end of the block."""
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=DEADLINE)
        try:
            connection.request("POST", path, json.dumps(body))
            yield
        finally:
            connection.close()

    def ask(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        try:
            response = self.open(path, body, headers)
        except urllib.error.HTTPError as refused:
            with refused:
                return Reply(refused.code, dict(refused.headers), refused.read().decode())
        with response:
            return Reply(response.status, dict(response.headers), response.read().decode())

    def complete(self, prompt: Any, **fields: Any) -> Any:
        reply = self.ask("/v1/completions", {"prompt": prompt, **fields})
        assert reply.status == 200, reply.text
        return reply.json

    def stream(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """All chunks of a streamed answer, which must end with [DONE]."""
        with self.open(path, {**body, "stream": True}) as response:
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            events = list(events_of(response))
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]

    def metrics(self) -> dict[str, float]:
        """Every series of /metrics and its value."""
        lines = self.ask("/metrics").text.splitlines()
        return {
            name: float(value)
            for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        }


def events_of(response: HTTPResponse) -> Iterator[str]:
    """The data of each server-sent event as it arrives."""
    for line in response:
        if line.strip():
            assert line.startswith(b"data: "), line
            yield line.removeprefix(b"data: ").decode().strip()
