"""One session of the service as it stands, and what a message to it can lead to: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct

from specops.edge.link import Refused, Turn
from specops.edge.messages import Command, Ruling
from specops.edge.proposal import Proposal


@dataclass(frozen=True)
class Limits:
    sessions: int  # in all that have not ended
    per_client: int
    resume_s: float  # how long one outlives its stream, and its end


class Ruled(Struct, frozen=True):
    """A verdict; `session` is the client's number."""

    session: int
    ruling: Ruling
    step_s: float
    taken: int = 0  # version of what was sent ahead, if the next round is of it


Answer: TypeAlias = Ruled | Turn | Refused


@dataclass
class Effects:
    """What follows from a message."""

    commands: list[Command] = field(default_factory=list)
    answers: list[tuple[int, Answer]] = field(default_factory=list)  # by stream


@dataclass
class Stream:
    owner: str  # who may take up its sessions
    client: str  # whose share they have
    sessions: dict[int, Session] = field(default_factory=dict)  # by the client's number
    late: dict[int, None] = field(default_factory=dict)  # refused numbers, oldest first


@dataclass
class Client:
    number: int
    sessions: int = 0  # that have not ended


@dataclass(frozen=True)
class Foreseen:
    """What the client would send after the round that is out, for some of the ways in which it may end."""

    version: int = 0  # 0: nothing was sent
    trees: Mapping[tuple[int, int], Proposal] = field(default_factory=dict)  # by last accepted node and bonus


NOTHING = Foreseen()


@dataclass(eq=False)
class Session:
    key: int
    name: tuple[str, bytes]  # owner, and the key that the client gave it
    client: str
    wanted: bool  # the client wants the server to draft
    drafting: bool  # the engine drafts for it
    stopping: bool = False  # and was told to stop
    out: bool = True  # its prompt or a round is in the engine
    due: int = 0  # number of the next verdict
    output: list[int] = field(default_factory=list)
    sent: int = 0  # output tokens that the client has, or that are on their way on its stream
    owed: int = 0  # Turns
    ahead: Foreseen = NOTHING  # only while the client's next word would be a round
    ended: bool = False
    at: tuple[int, int] | None = None  # stream and number
    since: float = 0.0  # when it was last ruled on or taken up, or lost its stream

    @property
    def quiet(self) -> bool:
        return self.ended or not (self.out or self.drafting)
