"""What becomes of requests when servers die, are slow or refuse, when there are too many, and when a worker
of NGINX is killed."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from daemons import free_port, wait_until
from routers import LONG, Answer, Pool, Router, pool, reload, router, workers

IN_FLIGHT = 'specops_route_in_flight{{pool="{}"}}'
FAILOVERS = 'specops_route_failovers_total{class="default"}'


@pytest.fixture(scope="module")
def standard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with pool(tmp_path_factory.mktemp("standard"), "standard") as up:
        yield up


@pytest.fixture(scope="module")
def speculative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with pool(tmp_path_factory.mktemp("speculative"), "speculative") as up:
        yield up


@pytest.fixture
def up(standard: Pool, speculative: Pool, tmp_path: Path) -> Iterator[Router]:
    with router(tmp_path, standard=[standard.address], speculative=[speculative.address]) as running:
        yield running


def scripted(**script: object) -> dict[str, object]:
    return {**LONG, "script": {"speculative": script}}


def many(count: int, ask: Callable[[int], Answer]) -> list[Answer]:
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(ask, range(count)))


def nothing_in_flight(up: Router) -> bool:
    return up.value(IN_FLIGHT.format("speculative")) == up.value(IN_FLIGHT.format("standard")) == 0


@pytest.mark.parametrize("script", [{"status": 503}, {"status": 502}, {"hang_up": True}])
def test_what_a_server_does_not_answer_the_standard_pool_does(up: Router, script: dict[str, object]) -> None:
    answer = up.ask(scripted(**script))
    assert (answer.status, answer.json["pool"]) == (200, "standard")
    assert answer.route == ("standard", "failover")
    wait_until(lambda: up.value(FAILOVERS) == 1, "it to be counted")
    assert nothing_in_flight(up)


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500])
def test_what_a_server_does_answer_is_left_to_it(
    up: Router, standard: Pool, speculative: Pool, status: int
) -> None:
    before = standard.seen(), speculative.seen()
    answer = up.ask(scripted(status=status))
    assert (answer.status, answer.json["pool"]) == (status, "speculative")
    assert (standard.seen(), speculative.seen()) == (before[0], before[1] + 1)


def test_the_standard_pools_own_refusal_comes_through(up: Router, standard: Pool) -> None:
    before = standard.seen()
    body = {**LONG, "max_tokens": 3, "script": {"standard": {"status": 503}}}
    answer = up.ask(body)
    assert (answer.status, answer.json["pool"]) == (503, "standard")
    assert standard.seen() == before + 1


def test_a_standard_pool_that_was_overloaded_is_asked_again_at_once(
    standard: Pool, speculative: Pool, tmp_path: Path
) -> None:
    """NGINX spares a server that said 503 three times; with all of them spared it would answer 502 itself."""
    short = {**LONG, "max_tokens": 3}
    with pool(tmp_path, "standard") as other, router(
        tmp_path, standard=[standard.address, other.address], speculative=[speculative.address]
    ) as up:  # fmt: skip
        refused = [up.ask({**short, "script": {"standard": {"status": 503}}}) for _ in range(12)]
        assert {(one.status, one.json["pool"]) for one in refused} == {(503, "standard")}
        assert {up.ask(short).status for _ in range(4)} == {200}


def test_a_dead_pool_costs_nothing(standard: Pool, tmp_path: Path) -> None:
    with router(tmp_path, standard=[standard.address], speculative=[f"127.0.0.1:{free_port()}"]) as up:
        assert {up.ask(LONG).route for _ in range(10)} == {("standard", "failover")}


def test_two_dead_pools_are_an_error_that_a_client_can_read(tmp_path: Path) -> None:
    dead = [f"127.0.0.1:{free_port()}"]
    with router(tmp_path, standard=dead, speculative=dead) as up:
        answer = up.ask(LONG)
        assert (answer.status, answer.json["error"]["type"]) == (502, "unavailable")
        wait_until(lambda: 'served="none",status="5xx"' in up.metrics(), "it to be counted")
        assert nothing_in_flight(up)


def test_a_machine_that_is_gone_costs_the_time_to_connect(standard: Pool, tmp_path: Path) -> None:
    """It does not refuse: nothing comes back."""
    with silent() as address, router(
        tmp_path, standard=[standard.address], speculative=[address], connect_timeout_s=1
    ) as up:  # fmt: skip
        started = time.monotonic()
        answer = up.ask(LONG)
        assert answer.route == ("standard", "failover")
        assert 0.9 < time.monotonic() - started < 5


def queued(listener: socket.socket) -> int:
    """Connections that wait to be taken. A queue of 0 has room for one."""
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)
    return int.from_bytes(info[24:28], sys.byteorder)  # tcpi_unacked


@contextmanager
def silent() -> Iterator[str]:
    """An address on which connections are never taken, its queue being full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = []
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(address)
            waiting.append(client)
        wait_until(lambda: queued(listener) > 0, "the queue to be full")
        try:
            yield f"127.0.0.1:{address[1]}"
        finally:
            for client in waiting:
                client.close()


