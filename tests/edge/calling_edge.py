"""A verification server in a test's event loop, and the plainest client of it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc import aio
from scripted_engine import ScriptedEngine, following

from specops.edge import verification_pb2 as pb
from specops.edge.link import ClientTurn, Event, Proposal, SessionRefused, Verdict
from specops.edge.server import ServiceSettings, VerifyServer
from specops.edge.wire import SERVICE, close_request, event_of, mode_request, open_request, round_request
from specops.engine.request import Sampling
from specops.serve.admission import bind

DEADLINE = 60.0  # seconds for what a correct server does at once


async def within(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, DEADLINE)


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.002)


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[tuple[VerifyServer, ScriptedEngine, int]]:
    engine = ScriptedEngine()
    server = VerifyServer(engine.worker, ServiceSettings(model="scripted", tokenizer=b"t" * 32, **settings))
    with bind("127.0.0.1", 0) as bound:
        port = await server.start(bound)
        try:
            yield server, engine, port
        finally:
            engine.gate.set()
            await within(server.stop())


class Stream:
    """One stream to a server; what comes is kept by session."""

    def __init__(
        self,
        port: int,
        *,
        token: str | None = None,
        tls: bytes | None = None,
        options: tuple[tuple[str, int], ...] = (),
    ) -> None:
        target, options = f"localhost:{port}", (("grpc.enable_retries", 0), *options)
        self.channel = (
            aio.insecure_channel(target, options)
            if tls is None
            else aio.secure_channel(target, grpc.ssl_channel_credentials(tls), options)
        )
        self.metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        self.call = self.channel.stream_stream(f"/{SERVICE}/Verify")(metadata=self.metadata)

    async def describe(self) -> pb.Description:
        said = await within(
            self.channel.unary_unary(f"/{SERVICE}/Describe")(b"", metadata=self.metadata, timeout=DEADLINE)
        )
        return pb.Description.FromString(said)

    async def say(self, request: pb.Request | bytes) -> None:
        await within(self.call.write(request if isinstance(request, bytes) else request.SerializeToString()))

    async def hear(self) -> Event:
        data = await within(self.call.read())
        assert data is not aio.EOF, "the stream has ended"
        return event_of(data, time.perf_counter())

    async def cut(self) -> None:
        self.call.cancel()
        await self.channel.close()


class Drafting:
    """One session that drafts right and wrong tokens in turn, on whichever stream it is given."""

    def __init__(self, number: int, prompt: list[int], max_tokens: int = 60) -> None:
        self.number, self.prompt, self.max_tokens = number, prompt, max_tokens
        self.key = secrets.token_bytes(16)
        self.output: list[int] = []
        self.ended = False
        self.refused: SessionRefused | None = None

    async def open(self, stream: Stream, *, server_drafts: bool = False) -> None:
        sampling = Sampling(max_tokens=self.max_tokens)
        known = len(self.output)
        await stream.say(
            open_request(
                self.number, self.key, self.prompt, sampling, acknowledged=known, server_drafts=server_drafts
            )
        )

    async def take(self, stream: Stream, event: Event, *, server_drafts: bool = False) -> None:
        """What came, and the round that follows from it."""
        if isinstance(event, SessionRefused):
            self.refused = event
            return
        assert isinstance(event, ClientTurn | Verdict)
        self.output += event.tokens
        self.ended = event.ended
        if not self.ended and not server_drafts:
            number = event.number + isinstance(event, Verdict)
            await stream.say(round_request(self.number, number, self.proposal(number)))

    def proposal(self, number: int) -> Proposal:
        """The right token with another beside it, below the right one as many right ones as `number` says."""
        tokens = self.prompt + self.output
        right = following(tokens)
        proposed, parents = [(right + 1) % 90, right], [0, 0]
        for _ in range(number % 4):
            tokens = [*tokens, proposed[-1]]
            proposed.append(following(tokens))
            parents.append(len(parents))
        return Proposal(tuple(proposed), tuple(parents))

    async def close(self, stream: Stream) -> None:
        await stream.say(close_request(self.number))

    async def draft(self, stream: Stream, *, server: bool) -> None:
        await stream.say(mode_request(self.number, server_drafts=server))


async def finish(stream: Stream, *sessions: Drafting) -> None:
    """Go on until all have ended or were refused."""
    by_number = {session.number: session for session in sessions}
    while not all(session.ended or session.refused for session in sessions):
        event = await stream.hear()
        assert isinstance(event, ClientTurn | Verdict | SessionRefused)
        await by_number[event.session].take(stream, event)
