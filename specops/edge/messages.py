"""The messages between the service and the engine's process: plain data, sent as MessagePack."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct, field, msgpack

from specops.edge.link import Proposal
from specops.engine.request import Counters, Sampling


class Message(Struct, frozen=True, array_like=True, tag=True):
    """A message. Its type comes first, so that one of several types can be decoded."""


class Begin(Message, frozen=True):
    """Read a prompt. The first verdict, number 0, comes without a round."""

    key: int  # the service's number for the session
    client: int  # whose it is: batches are shared out fairly between clients
    prompt: list[int]
    sampling: Sampling
    server_drafts: bool


class Propose(Message, frozen=True):
    key: int
    number: int
    proposal: Proposal
    arrived: float  # time.perf_counter


class SetMode(Message, frozen=True):
    """Set who drafts from the next step on."""

    key: int
    server_drafts: bool


class End(Message, frozen=True):
    key: int


Command: TypeAlias = Begin | Propose | SetMode | End
Commands: TypeAlias = list[Command] | None
"""One message to the engine. None: stop."""


@dataclass(frozen=True)
class Ready:
    """The first message, not packed (serve/process.py): the engine is loaded."""

    max_length: int  # prompt and output tokens of one session
    rows: int = 0  # sessions that have a place in the cache at a time
    vocabulary: int = 0
    eos: frozenset[int] = frozenset()


class SequenceVerdict(Struct, frozen=True, array_like=True):
    """Result of one step for one session."""

    key: int
    number: int
    path: list[int]
    tokens: list[int]
    ended: bool
    waited_s: float  # from the round's arrival to the step
    evicted: int  # tokens that were read again


class DraftingStopped(Struct, frozen=True, array_like=True):
    """A session for which the engine has stopped drafting: it now waits for rounds."""

    key: int
    number: int  # of the round that is due


class SequenceRefused(Message, frozen=True):
    """A session that the engine rejected."""

    key: int
    message: str


class Idle(Struct, frozen=True, array_like=True):
    """Times of an engine without work, in seconds since it began."""

    busy: float = 0.0  # in steps, and between two that follow at once
    starved: float = 0.0  # with sessions, but no rounds or too few of them: the pipeline's bubbles
    empty: float = 0.0  # without sessions


class StepResults(Message, frozen=True):
    """All results of a step, at one point in time."""

    started: float  # time.perf_counter
    ended: float
    rulings: list[SequenceVerdict]
    held: list[DraftingStopped]
    running: int  # sessions in rows
    parked: int  # without
    kv_usage: float  # 0 to 1
    counters: Counters = field(default_factory=Counters)
    idle: Idle = Idle()


class Failed(Message, frozen=True):
    """The engine has failed; no message follows."""

    error: str


EngineMessage: TypeAlias = StepResults | SequenceRefused | Failed
"""One message of the engine after Ready."""

Heard = TypeVar("Heard")

_ENCODER = msgpack.Encoder()


class PackedConnection(Generic[Heard]):
    """One end of a connection whose both ends pack messages with msgpack. Its owner closes the connection.

    Pickle took a sixth of the service's CPU for a round, since it names its classes in each message.
    """

    def __init__(self, connection: Connection, heard: Any) -> None:
        """heard: type of the messages from the other end."""
        self._connection = connection
        self._decoder: msgpack.Decoder[Heard] = msgpack.Decoder(heard)

    def send(self, message: object) -> None:
        self._connection.send_bytes(_ENCODER.encode(message))

    def recv(self) -> Heard:
        """Wait for a message and return it. Raises EOFError if the other end is closed."""
        return self._decoder.decode(self._connection.recv_bytes())
