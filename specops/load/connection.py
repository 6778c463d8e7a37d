"""Connections to one server, made for exact instants: nothing but a stamp happens when bytes arrive.

The clock of a request starts when its last byte has gone to the kernel, and a read is stamped with the
instant at which the kernel had its bytes. So neither a busy event loop nor a busy machine is measured as the
server's time. Where the kernel gives no instants (only Linux does), a read is stamped when it is made.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import struct
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from specops.load.http1 import Response
from specops.load.http1 import request as http_request
from specops.load.request_times import Exchange
from specops.net import is_loopback

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

# A server closes what was idle for some seconds, uvicorn after 5. A request that leaves on such a connection
# at that moment is lost, and has to be sent again; we let go of it well before.
_IDLE_S = 2.0

_UNINTERRUPTED_S = 50e-6
_CLOCK_ERROR_S = 1e-3

_READ_SIZE = 64 * 1024
_TIMESTAMPNS = 35  # SO_TIMESTAMPNS of Linux, which the socket module does not name
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY = socket.CMSG_SPACE(_TIMESPEC.size)


class Unreachable(ConnectionError):
    """No connection came about; its `__cause__` says why."""


class ConnectionLost(ConnectionError):
    """The connection ended before the response did."""


class Expired(TimeoutError):
    """The response took too long; `stalled` where it had begun and then nothing came."""

    def __init__(self, message: str, *, stalled: bool) -> None:
        super().__init__(message)
        self.stalled = stalled


class StampedSocket(socket.socket):
    """A stream socket that keeps the instants of its last send and read, of `time.perf_counter`."""

    sent = 0.0
    """When the bytes of the last send went to the kernel."""

    arrived = 0.0
    """When the bytes of the last read had arrived in the kernel."""

    delay = 0.0
    """How long the bytes of the last read lay in the kernel: the delay of this program."""

    def stamp(self) -> None:
        """Ask the kernel for instants of arrival from here on."""
        if sys.platform == "linux":
            self.setsockopt(socket.SOL_SOCKET, _TIMESTAMPNS, 1)

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        # before the call: what wakes up with the data often runs before this program goes on
        self.sent = time.perf_counter()
        return super().send(data, flags)

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        count, ancillary, _, _ = self.recvmsg_into([buffer], _ANCILLARY, flags)
        now = arrived = time.perf_counter()
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _TIMESTAMPNS):
                seconds, nanoseconds = _TIMESPEC.unpack(data)
                arrived = _instant(seconds + nanoseconds * 1e-9)
        # the kernel's clock may have been set in between, and then its instant says nothing
        earliest = max(self.sent, self.arrived)
        if not earliest - _CLOCK_ERROR_S < arrived <= now:
            arrived = now
        self.arrived = max(arrived, earliest + 1e-6)  # two reads of one packet have one instant
        self.delay = now - arrived
        return count


def _instant(wall: float) -> float:
    """Return what `time.perf_counter` said when the wall clock said `wall`, a moment ago.

    The two clocks are read again where this program was interrupted between them.
    """
    for _ in range(3):
        before = time.perf_counter()
        ago = time.time() - wall
        if time.perf_counter() - before < _UNINTERRUPTED_S:
            break
    return before - ago


_ENDS = (b"data: [DONE]", b"data:[DONE]")
"""The end of a stream. Within an answer's text, more follows."""

_LINGER_S = 0.25
"""Seconds for the end of the response after the end of its stream."""


