"""Clients of a verify-server that behave badly, each in its own way; a process of many, which may be killed.

    python soak_herd.py < JSON     port, seed, clients, sessions of each (-1: until SIGTERM, after which those
                                   that run may end), vocabulary, prompts, outputs of greedy decoding

It speaks verification.proto by itself, without the project's client. So it knows of every verdict whether it
is right: the tokens, and how much of the tree was accepted. One JSON line on stdout for every session that
came to its end: {"kind": …, "ok": …, "why": …}.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc import aio
from soak_session import Session, Wrong

from specops.edge import verification_pb2 as pb

VERIFY = "/specops.edge.v1.Verification/Verify"
PATIENCE_S = 120.0
"""Without a word from the server a session is lost. Far longer than anything takes."""

KINDS = {"steady": 4, "broken": 4, "switching": 2, "slow": 1, "gone": 1, "nonsense": 3, "garbled": 1}
"""How a client behaves, and how often of 16."""

NONSENSE = ("number", "parents", "token", "oversize", "twice", "unknown", "key", "nothing", "siblings")


class Stream:
    """One call of Verify; what comes is dealt out to its sessions."""

    def __init__(self, channel: aio.Channel) -> None:
        verify: Any = channel.stream_stream(VERIFY)
        self._call = verify()
        self.sessions: dict[int, Session] = {}
        self._reading = asyncio.create_task(self._read())

    async def send(self, number: int, **kind: Any) -> None:
        await self._call.write(pb.Request(session=number, **kind).SerializeToString())

    async def send_bytes(self, data: bytes) -> None:
        await self._call.write(data)

    async def code(self) -> grpc.StatusCode:
        code: grpc.StatusCode = await asyncio.wait_for(self._call.code(), PATIENCE_S)
        return code

    async def _read(self) -> None:
        try:
            while (data := await self._call.read()) is not aio.EOF:
                response = pb.Response.FromString(data)
                if (session := self.sessions.get(response.session)) is not None:
                    session.inbox.put_nowait(response)
        except (grpc.RpcError, asyncio.CancelledError):
            pass
        for session in self.sessions.values():
            session.inbox.put_nowait(None)

    async def end(self) -> None:
        self._call.cancel()
        await self._reading


class Client:
    def __init__(
        self,
        asked: dict[str, Any],
        number: int,
        tell: Callable[[str, str | None], None],
        over: asyncio.Event,
    ) -> None:
        """over: begin nothing more."""
        self._asked, self._over = asked, over
        self._chance = random.Random(f"{asked['seed']} {number}")
        self._numbers = iter(range(1, 2**31))
        self._tell = tell

    async def run(self) -> None:
        kinds = [kind for kind, weight in KINDS.items() for _ in range(weight)]
        self._chance.shuffle(kinds)
        left = self._asked["sessions"]
        async for channel in self._channels():
            if self._over.is_set():
                return
            kind = kinds[left % len(kinds)]
            try:
                await asyncio.wait_for(self._behave(kind, channel), 4 * PATIENCE_S)
                self._tell(kind, None)
            except Wrong as wrong:
                self._tell(kind, str(wrong))
            except (grpc.RpcError, TimeoutError, asyncio.InvalidStateError) as error:
                self._tell(kind, f"{type(error).__name__}: {error}")
            left -= 1
            if left == 0:  # of a negative number: never
                return

    async def _channels(self) -> AsyncIterator[aio.Channel]:
        options = [("grpc.use_local_subchannel_pool", 1)]
        while True:
            async with aio.insecure_channel(f"127.0.0.1:{self._asked['port']}", options) as channel:
                yield channel

    async def _behave(self, kind: str, channel: aio.Channel) -> None:
        stream = Stream(channel)
        try:
            if kind == "garbled":
                return await self._garbled(stream)
            if kind == "nonsense":
                return await self._nonsense(stream)
            session = self._session()
            drafts = kind == "switching" and self._chance.random() < 0.5
            await self._open(stream, session, server_drafts=drafts)
            if kind == "broken":
                stream = await self._broken(channel, stream, session)
            elif kind == "switching":
                await self._switching(stream, session, drafts)
            elif kind == "gone":
                await self._rounds(stream, session, self._chance.randint(1, 4))
                return None  # and never comes back
            else:
                await self._rounds(stream, session, slow=kind == "slow")
            if not session.ended:
                raise Wrong(f"it is not whole: {len(session.output)} of {len(session.expected)} tokens")
            await stream.send(session.number, close=pb.Close())
        finally:
            await stream.end()

    def _session(self, *, whole: bool = False) -> Session:
        which = self._chance.randrange(len(self._asked["prompts"]))
        prompt, expected = self._asked["prompts"][which], self._asked["outputs"][which]
        length = len(expected) if whole else self._chance.randint(2, len(expected))
        return Session(next(self._numbers), self._chance.randbytes(16), prompt, expected[:length])

    async def _open(self, stream: Stream, session: Session, *, server_drafts: bool = False) -> None:
        """Until the server has a place."""
        stream.sessions[session.number] = session
        while True:
            sampling = pb.Sampling(max_tokens=len(session.expected), ignore_eos=True, top_p=1.0)
            begun = pb.Open(
                key=session.key, prompt=session.prompt, sampling=sampling, server_drafts=server_drafts
            )
            await stream.send(session.number, open=begun)
            said = await self._hear(session)
            if said.WhichOneof("kind") != "refusal":
                session.verdict(said.verdict)
                return
            if said.refusal.reason != pb.Refusal.BUSY:
                raise Wrong(f"refused at the beginning: {said.refusal.message}")
            await asyncio.sleep(said.refusal.retry_ms / 1000 * self._chance.uniform(0.5, 1.5))

    async def _hear(self, session: Session) -> pb.Response:
        said = await asyncio.wait_for(session.inbox.get(), PATIENCE_S)
        if said is None:
            raise Wrong("the stream ended")
        return said

    async def _rounds(
        self, stream: Stream, session: Session, count: int | None = None, *, slow: bool = False
    ) -> None:
        """So many, or to the end."""
        while not session.ended and count != 0:
            await stream.send(session.number, round=session.grow(self._chance, self._asked["vocabulary"]))
            if slow:
                await asyncio.sleep(self._chance.uniform(0.0, 0.2))
            said = await self._hear(session)
            if said.WhichOneof("kind") != "verdict":
                raise Wrong(f"a round was answered by {said}")
            session.verdict(said.verdict)
            count = None if count is None else count - 1

    async def _broken(self, channel: aio.Channel, stream: Stream, session: Session) -> Stream:
        """The stream breaks with a round out, or without, and the session is taken up on another."""
        while not session.ended:
            await self._rounds(stream, session, self._chance.randint(0, 2))
            if session.ended:
                break
            if self._chance.random() < 0.7:
                await stream.send(session.number, round=session.grow(self._chance, self._asked["vocabulary"]))
            await stream.end()
            session.inbox = asyncio.Queue()
            session.number = next(self._numbers)
            stream = Stream(channel)
            stream.sessions[session.number] = session
            await stream.send(
                session.number,
                open=pb.Open(
                    key=session.key,
                    sampling=pb.Sampling(max_tokens=1, top_p=1.0),
                    known=len(session.output),
                ),
            )
            said = await self._hear(session)
            if said.WhichOneof("kind") != "turn":
                raise Wrong(f"a session taken up was answered by {said}")
            session.turn(said.turn)
        return stream

    async def _switching(self, stream: Stream, session: Session, drafts: bool) -> None:
        """The server drafts for a while, then the client again."""
        while not session.ended:
            if not drafts:
                await self._rounds(stream, session, self._chance.randint(0, 2))
                if session.ended:
                    return
                await stream.send(session.number, mode=pb.Mode(server_drafts=True))
            for _ in range(self._chance.randint(0, 3)):
                if not session.ended:
                    session.verdict((await self._hear(session)).verdict)
            await stream.send(session.number, mode=pb.Mode(server_drafts=False))
            drafts = False
            while (said := await self._hear(session)).WhichOneof("kind") == "verdict":
                session.verdict(said.verdict)
            if said.WhichOneof("kind") == "turn":
                session.turn(said.turn)
            else:
                raise Wrong(f"a change of mode was answered by {said}")

    async def _nonsense(self, stream: Stream) -> None:
        """One session talks nonsense and is refused; another on the same stream goes on and is right."""
        good, bad = self._session(), self._session(whole=True)  # which is too long to end in a round
        await self._open(stream, good)
        await self._open(stream, bad)
        await self._say_nonsense(stream, bad, self._chance.choice(NONSENSE))
        await self._rounds(stream, good)
        if not good.ended:
            raise Wrong("the neighbour of nonsense is not whole")
        await stream.send(good.number, close=pb.Close())

    async def _say_nonsense(self, stream: Stream, bad: Session, kind: str) -> None:
        said = bad.grow(self._chance, self._asked["vocabulary"])
        number = bad.number
        wanted = {"oversize": pb.Refusal.TOO_LARGE, "unknown": pb.Refusal.UNKNOWN}
        request: dict[str, Any] = {"round": said}
        if kind == "number":
            said.number += 7
        elif kind == "parents":
            said.parents[-1] = len(said.tokens) + 3
        elif kind == "token":
            said.tokens[0] = 2**31
        elif kind == "siblings":
            said.tokens.append(said.tokens[0])
            said.parents.append(0)
        elif kind == "oversize":
            said.tokens[:] = [0] * 5000
            said.parents[:] = range(5000)
        elif kind == "twice":
            await stream.send(number, round=said)
        elif kind == "nothing":
            request = {}
        else:
            bad = Session(next(self._numbers), b"", [], [])
            number = bad.number
            stream.sessions[number] = bad
            begun = pb.Open(key=b"short", prompt=[1], sampling=pb.Sampling(max_tokens=1, top_p=1.0))
            if kind == "unknown":  # a session that was never begun is not there to be taken up
                begun = pb.Open(key=self._chance.randbytes(16), known=3, sampling=begun.sampling)
            request = {"open": begun}
        await stream.send(number, **request)
        while (answer := await self._hear(bad)).WhichOneof("kind") != "refusal":
            if kind != "twice":
                raise Wrong(f"nonsense ({kind}) was answered by {answer}")
        reason = answer.refusal.reason
        if reason != wanted.get(kind, pb.Refusal.NONSENSE):
            raise Wrong(f"nonsense ({kind}) was refused as {pb.Refusal.Reason.Name(reason)}")

    async def _garbled(self, stream: Stream) -> None:
        """What is no message at all ends the stream, with a status that says why."""
        session = self._session()
        await self._open(stream, session)
        huge = self._chance.random() < 0.3
        await stream.send_bytes(b"\xff" * (2**23 if huge else 64))
        code = await stream.code()
        if code not in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED):
            raise Wrong(f"garbage ended the stream with {code.name}")


async def main() -> None:
    asked = json.loads(sys.stdin.readline())

    def tell(kind: str, why: str | None) -> None:
        print(json.dumps({"kind": kind, "ok": why is None, "why": why}), flush=True)

    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    clients = [Client(asked, number, tell, over) for number in range(asked["clients"])]
    await asyncio.gather(*(client.run() for client in clients))


if __name__ == "__main__":
    asyncio.run(main())
