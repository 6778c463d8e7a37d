"""The service where there is too much, and where it ends: full tables, deaf clients, drains, dead engines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from calling_edge import Drafting, Stream, finish, serving, until, within
from grpc import aio
from grpc._cython import cygrpc  # type: ignore[attr-defined]
from scripted_engine import continued

from specops.edge import service
from specops.edge.server import OPTIONS
from specops.edge.wire import mode_request, open_request
from specops.engine.request import Sampling


def test_a_full_server_sends_clients_away_for_a_while_and_takes_them_when_there_is_room() -> None:
    async def scenario() -> None:
        async with serving(sessions=3, sessions_per_client=2) as (_, _, port):
            one, two = Stream(port), Stream(port)
            sessions = [Drafting(number, [number]) for number in (1, 2, 3, 4, 5)]
            for session in sessions[:3]:
                await session.open(one)
            for session in sessions[3:]:
                await session.open(two)
            await finish(one, *sessions[:3])
            third = sessions[2].refused
            assert third is not None
            assert (third.reason, third.retry_s > 0) == ("busy", True)
            assert "at most 2 sessions" in third.message
            await finish(two, *sessions[3:])
            for session in sessions:
                if session.refused:
                    session.refused = None
                    await session.open(two)
                    await finish(two, session)
                assert session.output == continued(session.prompt, 60)
            await one.cut()
            await two.cut()

    asyncio.run(scenario())


def test_who_does_not_read_loses_the_stream_and_nobody_else_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_PENDING", 8)

    async def scenario() -> None:
        async with serving(sessions_per_client=40) as (server, engine, port):
            deaf, good = Stream(port), Stream(port)
            # The server drafts for it, and it takes nothing: what gRPC holds of a stream runs full as well.
            engine.gate.clear()
            endless = Sampling(max_tokens=3900)
            for number in range(1, 40):
                key = bytes([number]) * 16
                await deaf.say(open_request(number, key, [3], endless, server_drafts=True))
            engine.gate.set()
            session = Drafting(1, [5])
            await session.open(good)
            await finish(good, session)
            assert session.output == continued([5], 60)
            sessions = server.service.sessions
            await until(lambda: sessions.parked and not sessions.running, "the deaf client's stream is ended")
            await deaf.cut()
            await good.cut()

    asyncio.run(scenario())


def test_who_is_answered_more_than_may_wait_is_told_so_even_before_the_first_answer_is_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "_PENDING", 1)

    async def scenario() -> None:
        async with serving(sessions_per_client=1) as (server, engine, port):
            stream, table, taken = Stream(port), server.service.sessions, []
            request = table.request
            monkeypatch.setattr(table, "request", lambda *what: (taken.append(what), request(*what))[1])
            engine.gate.clear()
            await stream.say(open_request(1, bytes(16), [3], Sampling()))
            for _ in range(20):
                await stream.say(mode_request(1, server_drafts=False))
            await until(lambda: len(taken) == 21, "all of it is taken, and nothing answered")
            engine.gate.set()
            with pytest.raises(aio.AioRpcError) as caught:
                await hear_all(stream)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            await stream.cut()

    asyncio.run(scenario())


def test_a_drain_lets_running_sessions_finish_begins_none_and_then_ends_the_streams() -> None:
    async def scenario() -> None:
        async with serving() as (server, _, port):
            stream, running, late = Stream(port), Drafting(1, [3]), Drafting(2, [4])
            await running.open(stream)
            await running.take(stream, await stream.hear())
            assert await health(stream) == b"\x08\x01"
            draining = asyncio.create_task(server.drain())
            await asyncio.sleep(0)
            await late.open(stream)
            await finish(stream, running, late)
            assert running.output == continued([3], 60)
            assert late.refused is not None
            assert late.refused.reason == "draining"
            assert await health(stream) == b"\x08\x02"
            await within(draining)
            assert await server.stop() == 0
            assert await within(stream.call.read()) is aio.EOF
            await stream.cut()

    asyncio.run(scenario())


async def hear_all(stream: Stream) -> None:
    while True:
        await stream.hear()


async def health(stream: Stream) -> bytes:
    return await within(stream.channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=60))


def test_at_the_end_of_the_grace_what_still_runs_is_told() -> None:
    async def scenario() -> None:
        async with serving() as (server, engine, port):
            stream, session = Stream(port), Drafting(1, [3])
            await session.open(stream)
            first = await stream.hear()
            engine.gate.clear()  # so that the round stays out
            await session.take(stream, first)
            stopping = asyncio.create_task(server.stop())
            await finish(stream, session)
            assert session.refused is not None
            assert session.refused.reason == "draining"
            engine.gate.set()
            assert await within(stopping) == 1
            await stream.cut()

    asyncio.run(scenario())


def test_an_engine_that_dies_is_told_to_every_client() -> None:
    async def scenario() -> None:
        async with serving() as (server, engine, port):
            stream, session = Stream(port), Drafting(1, [3])
            await session.open(stream)
            first = await stream.hear()
            engine.gate.clear()  # so that the round stays out
            await session.take(stream, first)
            engine.die()
            await within(server.service.failed.wait())
            await session.take(stream, await stream.hear())
            assert session.refused is not None
            assert session.refused.reason == "failed"
            assert await health(stream) == b"\x08\x02"
            await stream.cut()

    asyncio.run(scenario())


def test_grpc_knows_every_option_by_its_name() -> None:
    """It ignores those that it does not know: pings then end connections, which shows after half a minute."""
    library = Path(cygrpc.__file__).read_bytes()
    for name, _ in OPTIONS:
        assert name.encode() in library
