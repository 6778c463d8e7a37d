"""Connections: instants that a busy client does not falsify, and servers that close what they keep open."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import ssl
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme
from daemons import wait_until
from stub import CHUNKS, Reply, Stub, stream

from specops.load import client as client_module
from specops.load import connection as connection_module
from specops.load.arrivals import Level, Pace
from specops.load.client import Client
from specops.load.record import Cell
from specops.load.request_times import Exchange, Observation
from specops.load.runner import Interrupted, run_cell
from specops.load.settings import Decoding, Endpoint
from specops.load.workload import Prompt
from specops.progress import SilentProgress

PROMPT = Prompt("p", "all", "Hello")
ANSWER = b"".join(stream({"prompt": "", "stream_options": {"include_usage": True}}, CHUNKS))
KEPT_OPEN = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: keep-alive\r\n"
    b"Keep-Alive: timeout=5, max=100\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"%x\r\n%s\r\n0\r\n\r\n" % (len(ANSWER), ANSWER)
)

kernel_stamps = pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives instants of arrival")


class Server:
    """A plain socket server: `serve` gets each connection and its number, and what it does is all."""

    def __init__(
        self, serve: Callable[[socket.socket, int], None], tls: ssl.SSLContext | None = None
    ) -> None:
        self._serve, self._tls = serve, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._handle, args=(connection, self.connections), daemon=True).start()

    def _handle(self, connection: socket.socket, number: int) -> None:
        try:
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                self._serve(connection, number)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def serving(
    serve: Callable[[socket.socket, int], None], tls: ssl.SSLContext | None = None
) -> Iterator[Server]:
    server = Server(serve, tls)
    try:
        yield server
    finally:
        server.close()


def read_request(connection: socket.socket) -> bytes:
    """Head and body; empty where the client closed the connection."""
    data = bytearray()
    while b"\r\n\r\n" not in data:
        if not (read := connection.recv(65536)):
            return b""
        data += read
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(2**20)
    return bytes(head)


def cell(base_url: str, count: int, concurrency: int, **endpoint: float) -> Cell:
    async def run() -> Cell:
        target = Endpoint(base_url, "stub", "completions", **endpoint)  # type: ignore[arg-type]
        async with Client(target, Decoding()) as client:
            prompts = [Prompt(str(i), "all", "Hello") for i in range(count)]
            level = Level(concurrency=concurrency)
            return await run_cell(
                client, prompts, level, 0, seed=0, pace=Pace(None), progress=SilentProgress()
            )

    return asyncio.run(run())


def kinds(found: Cell) -> list[str | None]:
    return [one.answer.failure.kind if one.answer.failure else None for one in found.observations]


# servers that close


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("after_s", [0.0, 0.01])
def test_a_server_that_closes_what_it_said_to_keep_open_fails_no_request(
    concurrency: int, after_s: float
) -> None:
    """llama.cpp does. The next request is already on its way, into a connection that nobody reads."""

    def once(connection: socket.socket, number: int) -> None:
        if read_request(connection):
            connection.sendall(KEPT_OPEN)
            time.sleep(after_s)

    with serving(once) as server:
        found = cell(server.base_url, 24, concurrency)
    assert kinds(found) == [None] * 24
    assert all(one.retries == 0 for one in found.observations)
    resent = [one for one in found.observations if one.resent]
    assert len(resent) <= concurrency  # from the first on, no connection is used again
    if after_s:
        assert resent
    # the lost attempt is the client's lag, and no latency of the server
    assert all(one.sent - one.scheduled >= after_s / 2 and one.first_sent == one.sent for one in resent)


def test_a_server_that_dies_on_new_connections_fails() -> None:
    def drop(connection: socket.socket, number: int) -> None:
        read_request(connection)

    with serving(drop) as server:
        found = cell(server.base_url, 6, 2)
        assert server.connections == 6  # none was sent again
    assert kinds(found) == ["cut"] * 6


def test_a_server_that_drops_requests_on_connections_in_use_is_excused_once() -> None:
    """Whoever drops every second request is found out as soon as connections are not used again."""
    dropped = [0]

    def every_second(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            dropped[0] += 1
            if dropped[0] % 2 == 0:
                return
            connection.sendall(KEPT_OPEN)

    with serving(every_second) as server:
        found = cell(server.base_url, 12, 1)
    assert sum(one.resent for one in found.observations) == 1
    assert kinds(found).count("cut") >= 5


def test_a_request_that_was_worked_on_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_STALE_S", 0.0)  # any time is time at work

    def die_at_work(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(KEPT_OPEN)
        read_request(connection)

    with serving(die_at_work) as server:
        found = cell(server.base_url, 2, 1)
        assert server.connections == 1
    assert kinds(found) == [None, "cut"]


def test_a_request_that_began_to_be_answered_is_not_sent_again() -> None:
    def half(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(KEPT_OPEN)
        read_request(connection)
        connection.sendall(KEPT_OPEN[:30])

    with serving(half) as server:
        found = cell(server.base_url, 2, 1)
        assert server.connections == 1
    assert kinds(found) == [None, "cut"]


def test_a_connection_that_is_kept_open_is_used_again() -> None:
    def all_of_them(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            connection.sendall(KEPT_OPEN)

    with serving(all_of_them) as server:
        found = cell(server.base_url, 10, 2)
        assert server.connections == 2
    assert kinds(found) == [None] * 10
    assert sum(one.connecting > 0 for one in found.observations) == 2


# instants


def test_a_response_that_is_held_open_after_its_stream_has_ended_is_whole() -> None:
    """Users have their answer. The next request takes another connection, since this one is not free."""

    def serve(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            connection.sendall(KEPT_OPEN.removesuffix(b"0\r\n\r\n"))
            time.sleep(3.0)
            connection.sendall(b"0\r\n\r\n")

    with serving(serve) as server:
        began = time.perf_counter()
        found = cell(server.base_url, 4, 2)
        assert time.perf_counter() - began < 2.0
        assert kinds(found) == [None] * 4
        assert server.connections == 4
    took = [one.ended - one.sent for one in found.observations]
    assert max(took) < 0.2  # the answer's end, and not the wait for the response's


def test_an_answer_whose_text_is_the_end_of_a_stream_goes_on() -> None:
    """A server may cut its writes anywhere, and the text may be that of the last event."""
    said = ANSWER.replace(CHUNKS[0][0].encode(), b"data: [DONE]", 1)
    first, second = said[: said.index(b"[DONE]") + 6], said[said.index(b"[DONE]") + 6 :]
    head = KEPT_OPEN[: KEPT_OPEN.index(b"\r\n\r\n") + 4]

    def serve(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            connection.sendall(head + b"%x\r\n%s\r\n" % (len(first), first))
            time.sleep(0.1)
            connection.sendall(b"%x\r\n%s\r\n" % (len(second) - 40, second[:-40]))
            time.sleep(0.3)
            connection.sendall(b"28\r\n%s\r\n0\r\n\r\n" % second[-40:])

    with serving(serve) as server:
        found = cell(server.base_url, 2, 1)
    assert kinds(found) == [None] * 2
    assert all(one.answer.text.startswith("data: [DONE]") for one in found.observations)
    assert server.connections == 1


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another thread
            await asyncio.sleep(0.002)


def test_what_passes_before_a_request_leaves_is_lag_and_no_latency(stub: Stub) -> None:
    async def run() -> Observation:
        exchange = Exchange(PROMPT, time.perf_counter() - 0.5)
        async with Client(Endpoint(stub.base_url, "stub"), Decoding()) as client:
            await client.carry_out(exchange)
        return exchange.observe(None)

    found = asyncio.run(run())
    assert found.first_sent - found.scheduled >= 0.5
    assert found.connecting > 0
    assert found.answer.chunks[0].time_s - found.sent < 0.5


@kernel_stamps
def test_a_busy_client_does_not_delay_arrivals(stub: Stub) -> None:
    """The first chunk comes after 50 ms, while the event loop is blocked for a second."""
    stub.answer = lambda body: Reply(stream(body, CHUNKS, role=False)[:1], first_s=0.05, hang=True)

    async def run() -> Exchange:
        exchange = Exchange(PROMPT, time.perf_counter())
        async with Client(Endpoint(stub.base_url, "stub", stall_s=0.6), Decoding()) as client:
            task = asyncio.ensure_future(client.carry_out(exchange))
            await until(lambda: bool(stub.requests))
            time.sleep(1.0)  # noqa: ASYNC251
            await task
        return exchange

    exchange = asyncio.run(run())
    assert 0.05 <= exchange.reads[0][0] - exchange.sent <= 0.7
    assert exchange.delays[0] >= 0.3


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_does_not_move_arrivals(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    class Stepped:
        perf_counter = staticmethod(time.perf_counter)

        @staticmethod
        def time() -> float:
            return time.time() + step_s

    monkeypatch.setattr(connection_module, "time", Stepped)
    stub.answer = lambda body: Reply(stream(body, CHUNKS), first_s=0.02, gap_s=0.002)
    found = cell(stub.base_url, 3, 1)
    for one in found.observations:
        instants = [one.sent, *(chunk.time_s for chunk in one.answer.chunks), one.ended]
        assert instants == sorted(instants)
        assert 0.02 <= instants[1] - instants[0] < 5


def waiting(connection: socket.socket) -> int:
    """Bytes that came and were not read."""
    return int.from_bytes(fcntl.ioctl(connection, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_the_clock_starts_when_the_last_byte_has_left() -> None:
    """A body larger than all buffers, to a server that reads it late: that wait is not the server's TTFT."""
    size = 16 * 2**20

    began_to_read: list[float] = []

    def slow_reader(connection: socket.socket, number: int) -> None:
        wait_until(lambda: waiting(connection) >= 2**16, "more to come than is read")
        began_to_read.append(time.perf_counter())
        read_request(connection)
        connection.sendall(KEPT_OPEN)

    async def run(base_url: str) -> Exchange:
        async with Client(Endpoint(base_url, "m", "completions"), Decoding()) as client:
            return await client.send(Prompt("p", "all", "x" * size))

    with serving(slow_reader) as server:
        exchange = asyncio.run(run(server.base_url))
    assert exchange.failure is None
    assert began_to_read[0] < exchange.sent < exchange.reads[0][0]


