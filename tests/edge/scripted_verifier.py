"""A verify-server over real gRPC whose every answer is the test's."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc

from specops.edge import verification_pb2 as pb
from specops.edge.wire import SERVICE

DEADLINE = 30.0  # seconds; what a correct link does at once


def description(**changes: Any) -> pb.Description:
    said: dict[str, Any] = {
        "revision": 1,
        "model": "target",
        "vocabulary": 300,
        "tokenizer": b"t" * 32,
        "eos": [0],
        "max_length": 512,
        "max_nodes": 64,
        "max_support": 32,
        "max_sessions": 8,
        "resume_s": 10.0,
        "own_tree": "none",
    }
    return pb.Description(**{**said, **changes})


class ScriptedStream:
    """One call of Verify: what came in by it, and what the test says to it."""

    def __init__(self) -> None:
        self.came: queue.SimpleQueue[pb.Request] = queue.SimpleQueue()
        self._says: queue.SimpleQueue[pb.Response | None] = queue.SimpleQueue()

    def next(self) -> pb.Request:
        return self.came.get(timeout=DEADLINE)

    def say(self, response: pb.Response) -> None:
        self._says.put(response)

    def end(self) -> None:
        self._says.put(None)

    def read(self, requests: Iterator[pb.Request]) -> None:
        with suppress(Exception):  # gRPC raises a bare one where the client has gone
            for request in requests:
                self.came.put(request)
        self._says.put(None)

    def __iter__(self) -> Iterator[pb.Response]:
        while (response := self._says.get()) is not None:
            yield response


@dataclass
class ScriptedVerifier:
    description: pb.Description = field(default_factory=description)
    token: str | None = None
    reads: bool = True
    credentials: grpc.ServerCredentials | None = None
    serves: bool = True  # the service at all
    streams: queue.SimpleQueue[ScriptedStream] = field(default_factory=queue.SimpleQueue)
    port: int = 0

    def start(self) -> None:
        options = [
            ("grpc.so_reuseport", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", 1),
            ("grpc.http2.max_ping_strikes", 0),
        ]
        self._server = grpc.server(ThreadPoolExecutor(8), options=options)
        if self.serves:
            self._server.add_generic_rpc_handlers((self._handlers(),))
        address = f"127.0.0.1:{self.port}"
        if self.credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, self.credentials)
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def stream(self) -> ScriptedStream:
        """The next one that a client opens."""
        return self.streams.get(timeout=DEADLINE)

    def _handlers(self) -> Any:
        def describe(_request: pb.DescribeRequest, context: grpc.ServicerContext) -> pb.Description:
            self._authorise(context)
            return self.description

        def verify(requests: Iterator[pb.Request], context: grpc.ServicerContext) -> Iterator[pb.Response]:
            self._authorise(context)
            stream = ScriptedStream()
            self.streams.put(stream)
            context.add_callback(stream.end)
            if self.reads:
                threading.Thread(target=stream.read, args=(requests,), daemon=True).start()
            yield from stream

        methods: dict[str, Callable[..., Any]] = {
            "Describe": grpc.unary_unary_rpc_method_handler(
                describe, pb.DescribeRequest.FromString, pb.Description.SerializeToString
            ),
            "Verify": grpc.stream_stream_rpc_method_handler(
                verify, pb.Request.FromString, pb.Response.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _authorise(self, context: grpc.ServicerContext) -> None:
        given = dict(context.invocation_metadata()).get("authorization")
        if self.token is not None and given != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no such token")


@contextmanager
def scripted(**settings: Any) -> Iterator[ScriptedVerifier]:
    server = ScriptedVerifier(**settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()
