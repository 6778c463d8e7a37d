"""A link over gRPC: the address, TLS and token of a server, and a stream that reconnects.

Data sent on a stream that broke is lost. Nothing is sent on the next stream before the owner of open sessions
knows of it: otherwise a round could arrive there ahead of its session.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from specops.edge import verification_pb2 as pb
from specops.edge.link import Branch, Event, LinkDown, LinkUp, Pong, Proposal, ServerLimits, Traffic
from specops.edge.wire import (
    SERVICE,
    ahead_request,
    close_request,
    event_of,
    limits_of,
    mode_request,
    open_request,
    round_request,
)
from specops.engine.request import Sampling
from specops.errors import EndpointError, FileError, SpecopsError, UsageError
from specops.hints import with_options
from specops.net import is_loopback

SYSTEM = "system"  # the certificates that this machine trusts

CONNECT_S = 5.0
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.keepalive_time_ms", 10_000),  # a path that died without a word is noticed
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # without it a ping is waited for a minute, whatever stands above
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new attempt does not wait for an old one's back-off
    ("grpc.enable_retries", 0),
    ("grpc.http2.bdp_probe", 0),  # as at the server
]
FINAL = {
    grpc.StatusCode.UNAUTHENTICATED: (
        "it refuses the token",
        "export SPECOPS_EDGE_TOKEN=…  # a token that the server knows",
    ),
    grpc.StatusCode.PERMISSION_DENIED: (
        "it refuses this client",
        "export SPECOPS_EDGE_TOKEN=…  # a token that may do this",
    ),
    grpc.StatusCode.UNIMPLEMENTED: (
        "expected `specops edge verify-server` of this version of specops there",
        "specops --version",
    ),
}


_SIGNS = (
    ("connection refused", "nothing listens there"),
    ("certificate_verify_failed", "its certificate is not signed by these authorities"),
    ("certificate verify failed", "its certificate is not signed by these authorities"),
    ("hostname verification", "its certificate is for another name"),
    ("handshak", "the TLS handshake failed"),
    ("lookup error", "its name is not known"),
    ("dns resolution failed", "its name is not known"),
    ("timed out", "it does not answer"),
    ("ping timeout", "it does not answer any more"),
    ("reset by peer", "the connection was reset"),
    ("socket closed", "the connection was closed"),
    ("broken pipe", "the connection was closed"),
)


@dataclass(frozen=True)
class Destination:
    """Address, TLS and token of a server."""

    address: str  # HOST:PORT
    token: str | None = None
    ca: str | None = None  # a PEM file, or `system`; None: no TLS
    insecure: bool = False  # the token may go over a network in the clear


def channel_to(destination: Destination) -> grpc.Channel:
    """Raises UsageError for an invalid address, or a token that would travel in the clear; FileError for
    certificates that cannot be read."""
    host, _, port = destination.address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"a server is named HOST:PORT, not {destination.address!r}")
    options = list(OPTIONS)
    local = is_loopback(f"//{destination.address}")
    if local:
        options.append(("grpc.enable_http_proxy", 0))
    if destination.ca is None:
        if destination.token is not None and not local and not destination.insecure:
            raise UsageError(
                f"the token would go to {destination.address} in the clear: expected --tls-ca, or "
                "--insecure where the network is trusted",
                hint=with_options({"--tls-ca": SYSTEM}),
            )
        return grpc.insecure_channel(destination.address, options)
    roots = None
    if destination.ca != SYSTEM:
        try:
            roots = Path(destination.ca).read_bytes()
        except OSError as error:
            raise FileError(
                f"could not read the certificates in {destination.ca}: {error.strerror}"
            ) from error
    return grpc.secure_channel(destination.address, grpc.ssl_channel_credentials(roots), options)


def refused(destination: Destination, error: Any) -> EndpointError:
    if error.code() in FINAL:
        problem, hint = FINAL[error.code()]
        return EndpointError(f"could not use {destination.address}: {problem}", hint)
    return EndpointError(
        f"could not reach {destination.address}: {reason(error)}",
        hint="specops edge verify-server --help  # it runs there, with TLS exactly where --tls-ca is given",
    )


def reason(error: Any) -> str:
    """gRPC's error in short: its details name every address and file that it tried."""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {CONNECT_S:g} s"
    details = " ".join((error.details() or "").split())
    lower = details.lower()
    for sign, words in _SIGNS:
        if sign in lower:
            return words
    return details[:200] or str(error.code().name).lower().replace("_", " ")