# requests that were sent count, whatever ends them


def test_a_request_that_was_in_flight_when_the_run_was_stopped_is_kept(stub: Stub) -> None:
    def answer(body: dict[str, object]) -> Reply:
        hang = len(stub.requests) > 2
        return Reply(stream(body, CHUNKS)[: 2 if hang else None], hang=hang)

    stub.answer = answer

    async def run() -> Cell:
        async with Client(Endpoint(stub.base_url, "stub"), Decoding()) as client:
            prompts = [Prompt(str(i), "all", "Hello") for i in range(9)]
            level = Level(concurrency=3)
            task = asyncio.ensure_future(
                run_cell(client, prompts, level, 0, seed=0, pace=Pace(None), progress=SilentProgress())
            )
            await until(lambda: len(stub.requests) == 5)
            await asyncio.sleep(0.1)
            task.cancel()
            try:
                await task
            except Interrupted as stop:
                return stop.cell
            raise AssertionError("it was not interrupted")

    found = asyncio.run(run())
    assert not found.complete
    assert sorted(map(str, kinds(found))) == ["None"] * 2 + ["interrupted"] * 3
    for one_ in found.observations:
        if not one_.ok:
            assert one_.ended - one_.sent >= 0.05  # until it was stopped


def test_a_failure_counts_with_the_time_that_it_took(stub: Stub) -> None:
    stub.answer = lambda _: Reply(hang=True)
    found = cell(stub.base_url, 2, 2, timeout_s=0.3)
    assert kinds(found) == ["timeout"] * 2
    assert all(0.3 <= one.ended - one.sent < 2 for one in found.observations)


