"""The client's link over real gRPC: connecting, breaking, connecting again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the engine extra")
pytest.importorskip("grpc", reason="needs the edge extra")

from drawn_nodes import put_together
from scripted_verifier import DEADLINE, ScriptedVerifier, description

from specops.edge import connection
from specops.edge import verification_pb2 as pb
from specops.edge.connection import Backoff, Connection, Destination, connect
from specops.edge.link import ClientTurn, Event, LinkDown, LinkUp, Pong, Proposal, Verdict
from specops.edge.relay import relay
from specops.engine.request import Sampling
from specops.engine.tree import Draw
from specops.errors import EndpointError, FileError

KEY = bytes(range(16))


@pytest.fixture
def verifier() -> Iterator[Callable[..., ScriptedVerifier]]:
    started: list[ScriptedVerifier] = []

    def start(**settings: Any) -> ScriptedVerifier:
        one = ScriptedVerifier(**settings)
        one.start()
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def linked() -> Iterator[Callable[..., Connection]]:
    made: list[Connection] = []

    def link(port: int, **how: Any) -> Connection:
        made.append(connect(Destination(f"127.0.0.1:{port}", **how)))
        return made[-1]

    yield link
    for one in made:
        one.close()


def wait_for(link: Connection, kind: type[Event]) -> list[Event]:
    """All events up to the first of a kind."""
    came: list[Event] = []
    while not any(isinstance(event, kind) for event in came):
        more = link.receive(DEADLINE)
        assert more, f"no {kind.__name__} after {came}"
        came += more
    return came


def verdict(number: int) -> pb.Response:
    return pb.Response(session=1, verdict=pb.Verdict(number=number, path=[1], tokens=[7, 8], step_us=2000))


def test_what_a_client_says_arrives_and_what_comes_back_is_told(verifier: Any, linked: Any) -> None:
    server = verifier(token="secret")
    link = linked(server.port, token="secret")
    assert (link.limits.model, link.limits.max_nodes, link.limits.eos) == ("target", 64, frozenset({0}))
    link.open(1, KEY, [5, 6], Sampling(temperature=0.5, seed=3), server_drafts=True)
    drawn = Proposal((9,), (0,), Draw.WITHOUT_REPLACEMENT, put_together({0: ((8, 9), (1, 2))}))
    link.propose(1, 4, drawn)
    link.set_mode(1, server_drafts=False)
    link.end(1)
    stream = server.stream()
    said = [stream.next() for _ in range(4)]
    assert [each.WhichOneof("kind") for each in said] == ["open", "round", "mode", "close"]
    assert (said[0].open.key, list(said[0].open.prompt), said[0].open.server_drafts) == (KEY, [5, 6], True)
    assert (said[1].round.number, said[1].round.drawn.weights) == (4, b"\1\0\2\0")
    stream.say(verdict(4))
    stream.say(pb.Response(session=1, turn=pb.Turn(number=5, tokens=[3])))
    came = wait_for(link, ClientTurn)
    assert isinstance(came[0], Verdict)
    assert (came[0].number, came[0].tokens, came[0].step_s) == (4, [7, 8], 0.002)
    assert came[1] == ClientTurn(1, 5, [3], False)
    assert link.traffic.sent == sum(each.ByteSize() for each in said)
    assert link.traffic.received > 0


def test_a_broken_stream_is_told_and_connected_again(verifier: Any, linked: Any) -> None:
    server = verifier()
    link = linked(server.port)
    first = server.stream()
    first.say(verdict(1))
    first.end()
    came = wait_for(link, LinkUp)
    assert [type(event) for event in came] == [Verdict, LinkDown, LinkUp]
    link.propose(1, 2, Proposal((9,), (0,)))
    assert server.stream().next().round.number == 2
    assert link.traffic.reconnects == 1


def test_nothing_goes_out_on_a_new_stream_before_its_end_was_told(verifier: Any, linked: Any) -> None:
    """A round that overtakes the opening of its session would be nonsense there."""
    server = verifier()
    link = linked(server.port)
    server.stream().end()
    second = server.stream()  # connected again, but nobody has looked
    link.propose(1, 2, Proposal((9,), (0,)))
    assert [type(event) for event in wait_for(link, LinkUp)] == [LinkDown, LinkUp]
    link.open(1, KEY, [], Sampling(), acknowledged=3)
    assert second.next().open.known == 3
    assert second.came.empty()


def test_breaks_that_nobody_saw_are_told_as_one(verifier: Any, linked: Any) -> None:
    server = verifier()
    link = linked(server.port)
    for _ in range(3):
        server.stream().end()
    last = server.stream()
    last.say(verdict(9))
    came = wait_for(link, Verdict)
    assert [type(event) for event in came] == [LinkDown, LinkUp, Verdict]
    link.end(1)
    assert last.next().WhichOneof("kind") == "close"


def test_it_comes_back_when_the_server_does(verifier: Any, linked: Any) -> None:
    server = verifier()
    link = linked(server.port)
    server.stop()
    assert isinstance(wait_for(link, LinkDown)[0], LinkDown)
    server.start()
    assert isinstance(wait_for(link, LinkUp)[-1], LinkUp)


def test_a_cut_path_is_a_broken_stream(verifier: Any, linked: Any) -> None:
    server = verifier()
    with relay(server.port, delay_s=0.001) as path:
        link = linked(path.port)
        server.stream()
        path.cut()
        came = wait_for(link, LinkUp)
        assert [type(event) for event in came] == [LinkDown, LinkUp]


def test_a_path_that_goes_silent_is_left(verifier: Any, linked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No end comes of it, and no error: only what is not answered tells."""
    quick = [
        (name, 500 if name in ("grpc.keepalive_time_ms", "grpc.http2.ping_timeout_ms") else value)
        for name, value in connection.OPTIONS
    ]
    monkeypatch.setattr(connection, "OPTIONS", quick)
    server = verifier()
    with relay(server.port, delay_s=0.0) as path:
        link = linked(path.port)
        server.stream()
        path.delay_s = 1e6
        came = wait_for(link, LinkDown)
        assert LinkDown("it does not answer any more") in came
        path.delay_s = 0.0
        assert LinkUp() in came or wait_for(link, LinkUp)


