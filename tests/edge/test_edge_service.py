"""The service over real gRPC on loopback: clients good and bad, tokens, TLS, broken streams, drains."""

from __future__ import annotations

import asyncio
import threading
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from calling_edge import Drafting, Stream, finish, serving, until
from grpc import aio
from scripted_engine import LENGTH, UNFIT, VOCABULARY, continued

from specops.edge import verification_pb2 as pb
from specops.edge.link import Branch, Proposal, SessionRefused, Verdict
from specops.edge.messages import Propose
from specops.edge.server import Tls
from specops.edge.service import TokenAccess
from specops.edge.wire import ahead_request, limits_of, mode_request, open_request, round_request
from specops.engine.request import Sampling


def test_sessions_of_one_stream_get_what_is_right_and_what_is_served_is_told() -> None:
    async def scenario() -> None:
        async with serving(own_tree="chain:2") as (_, engine, port):
            stream = Stream(port)
            served = limits_of(await stream.describe())
            assert (served.model, served.vocabulary, served.own_tree) == ("scripted", VOCABULARY, "chain:2")
            sessions = [Drafting(number, [number, 5]) for number in range(1, 6)]
            for session in sessions:
                await session.open(stream)
            await finish(stream, *sessions)
            for session in sessions:
                assert session.output == continued(session.prompt, session.max_tokens)
            assert len(sessions[0].output) > len(engine.sizes) / 2  # trees were accepted
            await stream.cut()

    asyncio.run(scenario())


