"""How many servers a request can kill: on a real NGINX, with connections kept from earlier requests."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from daemons import nginx
from routers import CHAT, LONG, NGINX, ask, rollout

from specops.phases.route import render
from specops.router.nginx import CONF


class Server(ThreadingHTTPServer):
    """Answers, and does to a request with an `ends` what it says: hang_up, die, 502 or 503."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.name = name
        self.reached = 0
        """Requests with an `ends` that arrived."""
        self.closes_kept = False
        """Whether it closes a connection instead of reading a second request from it."""
        self.connections: list[socket.socket] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def die(self) -> None:
        """No connection is left, and new ones are refused."""
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    answered = False

    def do_POST(self) -> None:
        server = self.server
        if self.answered and server.closes_kept:
            return self.hang_up()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.connections.append(self.connection)
        status, ends = 200, body.get("ends", {}).get(server.name)
        if ends:
            server.reached += 1
            if ends == "die":
                server.die()
            if ends in ("hang_up", "die"):
                return self.hang_up()
            status = ends
        self.answered = True
        text = json.dumps({"server": server.name}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        return None

    def hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):  # closed already
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def servers(count: int, name: str) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        started = [stack.enter_context(Server(f"{name}{number}")) for number in range(count)]
        for server in started:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield started
        for server in started:
            server.shutdown()


@contextmanager
def warm_router(
    folder: Path, standard: Sequence[Server], speculative: Sequence[Server], *, without_lua: bool = False
) -> Iterator[str]:
    """With one worker, which has a kept connection to each server; the URL of a completion."""
    settings = rollout(
        standard=[server.address for server in standard],
        speculative=[server.address for server in speculative],
        nginx={"workers": 1, "lua": not without_lua},
        max_in_flight=1000,
        classes=[{"name": "plain", "headers": {"X-Task": "plain"}, "speculate": False}],
    )
    render(settings, folder)
    prefix = folder / NGINX
    with nginx(prefix / CONF, prefix, url=f"http://{settings.route.listen}", ready="/nowhere") as daemon:
        url = f"{daemon.url}{CHAT}"
        for pool, headers in ((speculative, {}), (standard, {"x_task": "plain"})):
            for _ in range(3 * len(pool)):  # round robin, as long as all are idle
                assert ask(url, LONG, **headers).status == 200
            assert all(server.connections for server in pool)
        yield url


@pytest.mark.quick(3)
@pytest.mark.parametrize("without_lua", [False, True], ids=["lua", "native"])
@pytest.mark.parametrize("count", range(1, 9))
def test_a_request_reaches_no_more_servers_than_promised(
    count: int, without_lua: bool, tmp_path: Path
) -> None:
    """Two where servers die. Two of a pool where they say 502 or 503, and one of the pool behind it."""
    with (
        servers(count, "standard") as standard,
        servers(count, "speculative") as speculative,
        warm_router(tmp_path, standard, speculative, without_lua=without_lua) as url,
    ):
        pools = [*standard, *speculative]

        def send(headers: dict[str, str], *ends: object) -> tuple[int, int]:
            """How many servers of the standard and of the speculative pool a request reached."""
            for server in pools:
                server.reached = 0
            kills = {server.name: ends[number % len(ends)] for number, server in enumerate(pools)}
            assert ask(url, {**LONG, "ends": kills}, **headers).status in (502, 503)
            return sum(one.reached for one in standard), sum(one.reached for one in speculative)

        for headers in ({"x_task": "plain"}, {}):
            assert 1 <= sum(send(headers, "hang_up")) <= 2
            assert {ask(url, LONG, **headers).status for _ in range(4)} == {200}  # warm again
            for ends in ((503,), (502, "hang_up"), ("hang_up", 503)):
                reached = send(headers, *ends)
                assert max(reached) <= 2
                assert sum(reached) <= (2 if headers else 3)
        assert {ask(url, LONG).status for _ in range(2 * count)} == {200}
        assert 1 <= sum(send({}, "die")) <= 2


@pytest.mark.parametrize("without_lua", [False, True], ids=["lua", "native"])
@pytest.mark.parametrize("to", ["speculative", "standard"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_connection_that_a_server_closed_costs_no_request(
    count: int, to: str, without_lua: bool, tmp_path: Path
) -> None:
    """It closes a kept connection when it should read the next request from it."""
    headers = {"x_task": "plain"} if to == "standard" else {}
    with (
        servers(count, "standard") as standard,
        servers(count, "speculative") as speculative,
        warm_router(tmp_path, standard, speculative, without_lua=without_lua) as url,
    ):
        for server in (*standard, *speculative):
            server.closes_kept = True
        assert {ask(url, LONG, **headers).status for _ in range(12)} == {200}


@pytest.mark.parametrize("dead", [1, 3, 7])
def test_servers_that_refuse_connections_are_passed_over(dead: int, tmp_path: Path) -> None:
    """The request was not sent, so the others of its pool are asked, however many refuse."""
    with (
        servers(1, "standard") as standard,
        servers(8, "speculative") as speculative,
        warm_router(tmp_path, standard, speculative) as url,
    ):
        for server in speculative[:dead]:
            server.die()
        answers = [ask(url, LONG) for _ in range(16)]
        assert {answer.status for answer in answers} == {200}
        # A connection that broke while it was kept may cost the detour; a refusal never does.
        assert sum(answer.route[0] == "speculative" for answer in answers) >= 16 - dead