# the ways to a server


def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    def answer(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            time.sleep(0.05)
            connection.sendall(KEPT_OPEN)

    with serving(answer, context) as server:
        assert set(kinds(cell(server.base_url, 1, 1, retries=0))) == {"unreachable"}  # unknown authority
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        found = cell(server.base_url, 6, 2)
    assert kinds(found) == [None] * 6
    assert all(0.04 <= one.answer.chunks[0].time_s - one.sent < 1 for one in found.observations)


def test_by_way_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []

    def proxy(connection: socket.socket, number: int) -> None:
        while head := read_request(connection):
            heads.append(head)
            connection.sendall(KEPT_OPEN)

    with serving(proxy) as server:
        monkeypatch.setenv("http_proxy", f"http://me:pass%20word@127.0.0.1:{server.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert kinds(cell("http://models.invalid:8000/v1", 1, 1)) == [None]
    request, *fields = heads[0].split(b"\r\n")
    assert request == b"POST http://models.invalid:8000/v1/completions HTTP/1.1"
    assert b"Host: models.invalid:8000" in fields
    assert b"Proxy-Authorization: Basic bWU6cGFzcyB3b3Jk" in fields


def test_through_the_tunnel_of_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("models.invalid").configure_cert(context)
    asked: list[bytes] = []

    def proxy(connection: socket.socket, number: int) -> None:
        asked.append(connection.recv(65536))
        if number == 1:
            connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with context.wrap_socket(connection, server_side=True) as inside:
            asked.append(read_request(inside))
            inside.sendall(KEPT_OPEN)

    with serving(proxy) as server:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.port}")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        refused = cell("https://models.invalid/v1", 1, 1)
        (failure,) = (one.answer.failure for one in refused.observations)
        assert failure is not None
        assert "did not open a tunnel: 'HTTP/1.1 407 Proxy" in failure.detail
        assert kinds(cell("https://models.invalid/v1", 1, 1)) == [None]
    assert asked[1].startswith(b"CONNECT models.invalid:443 HTTP/1.1\r\n")
    assert asked[2].startswith(b"POST /v1/completions HTTP/1.1\r\n")
