"""One client of the bench: a process of its own, with a draft, and a link to the server of each arm.

Where the server drafts it only listens; where the edge does it runs the engine that `edge serve` and
`edge chat` run. A process gets its work over a pipe, one block of prompts of one arm at a time, so that what
the engine has learned of its link and its draft stays from one block to the next."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from typing import Any, Protocol

from specops.edge.client import EdgeEngine
from specops.edge.connection import Connection, Destination, connect
from specops.edge.link import ClientTurn, Link, LinkDown, SessionRefused, Verdict
from specops.edge.settings import Drafting
from specops.engine.models.model import Model
from specops.engine.request import Sampling
from specops.errors import SpecopsError
from specops.phases.edge_bench.records import Answer, ClientEffort

SILENCE_S = 120.0
"""Longest time without a word from a server that drafts."""


@dataclass(frozen=True)
class ArmConnection:
    """The address of an arm, and its drafter."""

    address: str
    drafting: Drafting | None
    """None: the server, or nobody."""


@dataclass(frozen=True)
class Block:
    """Prompts to be answered, one after the other."""

    arm: str
    way: ArmConnection
    prompts: list[tuple[str, list[int]]]  # id, tokens
    sampling: Sampling


@dataclass(frozen=True)
class BlockResult:
    """Times are of time.perf_counter, which all processes of a machine share."""

    answers: list[Answer]
    """`sent_s` is the time itself."""

    effort: ClientEffort


class _Arm(Protocol):
    def answer(self, prompt: list[int], sampling: Sampling) -> _Answered: ...

    def effort(self) -> ClientEffort:
        """Totals so far."""


@dataclass
class _Answered:
    sent: float
    chunks: list[tuple[float, int]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    error: str | None = None

    def came(self, tokens: list[int], at: float) -> None:
        if tokens:
            self.chunks.append((at - self.sent, len(tokens)))
            self.tokens += tokens


class _Listening:
    """The server drafts for itself, or not at all: what it says is taken as it comes."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._sessions = 0
        self._verdicts, self._waited, self._step = 0, 0.0, 0.0

    def answer(self, prompt: list[int], sampling: Sampling) -> _Answered:
        self._wait_for_link()
        self._sessions += 1
        session = self._sessions
        answered = _Answered(time.perf_counter())
        self._link.open(session, secrets.token_bytes(16), prompt, sampling, server_drafts=True)
        try:
            while not self._take(session, answered):
                pass
        finally:
            self._link.end(session)
        return answered

    def _wait_for_link(self) -> None:
        """Wait for the link, which may have broken while other arms were measured."""
        events = self._link.receive(0.0)
        while events and isinstance(events[-1], LinkDown):
            events = self._link.receive(SILENCE_S)

    def _take(self, session: int, answered: _Answered) -> bool:
        """Return whether it was the last."""
        events = self._link.receive(SILENCE_S)
        now = time.perf_counter()
        if not events:
            answered.error = f"the server sent nothing for {SILENCE_S:g} s"
        for event in events:
            if isinstance(event, Verdict | ClientTurn) and event.session == session:
                answered.came(event.tokens, now)
                if isinstance(event, Verdict):
                    self._verdicts += 1
                    self._waited += event.waited_s
                    self._step += event.step_s
                if event.ended:
                    return True
            elif isinstance(event, SessionRefused) and event.session == session:
                answered.error = f"the server refused it: {event.message}"
            elif isinstance(event, LinkDown):
                answered.error = f"the link broke: {event.why}"
        return answered.error is not None

    def effort(self) -> ClientEffort:
        traffic = self._link.traffic
        return ClientEffort(
            verdicts=self._verdicts,
            waited_s=self._waited,
            step_s=self._step,
            up_bytes=traffic.sent,
            down_bytes=traffic.received,
        )


LINK_BYTES = ("up_bytes", "down_bytes")
"""What the link counts; the other figures of a client's effort are counters of its engine."""


class _Drafting:
    """The client drafts: the engine of `edge serve` and `edge chat`."""

    def __init__(self, engine: EdgeEngine, link: Link) -> None:
        self._engine = engine
        self._link = link

    def answer(self, prompt: list[int], sampling: Sampling) -> _Answered:
        answered = _Answered(time.perf_counter())
        for emission in self._engine.stream(prompt, sampling):
            answered.came(emission.tokens, time.perf_counter())
            answered.error = emission.error
        return answered

    def effort(self) -> ClientEffort:
        own, traffic = self._engine.own, self._link.traffic
        return ClientEffort(
            **{name: getattr(own, name) for name in ClientEffort.model_fields if name not in LINK_BYTES},
            up_bytes=traffic.sent,
            down_bytes=traffic.received,
        )


def _difference(now: ClientEffort, before: ClientEffort) -> ClientEffort:
    """Return what was done between the two."""
    return ClientEffort(
        **{name: getattr(now, name) - getattr(before, name) for name in ClientEffort.model_fields}
    )


def run_client(pipe: Pipe, number: int, draft: Model, tokenizer: Any) -> None:
    """Answer Blocks with BlockResult, or with the error that ends this client, until the pipe is closed."""
    arms: dict[str, _Arm] = {}
    links: list[Connection] = []
    try:
        while True:
            block = pipe.recv()
            if block.arm not in arms:
                link = connect(Destination(block.way.address))
                links.append(link)
                drafting = block.way.drafting
                arms[block.arm] = (
                    _Listening(link)
                    if drafting is None
                    else _Drafting(EdgeEngine(link, tokenizer, draft, drafting), link)
                )
            pipe.send(_done(arms[block.arm], block, number))
    except (EOFError, OSError):
        pass
    except SpecopsError as error:
        pipe.send(error)
    finally:
        for link in links:
            link.close()


def _done(arm: _Arm, block: Block, number: int) -> BlockResult:
    before = arm.effort()
    answers = []
    for prompt, tokens in block.prompts:
        answered = arm.answer(tokens, block.sampling)
        answers.append(
            Answer(
                prompt=prompt,
                client=number,
                sent_s=answered.sent,
                chunks=answered.chunks,
                tokens=answered.tokens,
                error=answered.error,
            )
        )
    return BlockResult(answers, _difference(arm.effort(), before))