GARBAGE: dict[str, Any] = {
    "a round for no session": round_request(9, 1, Proposal((1,), (0,))),
    "a mode for no session": mode_request(9, server_drafts=True),
    "what comes after a round of no session": ahead_request(9, 1, 1, []),
    "an empty message": b"",
    "a kind of tomorrow": b"\x08\x09\x7a\x00",
    "a short key": open_request(9, b"short", [1], Sampling()),
    "an empty prompt": open_request(9, b"k" * 16, [], Sampling()),
    "a token that there is not": open_request(9, b"k" * 16, [VOCABULARY], Sampling()),
    "a prompt that is too long": open_request(9, b"k" * 16, [1] * LENGTH, Sampling()),
    "a temperature that is no number": open_request(9, b"k" * 16, [1], Sampling(temperature=float("nan"))),
    "what the engine will not have": open_request(9, b"k" * 16, [UNFIT], Sampling()),
    "tokens known of a session that is not": open_request(9, b"k" * 16, [1], Sampling(), acknowledged=3),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_nonsense_is_refused_and_a_session_beside_it_goes_on(garbage: pb.Request | bytes) -> None:
    async def scenario() -> None:
        async with serving() as (_, _, port):
            stream, good = Stream(port), Drafting(1, [3, 4])
            await good.open(stream)
            await good.take(stream, await stream.hear())
            await stream.say(garbage)
            refused, took = None, 0
            while refused is None or took < 3:
                event = await stream.hear()
                if isinstance(event, SessionRefused):
                    assert event.session in (0, 9)
                    assert event.reason in ("nonsense", "too large", "unknown")
                    refused = event
                else:
                    await good.take(stream, event)
                    took += 1
            await finish(stream, good)
            assert good.output == continued(good.prompt, good.max_tokens)
            await stream.cut()

    asyncio.run(scenario())


def rounds_out_of_turn(number: int) -> dict[str, list[pb.Request]]:
    once = round_request(9, number, Proposal((1,), (0,)))
    return {
        "twice": [once, once],
        "too late": [round_request(9, number - 1, Proposal((1,), (0,)))],
        "too early": [round_request(9, number + 1, Proposal((1,), (0,)))],
        "where the server drafts": [mode_request(9, server_drafts=True), once],
        "before the turn": [mode_request(9, server_drafts=True), mode_request(9, server_drafts=False), once],
        "ahead of no round": [ahead_request(9, number, 1, [])],
        "ahead of a later round": [once, ahead_request(9, number + 1, 1, [])],
        "one version twice": [once, ahead_request(9, number, 1, []), ahead_request(9, number, 1, [])],
        "a circle ahead": [
            once,
            ahead_request(9, number, 1, [Branch(0, 1, Proposal((1, 2), (1, 0)))]),
        ],
        "one outcome twice": [
            once,
            ahead_request(9, number, 1, [Branch(0, 1, Proposal((), ()))] * 2),
        ],
        "a circle": [round_request(9, number, Proposal((1, 2), (1, 0)))],
    }


@pytest.mark.parametrize("kind", rounds_out_of_turn(1))
def test_a_session_that_speaks_out_of_turn_is_closed_and_its_number_can_be_opened_again(kind: str) -> None:
    async def scenario() -> None:
        async with serving() as (_, engine, port):
            stream, bad = Stream(port), Drafting(9, [7])
            await bad.open(stream)
            first = await stream.hear()
            assert first.tokens == continued([7], 1)  # type: ignore[union-attr]
            engine.gate.clear()  # a round is out as long as the test wants it to be
            for request in rounds_out_of_turn(1)[kind]:
                await stream.say(request)
            while not isinstance(event := await stream.hear(), SessionRefused):
                pass
            assert event.reason == "nonsense"
            engine.gate.set()
            await stream.say(round_request(9, 2, Proposal((1,), (0,))))  # was on its way; means nothing
            again = Drafting(9, [8])
            await again.open(stream)
            await finish(stream, again)
            assert again.output == continued([8], 60)
            await stream.cut()

    asyncio.run(scenario())


def test_bytes_that_are_no_message_end_the_stream_and_its_sessions_can_be_taken_up() -> None:
    async def scenario() -> None:
        async with serving() as (_, _, port):
            stream, session = Stream(port), Drafting(1, [3])
            await session.open(stream)
            await session.take(stream, await stream.hear())
            await stream.say(b"\xff\xff\xff\xff")
            with pytest.raises(aio.AioRpcError) as caught:
                await hear_all(stream)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            await stream.cut()
            other = Stream(port)
            await session.open(other)
            await finish(other, session)
            assert session.output == continued([3], 60)
            await other.cut()

    asyncio.run(scenario())


async def hear_all(stream: Stream) -> None:
    while True:
        await stream.hear()


def test_a_message_above_the_limit_ends_its_stream_alone() -> None:
    async def scenario() -> None:
        async with serving() as (_, _, port):
            good, bad = Stream(port), Stream(port)
            session = Drafting(1, [3])
            await session.open(good)
            await bad.say(open_request(1, b"k" * 16, [1] * 2_000_000, Sampling()))
            with pytest.raises(aio.AioRpcError) as caught:
                await bad.hear()
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            await finish(good, session)
            assert session.output == continued([3], 60)
            await good.cut()
            await bad.cut()

    asyncio.run(scenario())


@pytest.mark.parametrize("token", [None, "wrong-token", "right-tokem", "right-token-and-more"])
def test_without_the_token_nothing_is_told(token: str | None) -> None:
    async def scenario() -> None:
        async with serving(tokens={"": "right-token"}) as (_, engine, port):
            right, wrong = Stream(port, token="right-token"), Stream(port, token=token)
            assert (await right.describe()).model == "scripted"
            for asking in (wrong.describe(), wrong.hear()):
                with pytest.raises(aio.AioRpcError) as caught:
                    await asking
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
                assert "authorization: Bearer TOKEN" in (caught.value.details() or "")
            assert engine.seen == []
            await right.cut()
            await wrong.cut()

    asyncio.run(scenario())


@pytest.mark.parametrize("header", ["Bearer a-token", "bearer a-token", "BEARER  a-token"])
def test_the_scheme_of_a_token_in_any_case(header: str) -> None:
    """RFC 9110, section 11.1."""
    access = TokenAccess({"ann": "a-token"})
    assert access.name(header) == access.name(header.encode()) == "ann"
    for wrong in (header.upper(), header + "s", header.replace(" ", ""), "Basic a-token", "a-token", ""):
        assert access.name(wrong) is None


def test_a_session_belongs_to_the_name_of_its_token() -> None:
    async def scenario() -> None:
        tokens = {"ann": "token-of-ann", "bob": "token-of-bob"}
        async with serving(tokens=tokens, sessions_per_client=1) as (_, _, port):
            ann, bob = Stream(port, token=tokens["ann"]), Stream(port, token=tokens["bob"])
            hers = Drafting(1, [3])
            await hers.open(ann)
            await hers.take(ann, await ann.hear())
            await bob.say(open_request(1, hers.key, [], Sampling(), acknowledged=1))
            event = await bob.hear()
            assert isinstance(event, SessionRefused)
            assert event.reason == "unknown"
            await finish(ann, hers)
            assert hers.output == continued([3], 60)
            await ann.cut()
            await bob.cut()

    asyncio.run(scenario())


def test_over_tls_only_who_knows_the_certificate_authority_connects(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")

    async def scenario() -> None:
        async with serving(tls=Tls(tmp_path / "cert.pem", tmp_path / "key.pem")) as (_, _, port):
            stream, session = Stream(port, tls=authority.cert_pem.bytes()), Drafting(1, [3])
            await session.open(stream)
            await finish(stream, session)
            assert session.output == continued([3], 60)
            for wrong in (Stream(port, tls=stranger.cert_pem.bytes()), Stream(port)):
                with pytest.raises(aio.AioRpcError) as caught:
                    await wrong.describe()
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
                await wrong.cut()
            await stream.cut()

    asyncio.run(scenario())


@pytest.mark.parametrize("server_drafts", [False, True])
def test_a_stream_cut_anywhere_loses_and_doubles_nothing(server_drafts: bool) -> None:
    async def scenario() -> None:
        async with serving() as (server, _, port):
            session = Drafting(1, [3, 1, 4], max_tokens=40)
            for cut_after in (0, 1, 2, 1, 0, 3, 1, 1, 2):
                stream = Stream(port)
                await session.open(stream, server_drafts=server_drafts)
                for _ in range(cut_after):
                    event = await stream.hear()
                    assert not isinstance(event, SessionRefused)
                    await session.take(stream, event, server_drafts=server_drafts)
                    if session.ended:
                        break
                await stream.cut()
            stream = Stream(port)
            await session.open(stream)
            await finish(stream, session)
            assert session.output == continued([3, 1, 4], 40)
            await session.close(stream)
            await until(lambda: len(server.service.sessions) == 0, "the session is forgotten")
            await stream.cut()

    asyncio.run(scenario())


def test_a_second_stream_takes_a_session_over_from_one_that_looks_alive() -> None:
    async def scenario() -> None:
        async with serving() as (_, _, port):
            old, new, session, beside = Stream(port), Stream(port), Drafting(1, [3]), Drafting(2, [4])
            await session.open(old)
            await session.take(old, await old.hear())  # a round is out
            await session.open(new)
            await finish(new, session)
            assert session.output == continued([3], 60)
            await old.say(round_request(1, 2, Proposal((1,), (0,))))  # means nothing any more
            await beside.open(old)
            event = await old.hear()
            while event.session == 1:  # type: ignore[union-attr]  # sent before the other took it over
                assert isinstance(event, Verdict)
                event = await old.hear()
            await beside.take(old, event)
            await finish(old, beside)
            assert beside.output == continued([4], 60)
            await old.cut()
            await new.cut()

    asyncio.run(scenario())


class Foreseeing(Drafting):
    """It says, while a round is out, what would follow it; `right`, by version: whether it is what does."""

    def __init__(self, number: int, prompt: list[int], right: list[bool]) -> None:
        super().__init__(number, prompt)
        self.right = right

    async def ahead(self, stream: Stream, number: int) -> None:
        for version, right in enumerate(self.right, start=1):
            branches = [self.branch(number, right=right), Branch(0, 91, Proposal((1,), (0,)))]
            await stream.say(ahead_request(self.number, number, version, branches))

    def branch(self, number: int, *, right: bool) -> Branch:
        """A round's right tokens are all accepted; a prompt has none."""
        sent = number % 4 + 1 if number else 0
        sure = continued(self.prompt + self.output, sent + 1)
        after = Drafting(self.number, self.prompt)
        after.output = self.output + sure
        return Branch(
            sent + 1 if sent else 0, sure[-1] if right else sure[-1] + 1, after.proposal(number + 1)
        )


class OneStep:
    """In the place of an engine's gate: it lets one step through each time."""

    def __init__(self) -> None:
        self._steps = threading.Semaphore(0)

    def set(self) -> None:
        self._steps.release()

    def wait(self, timeout: float) -> bool:
        return self._steps.acquire(timeout=timeout)


async def all_taken(stream: Stream, unused: int) -> None:
    """What was said on the stream: a session that there is not is refused, in its turn, and only once."""
    await stream.say(mode_request(unused, server_drafts=True))
    event = await stream.hear()
    assert isinstance(event, SessionRefused)
    assert event.session == unused


@pytest.mark.parametrize(
    ("right", "taken"), [([True], 1), ([False], 0), ([False, True], 2), ([True, False], 0), ([], 0)]
)
def test_a_round_foreseen_goes_on_by_itself_and_the_output_stays(right: list[bool], taken: int) -> None:
    async def scenario() -> None:
        async with serving() as (server, engine, port):
            engine.gate = OneStep()  # type: ignore[assignment]
            stream, session, rounds = Stream(port), Foreseeing(1, [3, 4], right), 0
            assert limits_of(await stream.describe()).max_ahead == 32
            await session.open(stream)
            for number in count():
                await session.ahead(stream, number)
                await all_taken(stream, 100 + number)
                engine.gate.set()
                event = await stream.hear()
                assert isinstance(event, Verdict)
                assert (event.number, event.version) == (number, 0 if event.ended else taken)
                assert len(event.path) == len(event.tokens) - 1 or event.ended
                session.output += event.tokens
                if event.ended:
                    break
                if not event.version:
                    rounds += 1
                    await stream.say(round_request(1, number + 1, session.proposal(number + 1)))
            assert session.output == continued(session.prompt, session.max_tokens)
            assert rounds == (0 if taken else number)
            verified = [command for command in engine.seen if isinstance(command, Propose)]
            assert [command.number for command in verified] == list(range(1, number + 1))
            page = server._metrics.render().decode()
            labels = '{engine="0",model_name="scripted"}'
            assert f"specops_edge_server_rounds_total{labels} {number:.1f}" in page
            assert f"specops_edge_server_rounds_ahead_total{labels} {number - rounds:.1f}" in page
            await stream.cut()

    asyncio.run(scenario())