class Connection(asyncio.BufferedProtocol):
    """One connection, which carries one request after another."""

    def __init__(self, sock: StampedSocket, buffer: memoryview) -> None:
        self._socket = sock
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._response = Response()
        self._over: asyncio.Future[None] | None = None
        self.carried = 0
        """Requests that were begun on it."""

        self.number = 0
        """Its place in the order in which the connections to its server were opened, from 1."""

        self.idle_since = 0.0

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def carry(self, data: bytes, exchange: Exchange, *, timeout_s: float, stall_s: float) -> Response:
        """Send a request and take in its response, whose instants and bytes go to `exchange`.

        Raises ConnectionLost, Expired and BadResponse; then, and where it is cancelled, the connection is
        closed.
        """
        assert self._transport is not None
        if not self.open:
            raise ConnectionLost("the server had closed the connection")
        loop = asyncio.get_running_loop()
        self.carried += 1
        self._exchange, self._response, self._over = exchange, Response(), loop.create_future()
        self._socket.sent = exchange.sent = time.perf_counter()
        ends_at = exchange.sent + timeout_s
        timer: asyncio.TimerHandle

        def look() -> None:
            """The timer is not set anew at every read, which would cost more than the read."""
            nonlocal timer
            now = time.perf_counter()
            silent_until = exchange.reads[-1][0] + stall_s if exchange.reads else ends_at
            if now >= silent_until < ends_at:
                stalled = f"nothing came for {stall_s:g} s in the middle of the answer"
                self._finish(Expired(stalled, stalled=True))
            elif now >= ends_at:
                self._finish(Expired("the answer was not whole in time", stalled=False))
            else:
                timer = loop.call_later(min(ends_at, silent_until, now + stall_s) - now, look)

        timer = loop.call_later(0, look)
        try:
            self._transport.write(data)
            await self._over
        except BaseException:
            self._response.reusable = False
            exchange.ended = time.perf_counter()
            raise
        else:
            exchange.ended = self._socket.arrived
            return self._response
        finally:
            timer.cancel()
            if not exchange.began:
                exchange.sent = self._socket.sent
            self._exchange = None
            if not self._response.reusable:
                self.close()

    def _finish(self, error: Exception | None) -> None:
        if self._over is None or self._over.done():
            return
        if error is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(error)

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        exchange = self._exchange
        if exchange is None or self._response.done:  # bytes that nobody requested
            self.close()
            return
        if not exchange.began:
            exchange.began = True
            exchange.sent = self._socket.sent
        try:
            body = self._response.feed(bytes(self._buffer[:nbytes]))
        except Exception as error:  # raised here, it would end in asyncio's log and the request in a time-out
            self._finish(error)
            return
        if body:
            exchange.reads.append((self._socket.arrived, body))
            exchange.delays.append(self._socket.delay)
        if self._response.done:
            self._finish(None)
        elif body.rstrip().endswith(_ENDS):
            asyncio.get_running_loop().call_later(_LINGER_S, self._leave, exchange, len(exchange.reads))

    def _leave(self, exchange: Exchange, reads: int) -> None:
        """End a request whose stream has ended, although the server holds the response open: users have their
        answer. The connection is closed, since the response is not whole."""
        if self._exchange is exchange and len(exchange.reads) == reads:
            self._finish(None)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._response.close()
        lost = ConnectionLost(str(exc) if exc else "the server closed the connection")
        self._finish(None if self._response.done else lost)


@dataclass(frozen=True)
class _Route:
    """The route of a connection to `url`, by way of a proxy where the environment names one."""

    url: SplitResult
    proxy: SplitResult | None

    @classmethod
    def to(cls, url: str) -> _Route:
        parts = urlsplit(url)
        # a proxy of the environment is for other machines: it cannot reach this loopback
        if is_loopback(url) or proxy_bypass(parts.hostname or ""):
            return cls(parts, None)
        named = getproxies().get(parts.scheme) or getproxies().get("all")
        if not named:
            return cls(parts, None)
        return cls(parts, urlsplit(named if "://" in named else f"http://{named}"))

    @property
    def host(self) -> str:
        """The Host field: with the port where it is not the scheme's own."""
        return self.url.netloc.rpartition("@")[2]

    def address(self) -> tuple[str, int]:
        destination = self.proxy or self.url
        assert destination.hostname
        return destination.hostname, destination.port or (443 if destination.scheme == "https" else 80)

    def target(self, path: str) -> str:
        """The request's target: a proxy of plain requests takes whole addresses."""
        forwarded = self.proxy is not None and self.url.scheme == "http"
        return f"http://{self.host}{self.url.path}{path}" if forwarded else f"{self.url.path}{path}"

    def credentials(self) -> dict[str, str]:
        if self.proxy is None or self.proxy.username is None:
            return {}
        pair = f"{unquote(self.proxy.username)}:{unquote(self.proxy.password or '')}"
        return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


