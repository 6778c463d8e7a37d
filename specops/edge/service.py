"""The gRPC service: clients' streams, the engine's process, and the session table between them.

All of it runs in one event loop, so nothing is locked. The number of waiting messages to a client is limited.
A client that does not read loses its stream, and may resume its sessions on another.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import shlex
import time
from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from specops.edge import messages
from specops.edge import verification_pb2 as pb
from specops.edge.link import ClientTurn, Reason, ServerLimits, SessionRefused
from specops.edge.messages import (
    Begin,
    Command,
    Commands,
    End,
    EngineMessage,
    Failed,
    PackedConnection,
    Propose,
    StepResults,
)
from specops.edge.server_metrics import ServiceMetrics
from specops.edge.sessions import Answer, Effects, RoundVerdict, Sessions
from specops.edge.wire import (
    SERVICE,
    WireError,
    description_of,
    read_request,
    refusal_response,
    turn_response,
    verdict_response,
)
from specops.errors import FileError, UsageError
from specops.hints import with_options
from specops.serve.admission import bearer_token
from specops.serve.worker_process import Worker

METADATA = "authorization"
"""Name of the metadata entry in which a client sends `Bearer TOKEN`."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TOKEN = re.compile(r"[!-~]{8,512}")


class TokenAccess:
    def __init__(self, tokens: Mapping[str, str]) -> None:
        """tokens: by the name of the owner; the name "" is not allowed. Without any token, everyone has
        access, without a name."""
        self._tokens = {name: token.encode() for name, token in tokens.items()}

    def name(self, authorization: str | bytes) -> str | None:
        """Name of the sender of this authorization; None for an unknown token."""
        if not self._tokens:
            return ""
        header = authorization.encode("utf-8", "replace") if isinstance(authorization, str) else authorization
        sent = bearer_token(header)
        # All are compared, each in constant time: how long it takes says nothing about any of them.
        names = [name for name, token in self._tokens.items() if hmac.compare_digest(sent, token)]
        return names[0] if names else None


def own_token(text: str) -> dict[str, str]:
    """The one token of a server whose clients have no names. Raises UsageError, which does not show it."""
    if not _TOKEN.fullmatch(text):
        raise UsageError(
            "invalid token in SPECOPS_EDGE_TOKEN: expected 8 to 512 letters, digits and signs of ASCII, "
            "without "
            "spaces",
            hint="export SPECOPS_EDGE_TOKEN=$(openssl rand -hex 16)",
        )
    return {"": text}


def read_tokens(file: Path) -> dict[str, str]:
    """Lines of `name=token`; blank ones and those that begin with # are left out.

    Raises FileError where it cannot be read, UsageError where a line is wrong. No message shows a token.
    """
    try:
        lines = file.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not plain ASCII"
        raise FileError(f"could not read the tokens in {file}: {reason}") from error
    tokens: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        name, _, token = line.partition("=")
        if not (_NAME.fullmatch(name) and _TOKEN.fullmatch(token)):
            raise UsageError(
                f"invalid token in {file}, line {number}: expected name=token, with letters, digits, . _ "
                "and - "
                "in the name, and at least 8 characters in the token",
                hint=f"sed -n {number}p {shlex.quote(str(file))}",
            )
        if name in tokens or token in tokens.values():
            raise UsageError(f"line {number} of {file} repeats a name or a token")
        tokens[name] = token
    if not tokens:
        raise UsageError(
            f"there are no tokens in {file}: expected a line name=token",
            hint=f"{with_options({'--token-file': None})}  # requires no token",
        )
    return tokens


class Outgoing:
    """Messages that wait to be sent to one client: limited in number, and read by one task.

    asyncio.Queue took a twentieth of a round's CPU: it serves several readers and counts finished tasks.
    """

    def __init__(self, most: int) -> None:
        """most: limit on waiting messages."""
        self._most = most
        self._waiting: deque[bytes | None] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, data: bytes | None) -> bool:
        """Add a message. Returns False if there is no room. None: no message follows."""
        if len(self._waiting) >= self._most:
            return False
        self._waiting.append(data)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
        return True

    async def get(self) -> bytes | None:
        if not self._waiting:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._waiting.popleft()


WAIT_S = 1e-3
"""Longest wait in seconds, so that commands from during a step are at the engine when the step ends."""


