"""The relay: nothing lost, nothing reordered, nothing early; cuts and narrow paths."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from specops.edge.relay import relay

DEADLINE = 30.0  # seconds


@contextmanager
def echo() -> Iterator[int]:
    """A server that says everything back, until its peer has said all."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(peer: socket.socket) -> None:
            with peer, suppress(OSError):
                while data := peer.recv(65536):
                    peer.sendall(data)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = server.accept()
                    threading.Thread(target=serve, args=(peer,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)


def all_of(peer: socket.socket) -> bytes:
    parts = []
    while data := peer.recv(65536):
        parts.append(data)
    return b"".join(parts)


def round_trip(peer: socket.socket) -> float:
    started = time.perf_counter()
    peer.sendall(b"x")
    assert peer.recv(1) == b"x"
    return time.perf_counter() - started


@pytest.mark.parametrize("jitter", [0.0, 0.005])
def test_everything_arrives_in_order(jitter: float) -> None:
    said = random.Random(1).randbytes(3_000_000)
    with echo() as port, relay(port, delay_s=0.002, jitter_s=jitter) as path, connect(path.port) as peer:

        def say() -> None:
            for start in range(0, len(said), 70_001):
                peer.sendall(said[start : start + 70_001])
            peer.shutdown(socket.SHUT_WR)

        saying = threading.Thread(target=say)
        saying.start()
        assert all_of(peer) == said
        saying.join()
        assert path.forwarded == 2 * len(said)


def test_nothing_is_early() -> None:
    with echo() as port, relay(port, delay_s=0.02) as path, connect(path.port) as peer:
        assert min(round_trip(peer) for _ in range(5)) >= 0.04
        path.delay_s = 0.0  # what is changed holds from then on
        assert min(round_trip(peer) for _ in range(50)) < 0.04


def test_a_delay_does_not_take_turns() -> None:
    """A hundred chunks that are under way together arrive after one delay, not after a hundred."""
    with echo() as port, relay(port, delay_s=0.5) as path, connect(path.port) as peer:
        started = time.perf_counter()
        for _ in range(100):
            peer.sendall(b"y")
            time.sleep(0.001)  # so that they are chunks of their own
        got = 0
        while got < 100:
            got += len(peer.recv(100))
        assert 1.0 <= time.perf_counter() - started < DEADLINE < 100 * 1.0


def test_a_narrow_path_takes_its_time() -> None:
    with echo() as port, relay(port, delay_s=0.0, bandwidth=1e6) as path, connect(path.port) as peer:
        started = time.perf_counter()
        peer.sendall(bytes(100_000))
        peer.shutdown(socket.SHUT_WR)
        assert len(all_of(peer)) == 100_000
        assert time.perf_counter() - started >= 0.1


def test_a_cut_breaks_what_is_there_and_nothing_else() -> None:
    with echo() as port, relay(port, delay_s=0.0) as path:
        with connect(path.port) as peer:
            round_trip(peer)
            path.cut()
            with suppress(ConnectionResetError):
                assert peer.recv(1) == b""
        with connect(path.port) as peer:
            round_trip(peer)
        assert path.connections == 2


def test_a_path_may_be_closed_for_a_while() -> None:
    with echo() as port, relay(port, delay_s=0.0) as path:
        path.refusing = True
        with connect(path.port) as peer, suppress(ConnectionResetError):
            assert peer.recv(1) == b""
        path.refusing = False
        with connect(path.port) as peer:
            round_trip(peer)


def test_whoever_is_not_there_is_not_reached() -> None:
    with echo() as port:
        pass
    with relay(port) as path, connect(path.port) as peer, suppress(ConnectionResetError):
        assert peer.recv(1) == b""


def test_it_ends_with_connections_open() -> None:
    with echo() as port:
        with relay(port, delay_s=0.0) as path:
            peers = [connect(path.port) for _ in range(5)]
            for peer in peers:
                round_trip(peer)
        for peer in peers:
            with peer, suppress(ConnectionResetError):
                assert peer.recv(1) == b""
    assert not any(thread.name == "relay" for thread in threading.enumerate())
