"""The link between client and server as the client uses it: drafts and verdicts as plain data, the interface.

A link numbers nothing and repeats nothing. When its connection breaks, it reports that, connects again and
reports that too. Whoever has open sessions then opens each of them again under its own key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from msgspec import Struct

from specops.engine.request import Sampling
from specops.engine.tree import Draw

TOKEN, WEIGHT = np.dtype("<u4"), np.dtype("<u2")
"""How they lie in what is drawn."""


class Drawn(Struct, frozen=True, array_like=True):
    """What the children of nodes were drawn from: of one, tokens[i] with probability weights[i] / their sum.

    Whole numbers, so that both ends have the same distribution to the last bit. Those of all nodes one after
    the other, as they go over the wire: of one tree they may be thousands.
    """

    nodes: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()  # of the same nodes: how many tokens
    tokens: bytes = b""  # TOKEN each, of one node ascending
    weights: bytes = b""  # WEIGHT each, at least 1


class Proposal(Struct, frozen=True, array_like=True):
    """A tree without its root, which is the session's last token."""

    tokens: tuple[int, ...]  # of nodes 1, 2, …
    parents: tuple[int, ...]  # of the same nodes
    draw: Draw = Draw.DETERMINISTIC
    drawn: Drawn = Drawn()


class Branch(Struct, frozen=True, array_like=True):
    """The tree of the next round, if that is how the one that is out ends."""

    end: int  # the node at which the accepted path ends; 0: the root
    bonus: int  # the token after it: the root of the tree
    proposal: Proposal


Reason = Literal["nonsense", "too large", "busy", "unknown", "draining", "failed"]
"""Of a refusal, as verification.proto explains them."""


def tokenizer_digest(tokenizer: Any) -> bytes:
    """SHA-256 of a transformers tokenizer's map from tokens to ids, in the order of the ids."""
    digest = hashlib.sha256()
    for token, number in sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0])):
        digest.update(f"{number}\0{token}\0".encode("utf-8", "surrogatepass"))
    return digest.digest()


@dataclass(frozen=True)
class Served:
    """What a server says of itself."""

    model: str
    vocabulary: int
    tokenizer: bytes
    """SHA-256 of its map from tokens to ids."""

    eos: frozenset[int]
    max_length: int
    max_nodes: int
    max_support: int
    max_sessions: int
    resume_s: float
    own_tree: str
    """What it drafts for itself; `none`: one token a step."""

    max_ahead: int = 0
    """Branches of what is sent ahead of a verdict; 0: nothing is to be sent. Of branches that were drawn,
    DRAWN_AHEAD at most."""


DRAWN_AHEAD = 4
"""What a tree was drawn from is thirty times as long as the tree, and one event loop reads it all."""


@dataclass(frozen=True)
class Verdict:
    session: int
    number: int
    path: list[int]
    """Accepted nodes of the proposal; empty of what the server drafted itself."""

    tokens: list[int]
    ended: bool
    waited_s: float
    """From the round's arrival to the beginning of its step."""

    step_s: float
    evicted: int
    """Tokens that were read again."""

    received: float
    """time.perf_counter"""

    taken: int = 0
    """The version of what was sent ahead, a branch of which is verified as the next round; 0: it is the
    client's turn."""


@dataclass(frozen=True)
class Turn:
    """It is the client's turn: the round that is due, and the output that it lacked."""

    session: int
    number: int
    tokens: list[int]
    ended: bool


@dataclass(frozen=True)
class Refused:
    session: int
    reason: Reason
    message: str
    retry_s: float


@dataclass(frozen=True)
class Down:
    """Nothing that was on its way can be counted on; the link tries to connect again by itself."""

    why: str


@dataclass(frozen=True)
class Up:
    """Connected again: every session is to be opened once more."""


@dataclass(frozen=True)
class Pong:
    """The answer to a probe."""

    rtt_s: float


Event: TypeAlias = Verdict | Turn | Refused | Down | Up | Pong


@dataclass
class Traffic:
    """Totals since the link was made."""

    sent: int = 0  # bytes of messages, without gRPC's own few
    received: int = 0
    reconnects: int = 0


class Link(Protocol):
    served: Served
    traffic: Traffic

    def open(
        self,
        session: int,
        key: bytes,
        prompt: list[int],
        sampling: Sampling,
        *,
        known: int = 0,
        server_drafts: bool = False,
    ) -> None:
        """Begin a session, or take it up again: then `prompt` may be empty and `known` says how many output
        tokens are here."""

    def propose(self, session: int, number: int, proposal: Proposal) -> None: ...

    def ahead(self, session: int, number: int, version: int, branches: Sequence[Branch]) -> None:
        """While round `number` is out: the next round's tree for some of its outcomes. The last version that
        comes before the verdict counts; the verdict says whether the outcome was among them."""

    def set_mode(self, session: int, *, server_drafts: bool) -> None: ...

    def end(self, session: int) -> None: ...

    def probe(self) -> None:
        """Ask how long the way there and back takes; a Pong follows, or nothing. While one is under way, no
        other is sent."""

    def receive(self, timeout: float | None) -> list[Event]:
        """All that has come, in order; waits up to `timeout` seconds (None: for ever) for the first."""

    def close(self) -> None: ...
