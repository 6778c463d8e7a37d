"""The interface of the link between client and server: drafts and verdicts as plain data.

A link numbers and repeats nothing. When its connection breaks, it reports that, connects again and reports
that too. The owner of open sessions then opens each of them again with its key.
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
"""Types of a distribution's tokens and weights, as in the protocol."""


class DrawDistributions(Struct, frozen=True, array_like=True):
    """The distributions that the children of nodes were drawn from: tokens[i] has the probability weights[i]
    / their sum.

    The weights are integers, so that both ends have exactly the same distribution. The distributions of all
    nodes are concatenated, as in the protocol: one tree may have thousands of entries.
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
    drawn: DrawDistributions = DrawDistributions()


class Branch(Struct, frozen=True, array_like=True):
    """The tree of the next round for one outcome of the round that is out."""

    end: int  # the node at which the accepted path ends; 0: the root
    bonus: int  # the token after it: the root of the tree
    proposal: Proposal


Reason = Literal["nonsense", "too large", "busy", "unknown", "draining", "failed"]
"""Reason of a refusal, as verification.proto explains them."""


def tokenizer_digest(tokenizer: Any) -> bytes:
    """SHA-256 of a transformers tokenizer's map from tokens to ids, in the order of the ids."""
    digest = hashlib.sha256()
    for token, number in sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0])):
        digest.update(f"{number}\0{token}\0".encode("utf-8", "surrogatepass"))
    return digest.digest()


@dataclass(frozen=True)
class ServerLimits:
    """Properties and limits of a server."""

    model: str
    vocabulary: int
    tokenizer: bytes
    """SHA-256 of the tokenizer's map from tokens to ids."""

    eos: frozenset[int]
    max_length: int
    max_nodes: int
    max_support: int
    max_sessions: int
    resume_s: float
    own_tree: str
    """Tree that the server drafts for itself; `none`: one token a step."""

    max_ahead: int = 0
    """Number of trees that it takes ahead of a verdict; 0 for none. Of drawn trees it takes at most
    DRAWN_AHEAD."""


DRAWN_AHEAD = 4
"""Number of drawn trees sent ahead. Their distributions take thirty times the bytes of a tree, and one
event loop reads them all."""


@dataclass(frozen=True)
class Verdict:
    session: int
    number: int
    path: list[int]
    """Accepted nodes of the proposal; empty for the server's own draft."""

    tokens: list[int]
    ended: bool
    waited_s: float
    """Seconds from the round's arrival to the beginning of its step."""

    step_s: float
    evicted: int
    """Number of tokens that the server read again after an eviction."""

    received: float
    """Time of arrival, from time.perf_counter, in seconds."""

    version: int = 0
    """Version of the trees sent ahead, one of which is now verified as the next round; 0: it is the
    client's turn."""


@dataclass(frozen=True)
class ClientTurn:
    """The client's turn: the number of the round that is due, and the output that the client lacked."""

    session: int
    number: int
    tokens: list[int]
    ended: bool


@dataclass(frozen=True)
class SessionRefused:
    session: int
    reason: Reason
    message: str
    retry_s: float


@dataclass(frozen=True)
class LinkDown:
    """The connection broke. Messages under way may be lost; the link connects again by itself."""

    why: str


@dataclass(frozen=True)
class LinkUp:
    """The link is connected again. Every session must be opened again."""


@dataclass(frozen=True)
class Pong:
    """The answer to a probe."""

    rtt_s: float


Event: TypeAlias = Verdict | ClientTurn | SessionRefused | LinkDown | LinkUp | Pong


@dataclass
class Traffic:
    """Counters since the link was made."""

    sent: int = 0  # bytes of messages, without gRPC's own few
    received: int = 0
    reconnects: int = 0


class Link(Protocol):
    limits: ServerLimits
    traffic: Traffic

    def open(
        self,
        session: int,
        key: bytes,
        prompt: list[int],
        sampling: Sampling,
        *,
        acknowledged: int = 0,
        server_drafts: bool = False,
    ) -> None:
        """Begin a session, or resume it. To resume it, `prompt` may be empty, and `acknowledged` is the
        number of output tokens that the client has."""

    def propose(self, session: int, number: int, proposal: Proposal) -> None: ...

    def ahead(self, session: int, number: int, version: int, branches: Sequence[Branch]) -> None:
        """Send the trees of the next round for some outcomes of round `number`, which is out. The last
        version that arrives before the verdict counts; the verdict says whether its outcome was among
        them."""

    def set_mode(self, session: int, *, server_drafts: bool) -> None: ...

    def end(self, session: int) -> None: ...

    def probe(self) -> None:
        """Measure the round-trip time: a Pong follows, or nothing. While a probe is under way, no other is
        sent."""

    def receive(self, timeout: float | None) -> list[Event]:
        """Return all events that have arrived, in order. Waits up to `timeout` seconds for the first; None
        waits without a limit."""

    def close(self) -> None: ...