class CommandBatch:
    """Commands to the engine, sent together if the engine could not act on the first one earlier.

    Each write wakes the engine's process. As in Nagle's rule for packets (RFC 896), a command is sent at once
    while the engine is idle. Otherwise it waits for others until the engine's step has ended.
    """

    def __init__(
        self,
        send: Callable[[list[Command]], object],
        call_later: Callable[[float, Callable[[], None]], TimerHandle],
    ) -> None:
        """call_later: the event loop's."""
        self._send, self._call_later = send, call_later
        self._waiting: list[Command] = []
        self._timer: TimerHandle | None = None
        self._out: set[int] = set()  # keys of sessions with a prompt or a round in the engine

    def tell(self, commands: list[Command]) -> None:
        if not commands:
            return
        idle = not self._out
        self._add(commands)
        if idle:
            self.flush()
        elif self._timer is None:
            self._timer = self._call_later(WAIT_S, self.flush)

    def heard(self, keys: Iterable[int], commands: list[Command]) -> None:
        """Record that the engine has answered for the sessions `keys`, and send the `commands` that
        follow."""
        self._out.difference_update(keys)
        self._add(commands)
        self.flush()

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            commands, self._waiting = self._waiting, []
            self._send(commands)

    def _add(self, commands: list[Command]) -> None:
        self._waiting += commands
        for command in commands:
            if isinstance(command, Begin | Propose):
                self._out.add(command.key)
            elif isinstance(command, End):
                self._out.discard(command.key)


log = logging.getLogger(__name__)

_PENDING = 1024  # messages that may wait for one client, beside a few for each of its sessions
_SWEEP_S = 1.0  # between two looks for sessions to forget

Context = aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class _Stream:
    number: int
    peer: str
    outgoing: Outgoing
    slow: asyncio.Event = field(default_factory=asyncio.Event)