class Connections:
    """The connections to one base URL. An idle one is used again where the server keeps it open."""

    def __init__(
        self, base_url: str, headers: dict[str, str], connect_s: float, tls: ssl.SSLContext | None = None
    ) -> None:
        """`tls`: how a server at an https address is verified; None: by the system's authorities."""
        self._route = _Route.to(base_url)
        forwarded = self._route.credentials() if self._route.url.scheme == "http" else {}
        self._headers = headers | forwarded
        self._connect_s = connect_s
        self._tls = (tls or ssl.create_default_context()) if self._route.url.scheme == "https" else None
        self._idle: list[Connection] = []
        self._opened = 0
        self._addresses: list[tuple[int, Any]] = []
        self._buffer = memoryview(bytearray(_READ_SIZE))  # one for all: a read is copied out at once
        self.reuse = True
        """False where the server closes connections that it said it would keep."""

    def post(self, path: str, body: bytes) -> bytes:
        return http_request("POST", self._route.target(path), self._route.host, self._headers, body)

    async def take(self) -> Connection:
        """An idle connection, or a new one; Unreachable where none comes about."""
        oldest = time.perf_counter() - _IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if self.reuse and connection.open and connection.idle_since >= oldest:
                return connection
            connection.close()
        try:
            return await self._open()
        except OSError as error:
            self._addresses.clear()  # a server that moved is looked up again
            raise Unreachable(str(error) or f"no connection within {self._connect_s:g} s") from error

    def give_back(self, connection: Connection) -> None:
        if not connection.open:
            return
        if self.reuse:
            connection.idle_since = time.perf_counter()
            self._idle.append(connection)
        else:
            connection.close()

    def renew(self, keep: int) -> None:
        """Close all idle connections but the last `keep`: a server may treat its connections unequally, so a
        measurement must not rest on the same ones throughout."""
        closing = self._idle[: max(0, len(self._idle) - keep)]
        del self._idle[: len(closing)]
        for connection in closing:
            connection.close()

    def close(self) -> None:
        self.renew(0)

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        sock = await self._connected()
        try:
            async with asyncio.timeout(self._connect_s):
                if self._tls and self._route.proxy:
                    await self._tunnel(sock)
                sock.stamp()
                _, connection = await loop.create_connection(
                    lambda: Connection(sock, self._buffer),
                    sock=sock,
                    ssl=self._tls,
                    server_hostname=self._route.url.hostname if self._tls else None,
                )
        except BaseException:
            sock.close()
            raise
        self._opened += 1
        connection.number = self._opened
        return connection

    async def _connected(self) -> StampedSocket:
        """A socket that is connected to the first of the server's addresses that takes it."""
        loop = asyncio.get_running_loop()
        if not self._addresses:
            address_infos = await loop.getaddrinfo(*self._route.address(), type=socket.SOCK_STREAM)
            self._addresses = [(family, address) for family, _, _, _, address in address_infos]
        failed: OSError | None = None
        for family, address in self._addresses:
            sock = StampedSocket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            try:
                async with asyncio.timeout(self._connect_s / len(self._addresses)):
                    await loop.sock_connect(sock, address)
            except BaseException as error:
                sock.close()
                if not isinstance(error, OSError):
                    raise
                failed = failed or error
            else:
                self._addresses = [(family, address)]  # so that no other request tries in vain
                return sock
        raise failed or OSError(f"no address of {self._route.address()[0]}")

    async def _tunnel(self, sock: StampedSocket) -> None:
        """Have the proxy pass on to the server what is sent from here on."""
        loop = asyncio.get_running_loop()
        host = f"{self._route.url.hostname}:{self._route.url.port or 443}"
        await loop.sock_sendall(sock, http_request("CONNECT", host, host, self._route.credentials()))
        head = b""
        while b"\r\n\r\n" not in head:
            read = await loop.sock_recv(sock, 4096)
            head += read
            if not read or len(head) > _READ_SIZE:
                break
        status = head.partition(b"\r\n")[0].split(b" ")
        if len(status) < 2 or status[1] != b"200":
            answer = head[:60].decode("latin-1").partition("\r\n")[0]
            raise OSError(f"the proxy {self._route.address()[0]} did not open a tunnel: {answer!r}")