# --- the link ---------------------------------------------------------------------------------

_PROBE_S = 5.0
_CLOSE_S = 1.0
_OUTGOING = 4096  # messages that may wait for a server that does not read


class Backoff:
    """Delays between attempts to connect: doubled after each connection that did not last."""

    FIRST_S, LONGEST_S = 0.1, 5.0

    def __init__(self) -> None:
        self._next = self.FIRST_S

    def after(self, lived_s: float) -> float:
        """Seconds until the next attempt, with jitter, so that clients of one server do not come back
        together.

        lived_s: seconds for which the connection lasted; 0 if there was none.
        """
        if lived_s >= self.LONGEST_S:
            self._next = self.FIRST_S
        wait, self._next = self._next, min(2 * self._next, self.LONGEST_S)
        return wait * random.uniform(0.5, 1)


class _Stream:
    """One call of Verify, and the messages that wait to be sent on it."""

    def __init__(self, destination: Destination, traffic: Traffic) -> None:
        self._traffic = traffic
        self._outgoing: queue.Queue[pb.Request | None] = queue.Queue(_OUTGOING)
        self._channel = channel_to(destination)
        self._metadata = (
            () if destination.token is None else (("authorization", f"Bearer {destination.token}"),)
        )
        self._describe = self._channel.unary_unary(
            f"/{SERVICE}/Describe",
            request_serializer=pb.DescribeRequest.SerializeToString,
            response_deserializer=pb.Description.FromString,
        )
        self._call: Any = None

    def describe(self) -> ServerLimits:
        return limits_of(self._describe(pb.DescribeRequest(), timeout=CONNECT_S, metadata=self._metadata))

    def start(self) -> None:
        verify = self._channel.stream_stream(
            f"/{SERVICE}/Verify", request_serializer=self._sent, response_deserializer=self._received
        )
        self._call = verify(self._requests(), metadata=self._metadata)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._call)

    def send(self, request: pb.Request) -> None:
        try:
            self._outgoing.put_nowait(request)
        except queue.Full:  # it does not read: a new stream is all that helps
            self._call.cancel()

    def ask(self, answered: Any) -> None:
        """Call Describe beside the stream; `answered` is called with its future, in gRPC's thread."""
        future = self._describe.future(pb.DescribeRequest(), timeout=_PROBE_S, metadata=self._metadata)
        future.add_done_callback(answered)

    def finish(self) -> None:
        """End the sending side; the server ends the stream once it has read everything."""
        with suppress(queue.Full):
            self._outgoing.put_nowait(None)

    def end(self) -> None:
        if self._call is not None:
            self._call.cancel()
        self._channel.close()
        with suppress(queue.Empty):  # the thread that takes from it is to end as well
            while self._outgoing.full():
                self._outgoing.get_nowait()
        self.finish()

    def _requests(self) -> Iterator[pb.Request]:
        while (request := self._outgoing.get()) is not None:
            yield request

    def _sent(self, request: pb.Request) -> bytes:
        data = request.SerializeToString()
        self._traffic.sent += len(data)
        return data

    def _received(self, data: bytes) -> bytes:
        self._traffic.received += len(data)
        return data


