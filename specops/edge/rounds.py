"""One sequence's talk with the server, as a client sees it: plain data, and what is true of it."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from specops.edge.link import Verdict
from specops.edge.proposal import Proposal
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence

VERSIONS = 3
"""Of what is sent ahead in one round: an early one may be all that is there in time, and costs little."""


class Stage(Enum):
    """Who is to speak next."""

    HERE = auto()
    """The client: the sequence's tree is being drafted, or is about to be."""
    AWAY = auto()
    """The server: a round is there, or the prompt."""
    THERE = auto()
    """The server, again and again: it drafts for itself."""
    UNCLEAR = auto()
    """The server, with a Turn: after a broken stream, or since it was told to draft no longer."""
    CLOSED = auto()
    """Nobody: it is to be opened, at once or at `again`."""


@dataclass
class Talk:
    sequence: Sequence
    number: int  # of the session on the link
    prompt: list[int]  # what the session began with: all tokens of that time, where the server had lost one
    sampling: Sampling  # what the server samples with
    key: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    stage: Stage = Stage.CLOSED
    opened: bool = False  # once at least
    due: int = 0  # the round that is due, or is out
    proposal: Proposal | None = None  # what is out; None: the prompt, or nothing
    promised: float = 0.0  # accepted tokens, by the proposal
    answered_at: float | None = None  # when its last verdict or turn came
    sent_at: float = 0.0
    branches: list[dict[tuple[int, int], tuple[Proposal, float]]] = field(default_factory=list)
    """Of what is out: by outcome, what was sent ahead and what it promises, version by version."""

    branched_at: int = -1  # passes when that was; -1: nothing was sent ahead
    taken: bool = False  # the server had what is out before it was its turn
    passes: int = 0  # of the draft, since then
    retained: int = 0  # levels of the tree that were there by then
    again: float = 0.0  # not to be opened before
    stuck_since: float | None = None  # since when the server has been out of reach, or busy
    stuck_by: str = ""  # why
    lost: int = 0  # times that the server did not know it any more, since the last verdict
    server_drafts: bool = False  # what the server was told last

    @property
    def known(self) -> int:
        """Output tokens of this session that are here."""
        return len(self.sequence.tokens) - len(self.prompt)

    def here(self, due: int, now: float, retained: int) -> None:
        """It is the client's turn."""
        self.stage, self.due, self.proposal = Stage.HERE, due, None
        self.answered_at, self.passes, self.retained = now, 0, retained
        self.branches, self.branched_at = [], -1

    def goes_on(self, verdict: Verdict) -> Proposal:
        """With what was sent ahead for this outcome, which is the next round by now."""
        self.proposal, self.promised = self.branches[verdict.taken - 1][outcome(verdict)]
        self.due, self.branches, self.passes = verdict.number + 1, [], 0
        self.answered_at = self.sent_at = verdict.received
        self.taken, self.branched_at = True, -1
        return self.proposal

    def sent(self, now: float) -> None:
        """Its proposal is out."""
        self.stage, self.sent_at, self.taken = Stage.AWAY, now, False

    @property
    def may_send_ahead(self) -> bool:
        """Whether there is something to follow, and more to send than there was last time."""
        out = self.stage is Stage.AWAY and self.proposal is not None
        return out and self.branched_at < self.passes and len(self.branches) < VERSIONS

    def wait(self, now: float, why: str, again: float) -> None:
        """The session cannot go on, and is to be opened again."""
        self.stage, self.again, self.stuck_by = Stage.CLOSED, again, why
        if self.stuck_since is None:
            self.stuck_since = now


def anew(talk: Talk, number: int) -> Talk:
    """Another session, for what is left of a sequence."""
    sequence = talk.sequence
    done = len(sequence.tokens)
    sampling = replace(
        sequence.sampling,
        max_tokens=sequence.remaining,
        # The same seed again would give the same numbers again.
        seed=derived(sequence.sampling.seed, f"from {done}"),
    )
    prompt = list(sequence.tokens)
    return Talk(
        sequence,
        number,
        prompt,
        sampling,
        stuck_since=talk.stuck_since,
        stuck_by=talk.stuck_by,
        lost=talk.lost + 1,
    )


def derived(seed: int | None, purpose: str) -> int | None:
    """A seed whose numbers have nothing to do with those of `seed`. None: fresh entropy, as it is."""
    if seed is None:
        return None
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose}".encode()).digest()[:8], "big")


def outcome(verdict: Verdict) -> tuple[int, int]:
    """The node at which its path ends, and the bonus."""
    return verdict.path[-1] if verdict.path else 0, verdict.tokens[-1]


def unfit(verdict: Verdict, talk: Talk) -> str | None:
    """What is wrong with a verdict; None: it can be an answer to what is out."""
    proposal = talk.proposal
    tokens, parents = (proposal.tokens, proposal.parents) if proposal is not None else ((), ())
    path, above = verdict.path, 0
    for node in path:
        if not above < node <= len(tokens) or parents[node - 1] != above:
            return f"its path {path} is none of the tree"
        above = node
    if not verdict.tokens or len(verdict.tokens) > len(path) + 1:
        return f"it has {len(verdict.tokens)} tokens for a path of {len(path)} nodes"
    if len(verdict.tokens) <= len(path) and not verdict.ended:
        return "its tokens are fewer than its path"
    accepted = [tokens[node - 1] for node in path]
    if verdict.tokens[: len(path)] != accepted[: len(verdict.tokens)]:
        return "its tokens are not those of its path"
    if verdict.taken:
        sent = talk.branches[verdict.taken - 1] if verdict.taken <= len(talk.branches) else {}
        if verdict.ended or outcome(verdict) not in sent:
            return "it goes on with a tree that was not sent"
    return None
