"""The life cycle of a verification server: bind, serve, drain, stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import shlex
import signal
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import uvloop
from aiohttp import web
from grpc import aio

from specops.edge.link import DRAWN_AHEAD, ServerLimits
from specops.edge.messages import Ready
from specops.edge.server_metrics import ServiceMetrics
from specops.edge.service import TokenAccess, VerificationService
from specops.edge.sessions import Limits, Sessions
from specops.edge.wire import SERVICE
from specops.errors import EnvironmentFailure, FileError, ServerError
from specops.serve.metrics import CONTENT_TYPE
from specops.serve.worker_process import Worker

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PARTING = 1.0  # seconds that streams have to send their last messages in

OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second server on the same port is an error
    ("grpc.max_concurrent_streams", 32),  # calls at a time on one connection
    # Either side notices within 15 s that the other is gone. Clients may ask as often as they like: left to
    # itself, gRPC takes a ping every ten seconds for an attack, and ends the connection.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # which holds as well, and is a minute otherwise
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # Left to itself, it measures by pings how much may be under way on a link, about one for every fourth
    # message. But for long prompts, less is under way here than it begins with, 64 KiB.
    ("grpc.http2.bdp_probe", 0),
)


@dataclass(frozen=True)
class Tls:
    certificate: Path  # PEM, the chain
    key: Path  # PEM

    def credentials(self) -> grpc.ServerCredentials:
        """The credentials. Raises FileError if a file is missing or the two do not match."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password="")
            pair = (self.key.read_bytes(), self.certificate.read_bytes())
        except OSError as error:  # SSLError is one
            reason = error.strerror or str(error)
            raise FileError(
                f"could not use the certificate {self.certificate} with the key {self.key}: {reason}: "
                "expected PEM files, and the key of the first certificate without a password",
                hint=f"head -n 1 {shlex.quote(str(self.certificate))} {shlex.quote(str(self.key))}",
            ) from error
        return grpc.ssl_server_credentials([pair])


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a verification server."""

    model: str
    tokenizer: bytes  # its digest
    own_tree: str = "none"
    max_nodes: int = 64
    max_support: int = 64
    max_ahead: int = 32
    sessions: int = 256  # of all clients
    sessions_per_client: int = 64
    resume_s: float = 60.0
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)  # by name; none: everyone may ask
    tls: Tls | None = None
    grace: float = 30.0  # seconds that running sessions have to finish in when the server drains

    def server_limits(self, ready: Ready) -> ServerLimits:
        return ServerLimits(
            model=self.model,
            vocabulary=ready.vocabulary,
            tokenizer=self.tokenizer,
            eos=ready.eos,
            max_length=ready.max_length,
            max_nodes=self.max_nodes,
            max_support=self.max_support,
            max_sessions=self.sessions_per_client,
            resume_s=self.resume_s,
            own_tree=self.own_tree,
            max_ahead=self.max_ahead,
        )

    @property
    def limits(self) -> Limits:
        return Limits(self.sessions, self.sessions_per_client, self.resume_s)


def message_limit(limits: ServerLimits) -> int:
    """Limit on the bytes of a message: those of the longest prompt or the largest trees, and a reserve."""
    tree = 32 + 12 * limits.max_nodes
    drawn = 32 + limits.max_nodes * (10 + 6 * limits.max_support)
    ahead = limits.max_ahead * tree + min(limits.max_ahead, DRAWN_AHEAD) * drawn
    return 4096 + 5 * limits.max_length + max(ahead, tree + drawn)


class VerifyServer:
    """A verification server. Start, drain and stop it in one event loop."""

    def __init__(self, worker: Worker, settings: ServiceSettings) -> None:
        """The server ends the worker when it stops."""
        limits, sessions = settings.server_limits(worker.ready), Sessions(settings.limits)
        self._metrics = ServiceMetrics(settings.model, sessions)
        self.service = VerificationService(
            worker,
            limits,
            sessions,
            self._metrics,
            TokenAccess(settings.tokens),
            max_streams=64 + 2 * settings.sessions,
        )
        self._tls = settings.tls
        self._draining = False
        self._grpc = aio.server(
            options=(*OPTIONS, ("grpc.max_receive_message_length", message_limit(limits)))
        )
        self._grpc.add_generic_rpc_handlers((self.service.handler(), self._health_handler()))
        self._page: web.AppRunner | None = None

    async def start(self, bound: socket.socket) -> int:
        """Serve on the socket `bound` (from serve.run.bind), and return the port."""
        host, port = bound.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._tls is None:
                self._grpc.add_insecure_port(address)
            else:
                self._grpc.add_secure_port(address, self._tls.credentials())
        except RuntimeError as error:  # another process took the port between bind and listen
            raise EnvironmentFailure(f"could not listen on {address}: it is taken") from error
        self.service.start()
        await self._grpc.start()
        return int(port)

    async def start_page(self, bound: socket.socket) -> int:
        """Serve /metrics and /health over HTTP on the socket `bound`, and return the port."""
        page = web.Application()
        page.add_routes([web.get("/metrics", self._metrics_page), web.get("/health", self._health_page)])
        self._page = web.AppRunner(page, access_log=None)
        await self._page.setup()
        await web.SockSite(self._page, bound).start()
        return int(bound.getsockname()[1])

    async def drain(self) -> None:
        """Begin no new sessions, and wait for those on a stream to end."""
        self._draining = True
        await self.service.drain()

    async def stop(self) -> int:
        """Stop at once. Returns the number of sessions that were cut off."""
        self._draining = True
        cut = self.service.end("draining", "this server has ended")
        await self._grpc.stop(_PARTING)
        if self._page is not None:
            await self._page.cleanup()
        await self.service.stop()
        return cut

    # --- health -------------------------------------------------------------------------------

    @property
    def _fault(self) -> str | None:
        if self.service.failure is not None:
            return f"the engine has failed: {self.service.failure}"
        return "shutting down" if self._draining else None

    async def _metrics_page(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    async def _health_page(self, request: web.Request) -> web.Response:
        ailing = self._fault
        return web.Response() if ailing is None else web.Response(status=503, text=f"{ailing}\n")

    def _health_handler(self) -> grpc.GenericRpcHandler:
        """The handler of grpc.health.v1 for probes. Its two messages have one field each, and are encoded
        here."""
        names = (b"", b"\x0a" + bytes([len(SERVICE)]) + SERVICE.encode())  # HealthCheckRequest.service
        serving, not_serving = b"\x08\x01", b"\x08\x02"  # HealthCheckResponse.status

        async def check(request: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
            if request not in names:
                await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service here")
            return serving if self._fault is None else not_serving

        method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(check)
        return grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": method})


@dataclass(frozen=True)
class Ports:
    service: int
    page: int | None


def serve_verification(
    worker: Worker,
    settings: ServiceSettings,
    bound: socket.socket,
    page: socket.socket | None,
    ready: Callable[[Ports], None],
) -> None:
    """Serve until a signal comes. `ready` gets the ports once clients are served.

    SIGTERM and SIGINT drain: no new session begins, and running sessions have `settings.grace` seconds. A
    second signal, or the end of the grace, stops the server at once.

    Raises ServerError if the engine failed.
    """
    uvloop.run(_serve(worker, settings, bound, page, ready))


async def _serve(
    worker: Worker,
    settings: ServiceSettings,
    bound: socket.socket,
    page: socket.socket | None,
    ready: Callable[[Ports], None],
) -> None:
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    events = asyncio.get_running_loop()
    for number in _SIGNALS:
        events.add_signal_handler(number, signals.put_nowait, number)
    server = VerifyServer(worker, settings)
    gc.collect()
    gc.freeze()  # what was imported stays: it is not to be looked through again and again while clients wait
    ready(Ports(await server.start(bound), None if page is None else await server.start_page(page)))
    failed = asyncio.create_task(server.service.failed.wait())
    first = asyncio.create_task(signals.get())
    await asyncio.wait({failed, first}, return_when=asyncio.FIRST_COMPLETED)
    if first.done():
        log.info("%s: no new sessions; running ones may finish", first.result().name)
        drained, again = asyncio.create_task(server.drain()), asyncio.create_task(signals.get())
        waited = {drained, again, failed}
        await asyncio.wait(waited, timeout=settings.grace, return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()
        again.cancel()
    failed.cancel()
    first.cancel()
    if cut := await server.stop():
        log.warning("ended before %d running sessions had finished", cut)
    if server.service.failure is not None:
        raise ServerError(f"the engine failed while it verified: {server.service.failure}")