def test_a_slow_answer_is_never_asked_for_twice(standard: Pool, speculative: Pool, tmp_path: Path) -> None:
    before = standard.seen(), speculative.seen()
    with router(
        tmp_path, standard=[standard.address], speculative=[speculative.address] * 2, read_timeout_s=1
    ) as up:
        answer = up.ask(scripted(wait_s=3))
        assert (answer.status, answer.json["error"]["type"]) == (504, "unavailable")
    assert (standard.seen(), speculative.seen()) == (before[0], before[1] + 1)


def test_another_server_of_the_pool_is_asked_first(standard: Pool, speculative: Pool, tmp_path: Path) -> None:
    servers = [f"127.0.0.1:{free_port()}", speculative.address]
    with router(tmp_path, standard=[standard.address], speculative=servers) as up:
        assert {up.ask(LONG).json["pool"] for _ in range(8)} == {"speculative"}


def test_a_killed_pool_loses_no_request_that_had_not_begun_to_stream(standard: Pool, tmp_path: Path) -> None:
    with pool(tmp_path, "speculative") as doomed, router(
        tmp_path, standard=[standard.address], speculative=[doomed.address], max_in_flight=100
    ) as up:  # fmt: skip
        with ThreadPoolExecutor(16) as threads:
            asked: list[Future[Answer]] = [threads.submit(up.ask, scripted(wait_s=2)) for _ in range(16)]
            wait_until(lambda: doomed.seen() == 16, "all to be there")
            doomed.kill()
            answers = [one.result() for one in asked]
        assert Counter((one.status, one.json["pool"]) for one in answers) == {(200, "standard"): 16}
        wait_until(lambda: up.value(FAILOVERS) == 16, "all to be counted")
        assert nothing_in_flight(up)


def test_a_stream_that_breaks_is_seen_to_break(standard: Pool, tmp_path: Path) -> None:
    """What the client has cannot be taken back: it must not look complete."""
    with pool(tmp_path, "speculative") as doomed, router(
        tmp_path, standard=[standard.address], speculative=[doomed.address]
    ) as up, ThreadPoolExecutor(1) as threads:  # fmt: skip
        asked = threads.submit(up.ask, scripted(chunks=20, gap_s=0.2))
        wait_until(lambda: doomed.seen() == 1, "it to begin")
        time.sleep(0.5)
        doomed.kill()
        with pytest.raises(Exception, match=r"IncompleteRead|reset"):
            asked.result()


def test_what_is_too_much_spills(up: Router) -> None:
    answers = many(20, lambda _: up.ask(scripted(wait_s=1.0)))
    assert Counter(one.route for one in answers) == {
        ("speculative", "long"): 8,
        ("standard", "in-flight"): 12,
    }
    wait_until(lambda: nothing_in_flight(up), "all to be counted out")


def test_a_request_counts_as_often_as_it_asks_for_answers(up: Router, speculative: Pool) -> None:
    before = speculative.seen()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(up.ask, {**scripted(wait_s=1.0), "n": 6})
        wait_until(lambda: speculative.seen() == before + 1, "it to be there")
        assert up.value(IN_FLIGHT.format("speculative")) == 6
        assert up.ask({**LONG, "n": 3}).route == ("standard", "in-flight")
        assert up.ask({**LONG, "n": 2}).route == ("speculative", "long")
        assert first.result().route == ("speculative", "long")


def test_a_client_that_goes_away_is_counted_out(up: Router, speculative: Pool) -> None:
    before = speculative.seen()
    host, port = up.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        body = b'{"max_tokens": 300, "script": {"speculative": {"wait_s": 2}}}'
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        wait_until(lambda: speculative.seen() == before + 1, "it to be there")
    wait_until(lambda: up.value(IN_FLIGHT.format("speculative")) == 0, "it to be counted out")


def test_a_worker_that_is_killed_does_not_keep_its_requests(up: Router, speculative: Pool) -> None:
    before = speculative.seen()

    def ask() -> None:
        with suppress(OSError):  # its worker is killed
            up.ask(scripted(wait_s=4))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    wait_until(lambda: speculative.seen() == before + 6, "all to be there")
    assert up.value(IN_FLIGHT.format("speculative")) == 6
    for pid in workers(up):
        os.kill(pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    wait_until(lambda: up.value(IN_FLIGHT.format("speculative")) == 0, "the dead to be counted out")
    answers = many(20, lambda _: up.ask(scripted(wait_s=1.0)))
    assert Counter(one.json["pool"] for one in answers) == {"speculative": 8, "standard": 12}


def test_a_reload_keeps_streams_and_the_count(up: Router) -> None:
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(up.ask, scripted(chunks=5, gap_s=0.3)) for _ in range(4)]
        wait_until(lambda: up.value(IN_FLIGHT.format("speculative")) == 4, "all to be there")
        reload(up)
        assert [one.result().body.count(b"data:") for one in asked] == [5] * 4
    labels = 'class="default",pool="speculative",served="speculative",status="2xx"'
    wait_until(
        lambda: up.value(f"specops_route_requests_total{{{labels}}}") == 4, "the old workers to have said so"
    )
    wait_until(lambda: up.value(IN_FLIGHT.format("speculative")) == 0, "all to be counted out")