class VerificationService:
    def __init__(
        self,
        worker: Worker,
        limits: ServerLimits,
        sessions: Sessions,
        metrics: ServiceMetrics,
        access: TokenAccess,
        max_streams: int,
    ) -> None:
        """The service ends the worker when it stops."""
        self.limits = limits
        self.sessions = sessions
        self.failed = asyncio.Event()
        self.failure: str | None = None  # what broke the engine
        self._worker, self._engine = worker, PackedConnection[EngineMessage](worker.connection, EngineMessage)
        self._metrics, self._access, self._max_streams = metrics, access, max_streams
        self._draining, self._drained = False, asyncio.Event()
        self._streams: dict[int, _Stream] = {}
        self._numbers = count()

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler. It takes and gives bytes, so that undecodable messages get an error text and all
        bytes are counted."""
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Describe": grpc.unary_unary_rpc_method_handler(self._describe),
            "Verify": grpc.stream_stream_rpc_method_handler(self._verify),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def start(self) -> None:
        """Listen to the engine, in the running event loop."""
        self._events = asyncio.get_running_loop()
        self._gathering = CommandBatch(self._tell, self._events.call_later)
        self._events.add_reader(self._worker.connection, self._hear)
        self._sweeping = self._events.create_task(self._sweep())

    async def stop(self) -> None:
        """Stop the engine after its current step."""
        self._sweeping.cancel()
        self._events.remove_reader(self._worker.connection)
        self._gathering.flush()
        self._tell(None)
        await asyncio.to_thread(self._worker.join)

    async def drain(self) -> None:
        """Begin no new sessions, and wait for those on a stream to end."""
        self.sessions.drain()
        self._draining = True
        self._look_whether_drained()
        await self._drained.wait()

    def end(self, reason: Reason, message: str) -> int:
        """Refuse every session and end the streams. Returns the number of sessions that were cut off."""
        cut = self.sessions.running
        self._carry_out(self.sessions.end(reason, message))
        for stream in self._streams.values():
            self._put(stream, None)
        return cut

    # --- calls --------------------------------------------------------------------------------

    async def _describe(self, request: bytes, context: Context) -> bytes:
        await self._name(context)
        return description_of(self.limits).SerializeToString()

    async def _verify(self, _: Any, context: Context) -> None:
        name = await self._name(context)
        if len(self._streams) >= self._max_streams:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "this server has no stream left")
        # Sent alone: while a first answer is being written, gRPC can send no status.
        await context.send_initial_metadata(())
        outgoing = Outgoing(_PENDING + 4 * self.limits.max_sessions)
        stream = _Stream(next(self._numbers), context.peer(), outgoing)
        self._streams[stream.number] = stream
        self.sessions.connected(stream.number, owner=name, client=name or stream.peer)
        tasks = [
            asyncio.create_task(work)
            for work in (self._read(stream, context), self._write(stream, context), stream.slow.wait())
        ]
        reading, writing, _ = tasks
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if stream.slow.is_set():
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the client does not read answers")
            for task in done & {reading, writing}:
                task.result()
        except WireError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)
        finally:
            for task in tasks:
                task.cancel()
            del self._streams[stream.number]
            self._carry_out(self.sessions.gone(stream.number, time.perf_counter()))

    async def _name(self, context: Context) -> str:
        authorization = dict(context.invocation_metadata() or ()).get(METADATA, "")
        name = self._access.name(authorization)
        if name is None:
            self._metrics.unauthenticated += 1
            message = "the token is wrong or missing; send it as the metadata authorization: Bearer TOKEN"
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)
        assert name is not None  # abort raises
        return name

    async def _read(self, stream: _Stream, context: Context) -> None:
        """Read a client's messages until it ends the stream or sends an invalid message."""
        while (data := await context.read()) is not aio.EOF:
            now = time.perf_counter()
            self._metrics.received += len(data)
            try:
                effects = self.sessions.request(stream.number, read_request(data, self.limits), now)
            except WireError as error:
                if error.session is None:
                    raise
                effects = self.sessions.refused(stream.number, error)
            self._carry_out(effects)

    async def _write(self, stream: _Stream, context: Context) -> None:
        while (data := await stream.outgoing.get()) is not None:
            await context.write(data)

    # --- effects ------------------------------------------------------------------------------

    def _carry_out(self, effects: Effects) -> None:
        self._gathering.tell(effects.commands)
        self._answer(effects.answers)

    def _answer(self, answers: list[tuple[int, Answer]]) -> None:
        for number, answer in answers:
            if isinstance(answer, SessionRefused):
                self._metrics.refusals[answer.reason] += 1
                log.info("%s: %s: %s", self._streams[number].peer, answer.reason, answer.message)
            self._put(self._streams[number], _response(answer).SerializeToString())
        self._look_whether_drained()

    def _look_whether_drained(self) -> None:
        if self._draining and not self.sessions.running:
            self._drained.set()

    def _put(self, stream: _Stream, data: bytes | None) -> None:
        if stream.outgoing.put(data):
            self._metrics.sent += len(data or b"")
        else:
            stream.slow.set()

    def _tell(self, commands: Commands) -> None:
        self._metrics.rounds += sum(isinstance(command, Propose) for command in commands or ())
        with suppress(OSError):  # an engine that has died is heard of by `_hear`
            self._engine.send(commands)

    # --- the engine ---------------------------------------------------------------------------

    def _hear(self) -> None:
        """Read one message of the engine. The event loop calls again if there are more, which costs less
        than a check."""
        try:
            report: EngineMessage = self._engine.recv()
        except (EOFError, OSError):
            report = Failed("its process has ended")
        if isinstance(report, StepResults):
            self._metrics.stepped(report)
            effects = self.sessions.stepped(report, time.perf_counter())
            self._gathering.heard([ruling.key for ruling in report.rulings], effects.commands)
        elif isinstance(report, messages.SequenceRefused):
            effects = self.sessions.unfit(report)
            self._gathering.heard([report.key], effects.commands)
        else:
            self._fail(report)
            return
        self._answer(effects.answers)

    def _fail(self, failed: Failed) -> None:
        if self.failure is None:
            self._events.remove_reader(self._worker.connection)
            self.failure = failed.error
            self.end("failed", "the engine failed; this server ends")
            self.failed.set()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            self._carry_out(self.sessions.expire(time.perf_counter()))


def _response(answer: Answer) -> pb.Response:
    if isinstance(answer, RoundVerdict):
        return verdict_response(answer.session, answer.ruling, answer.step_s, answer.version)
    if isinstance(answer, ClientTurn):
        return turn_response(answer)
    return refusal_response(answer)