class Connection:
    """A Link. Made by `connect`; everything but its thread is called by one thread."""

    def __init__(
        self, destination: Destination, stream: _Stream, limits: ServerLimits, traffic: Traffic
    ) -> None:
        self.limits = limits
        self.traffic = traffic
        self._destination = destination
        self._stream = stream  # what is sent goes there
        self._fresh = stream  # what is read; a newer one while nobody knows of it
        self._events: queue.SimpleQueue[Event | SpecopsError | _Stream] = queue.SimpleQueue()
        self._final: SpecopsError | None = None
        self._probing = False
        self._closed = threading.Event()
        self._backoff = Backoff()
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)
        self._thread.start()

    def open(
        self,
        session: int,
        key: bytes,
        prompt: list[int],
        sampling: Sampling,
        *,
        acknowledged: int = 0,
        server_drafts: bool = False,
    ) -> None:
        self._stream.send(
            open_request(
                session, key, prompt, sampling, acknowledged=acknowledged, server_drafts=server_drafts
            )
        )

    def propose(self, session: int, number: int, proposal: Proposal) -> None:
        self._stream.send(round_request(session, number, proposal))

    def ahead(self, session: int, number: int, version: int, branches: Sequence[Branch]) -> None:
        self._stream.send(ahead_request(session, number, version, branches))

    def set_mode(self, session: int, *, server_drafts: bool) -> None:
        self._stream.send(mode_request(session, server_drafts=server_drafts))

    def end(self, session: int) -> None:
        self._stream.send(close_request(session))

    def probe(self) -> None:
        if self._probing or self._closed.is_set():
            return
        self._probing = True
        sent = time.perf_counter()

        def answered(future: Any) -> None:
            self._probing = False
            if not future.cancelled() and future.exception() is None:
                self._events.put(Pong(time.perf_counter() - sent))

        with suppress(ValueError):  # the channel was closed a moment ago
            self._stream.ask(answered)
            return
        self._probing = False

    def receive(self, timeout: float | None) -> list[Event]:
        """The events that have arrived. Raises EndpointError if the server has refused this client for
        good, or if the client cannot connect again."""
        came: list[Event] = []
        with suppress(queue.Empty):
            self._take(self._events.get(block=self._final is None, timeout=timeout), came)
            while True:
                self._take(self._events.get_nowait(), came)
        if not came and self._final is not None:
            raise self._final
        return came

    def _take(self, event: Event | SpecopsError | _Stream, came: list[Event]) -> None:
        if isinstance(event, SpecopsError):
            self._final = event
        elif isinstance(event, _Stream):  # connected again
            self._stream = event
            came.append(LinkUp())
        elif isinstance(event, LinkDown) and LinkUp() in came:  # two breaks before anybody looked are one
            came.remove(LinkUp())
        else:
            came.append(event)

    def close(self) -> None:
        """Close the connection. Earlier messages are still sent if the server takes them within a second."""
        self._closed.set()
        self._stream.finish()
        self._thread.join(_CLOSE_S)
        self._fresh.end()

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            began = time.perf_counter()
            why = self._read(self._fresh)
            self._fresh.end()
            if self._closed.is_set():
                return
            self._events.put(LinkDown(why))
            try:
                self._connect_again(self._backoff.after(time.perf_counter() - began))
            except SpecopsError as error:  # certificates may have gone, too: who waits is to hear of it
                self._events.put(error)
                return

    def _read(self, stream: _Stream) -> str:
        """Pass on the messages of a stream until it breaks. Returns the reason."""
        try:
            for response in stream:
                self._events.put(event_of(response, time.perf_counter()))
        except grpc.RpcError as error:
            return reason(error)
        except EndpointError as error:  # nonsense; a new stream may know better
            return error.message
        return "it ended the stream"

    def _connect_again(self, wait_s: float) -> None:
        while not self._closed.wait(wait_s):
            wait_s = self._backoff.after(0.0)
            stream = _Stream(self._destination, self.traffic)
            try:
                limits = stream.describe()
            except grpc.RpcError as error:
                stream.end()
                if error.code() in FINAL:
                    raise refused(self._destination, error) from error
                continue
            except EndpointError:  # of another revision now
                stream.end()
                raise
            if (differs := _difference(self.limits, limits)) is not None:
                stream.end()
                raise EndpointError(
                    f"could not continue with {self._destination.address}: {differs}; its draft must be "
                    "one for "
                    "the model that is served there now",
                    hint=f"{with_options({})}  # with a draft for that model",
                )
            if self._closed.is_set():
                stream.end()
                return
            stream.start()
            self._fresh, self.limits = stream, limits
            self.traffic.reconnects += 1
            self._events.put(stream)
            return


def connect(destination: Destination) -> Connection:
    """Connect to a server, without a retry.

    Raises UsageError for an invalid address, or a token that would travel in the clear; FileError for
    certificates that cannot be read; EndpointError if nobody answers, or not a verification server.
    """
    traffic = Traffic()
    stream = _Stream(destination, traffic)
    try:
        limits = stream.describe()
        stream.start()
    except grpc.RpcError as error:
        stream.end()
        raise refused(destination, error) from error
    except EndpointError:
        stream.end()
        raise
    return Connection(destination, stream, limits, traffic)


def _difference(before: ServerLimits, now: ServerLimits) -> str | None:
    """The difference for which a client's sessions and drafts cannot continue with a server that has come
    back; None if they can. `max_ahead` may differ."""
    names = ("vocabulary", "tokenizer", "eos")
    if before.model != now.model or any(getattr(before, name) != getattr(now, name) for name in names):
        return f"it serves another model now: {now.model}, no longer {before.model}"
    for name in ("max_length", "max_nodes", "max_support"):
        if getattr(now, name) < getattr(before, name):
            return f"its {name} is {getattr(now, name)} now, no longer {getattr(before, name)}"
    return None
