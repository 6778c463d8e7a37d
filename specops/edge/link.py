"""What a client knows of its server: what is verified there, what can be asked, and what comes back.

A link numbers nothing and repeats nothing. Where its connection breaks it says so, connects again and says
that too; whoever has sessions open then opens each once more under its own key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from specops.edge.proposal import Branch, Proposal
from specops.engine.request import Sampling

Reason = Literal["nonsense", "too large", "busy", "unknown", "draining", "failed"]
"""Of a refusal, as verification.proto explains them."""


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
