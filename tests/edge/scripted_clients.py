"""Clients of a VerificationLoop in its own thread: they answer rulings, when and how a test says, and nobody
waits.

In the place of the queue of commands stands what hands out an answer when there is nothing else to step for,
or earlier where a test's random source says so. Every interleaving is one of a seed, none of a clock.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Any

from msgspec import msgpack

from specops.edge.batching import DYNAMIC, Batching
from specops.edge.link import Proposal
from specops.edge.messages import (
    Begin,
    DraftingStopped,
    End,
    EngineMessage,
    Propose,
    SequenceRefused,
    SequenceVerdict,
    SetMode,
    StepResults,
)
from specops.edge.server_engine import Remote
from specops.edge.verification_loop import VerificationLoop
from specops.engine.draft import Drafter
from specops.engine.models.model import FeatureModel
from specops.engine.request import Emission, Sampling
from specops.engine.step import Engine
from specops.engine.verifiers import ByDraw

Propounds = Callable[[list[int]], Proposal]
"""The output so far -> the next round."""


@dataclass
class Session:
    key: int
    prompt: list[int]
    sampling: Sampling
    proposes: Propounds
    client: int = 0
    server_drafts: bool = False
    switches: list[int] = field(default_factory=list)
    """Numbers of rulings after which who drafts changes."""

    ends_after: int | None = None
    """The number of the ruling after which it is taken back."""

    output: list[int] = field(default_factory=list)
    rulings: list[SequenceVerdict] = field(default_factory=list)
    held: list[DraftingStopped] = field(default_factory=list)
    sent: dict[int, Proposal] = field(default_factory=dict)  # by number
    refused: str | None = None
    waits: bool = False  # it asked for its turn back, and was not yet told that it has it
    taken_back: bool = False

    @property
    def ended(self) -> bool:
        return bool(self.rulings) and self.rulings[-1].ended


def as_it_arrives(said: EngineMessage) -> EngineMessage:
    arrived: EngineMessage = msgpack.decode(msgpack.encode(said), type=EngineMessage)
    assert arrived == said
    return arrived


class Clients:
    """What they say comes in the order that `random` says, or in theirs; `eager` is how likely it is there
    before the engine's next step."""

    def __init__(self, sessions: list[Session], random: Random | None = None, eager: float = 1.0) -> None:
        self.sessions = {session.key: session for session in sessions}
        self.steps: list[StepResults] = []
        self._random, self._eager = random, eager
        self._coming: list[Any] = [
            Begin(s.key, s.client, s.prompt, s.sampling, s.server_drafts) for s in sessions
        ]

    def run(self, engine: Engine, max_batch: int, batching: Batching = DYNAMIC) -> None:
        """Until every session has ended or was taken back."""
        VerificationLoop(engine, max_batch, batching).run(self, self.say)  # type: ignore[arg-type]

    # --- a queue of commands ------------------------------------------------------------------

    def get_nowait(self) -> Any:
        if not self._coming or (self._random is not None and self._random.random() >= self._eager):
            raise queue.Empty
        return self._next()

    def get(self, timeout: float | None = None) -> Any:
        if not self._coming and timeout is not None:
            raise queue.Empty  # a batch that is not full waits for nobody who could come
        return self._next()

    def _next(self) -> Any:
        if not self._coming:
            return None
        command = self._coming.pop(0 if self._random is None else self._random.randrange(len(self._coming)))
        return [command() if callable(command) else command]

    # --- what is said -------------------------------------------------------------------------

    def say(self, said: EngineMessage) -> None:
        said = as_it_arrives(said)
        if isinstance(said, SequenceRefused):
            self.sessions[said.key].refused = said.message
        if not isinstance(said, StepResults):
            return
        self.steps.append(said)
        for ruling in said.rulings:
            self._hear(self.sessions[ruling.key], ruling)
        for held in said.held:
            session = self.sessions[held.key]
            session.held.append(held)
            assert session.waits
            assert held.number == len(session.rulings)
            session.waits = False
            self._answer(session)

    def _hear(self, session: Session, ruling: SequenceVerdict) -> None:
        assert ruling.number == len(session.rulings), "numbers without a gap"
        assert ruling.tokens, "every ruling brings a token"
        proposal = session.sent.get(ruling.number)
        tokens = [] if proposal is None else [proposal.tokens[node - 1] for node in ruling.path]
        assert tokens[: len(ruling.tokens)] == ruling.tokens[: len(tokens)]
        assert proposal is not None or not ruling.path
        session.rulings.append(ruling)
        session.output += ruling.tokens
        if ruling.ended or session.waits or session.taken_back:
            return
        if ruling.number == session.ends_after:
            session.taken_back = True
            self._coming.append(End(session.key))
        elif ruling.number in session.switches:
            session.server_drafts = not session.server_drafts
            session.waits = not session.server_drafts
            self._coming.append(SetMode(session.key, session.server_drafts))
        elif not session.server_drafts:
            self._answer(session)

    def _answer(self, session: Session) -> None:
        """The tree is made when it is sent: of what is there then."""
        number = len(session.rulings)

        def propose() -> Propose:
            session.sent[number] = session.proposes(list(session.output))
            return Propose(session.key, number, session.sent[number], perf_counter())

        self._coming.append(propose)


def verifying_engine(
    target: FeatureModel,
    own: Drafter,
    tokenizer: Any,
    *,
    rows: int,
    max_length: int,
    nodes: int = 16,
    chunk: int = 256,
    eos: frozenset[int] = frozenset(),
    verifier: ByDraw | None = None,
) -> Engine:
    """As load_verifier makes one, over models that are loaded already."""
    remote = Remote(own, nodes, target.shape.vocab)
    return Engine(
        target,
        remote,
        verifier or ByDraw(),
        tokenizer,
        eos,
        max_batch=rows,
        max_length=max_length,
        prefill_chunk=chunk,
    )


def guesses(random: Random, right: list[int], nodes: int, vocabulary: int, luck: float) -> Proposal:
    """A tree of any shape: where a node's parent goes on as `right` does, so does it with a probability."""
    tokens: list[int] = []
    parents: list[int] = []
    depth_right = {0: 0}  # of nodes that go on as `right`, how far
    below: dict[int, set[int]] = {}
    for node in range(1, nodes + 1):
        parent = random.randrange(max(0, node - 5), node)
        taken = below.setdefault(parent, set())
        at = depth_right.get(parent)
        token = random.randrange(vocabulary)
        if at is not None and at < len(right) and random.random() < luck:
            token = right[at]
        while token in taken:
            token = random.randrange(vocabulary)
        if at is not None and at < len(right) and token == right[at]:
            depth_right[node] = at + 1
        taken.add(token)
        tokens.append(token)
        parents.append(parent)
    return Proposal(tuple(tokens), tuple(parents))


def spoil(engine: Engine) -> None:
    """After every step, fill what no session's committed tokens hold: in rows that were lent out, and behind
    the end of each. Whoever attends to any of it goes wrong."""
    step = engine.step

    def spoiling() -> list[Emission]:
        emissions = step()
        used = {sequence.row: sequence.cached for sequence in engine._running}
        for row in range(engine.max_batch):
            engine._cache.data[:, row, used.get(row, 0) :] = 1e4
        return emissions

    engine.step = spoiling  # type: ignore[method-assign]