def test_another_model_behind_the_same_address_is_the_end(verifier: Any, linked: Any) -> None:
    server = verifier()
    link = linked(server.port)
    server.description = description(model="other", tokenizer=b"u" * 32)
    server.stream().end()
    wait_for(link, LinkDown)
    for _ in range(2):  # and it stays so
        with pytest.raises(EndpointError, match="serves another model now: other, no longer target"):
            link.receive(DEADLINE)


def test_a_server_that_takes_less_than_before_is_the_end_too(verifier: Any, linked: Any) -> None:
    """The client's trees are made for what it took."""
    server = verifier()
    link = linked(server.port)
    server.description = description(max_nodes=128)  # more is welcome
    server.stream().end()
    wait_for(link, LinkUp)
    server.description = description(max_nodes=16)
    server.stream().end()
    wait_for(link, LinkDown)
    with pytest.raises(EndpointError, match="max_nodes is 16 now, no longer 128"):
        link.receive(DEADLINE)


def test_attempts_are_made_more_seldom_until_a_connection_lasts() -> None:
    backoff = Backoff()
    waits = [backoff.after(lived) for lived in (0.0, 0.1, 0.0, 0.2, 0.0, 0.0, 0.0, 0.0)]
    for number, wait in enumerate(waits):
        longest = min(0.1 * 2**number, 5.0)
        assert longest / 2 <= wait <= longest
    assert backoff.after(60.0) <= 0.1


def test_a_token_that_is_taken_back_is_the_end(verifier: Any, linked: Any) -> None:
    server = verifier(token="old")
    link = linked(server.port, token="old")
    stream = server.stream()
    server.token = "new"
    stream.end()
    wait_for(link, LinkDown)
    with pytest.raises(EndpointError, match="refuses the token"):
        link.receive(DEADLINE)


def test_certificates_that_are_gone_are_the_end(
    verifier: Any, linked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of its thread alone, while everybody waits for a connection."""
    server = verifier()
    link = linked(server.port)

    def unreadable(destination: Destination) -> None:
        raise FileError("could not read the certificates in ca.pem: No such file or directory")

    monkeypatch.setattr("specops.edge.connection.channel_to", unreadable)
    server.stream().end()
    wait_for(link, LinkDown)
    with pytest.raises(FileError, match="certificates"):
        link.receive(DEADLINE)


def test_a_probe_comes_back(verifier: Any, linked: Any) -> None:
    server = verifier()
    link = linked(server.port)
    link.probe()
    link.probe()  # while one is under way there is no other
    pongs = [event for event in wait_for(link, Pong) if isinstance(event, Pong)]
    assert len(pongs) == 1
    assert 0 < pongs[0].rtt_s < DEADLINE
    link.probe()
    assert wait_for(link, Pong)


def test_a_server_that_does_not_read_is_left(
    verifier: Any, linked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_OUTGOING", 4)
    server = verifier(reads=False)
    link = linked(server.port)
    for _ in range(1000):
        link.open(1, KEY, [2**20] * 20_000, Sampling())
        if link.receive(0):
            break
    else:
        wait_for(link, LinkDown)


def test_closing_ends_its_threads(verifier: Any) -> None:
    server = verifier()
    before = set(threading.enumerate())
    link = connect(Destination(f"127.0.0.1:{server.port}"))
    server.stream()
    link.close()
    assert link.receive(0) == []
    deadline = time.monotonic() + DEADLINE
    ours = {t for t in set(threading.enumerate()) - before if not t.name.startswith("ThreadPoolExecutor")}
    while any(thread.is_alive() for thread in ours):
        assert time.monotonic() < deadline, ours
        time.sleep(0.01)
