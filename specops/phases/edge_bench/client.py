"""One client of the bench: a process with a draft, and a link to the server of each arm.

Where the server drafts, it only listens; where the edge does, it runs the engine that `edge serve` and
`edge chat` run. A process gets its prompts over a pipe, one block of one arm at a time, so that what the
engine has learned of its link and its draft stays from one window to the next."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection as Pipe
from typing import Any

from specops.edge.client import EdgeEngine
from specops.edge.connection import Connection, Destination, connect
from specops.edge.link import ClientTurn, Link, LinkDown, SessionRefused, Verdict
from specops.edge.settings import Drafting
from specops.engine.models.model import Model
from specops.engine.request import Sampling
from specops.errors import SpecopsError
from specops.load.answer import Answer, Chunk, Failure
from specops.load.request_times import Observation
from specops.load.workload import Prompt
from specops.phases.edge_bench.records import ClientEffort

SILENCE_S = 120.0
"""Longest time without a word from a server that drafts."""


@dataclass(frozen=True)
class Block:
    """Prompts that one client sends to one arm, one after the other; their contents are token ids."""

    arm: str
    address: str
    drafting: Drafting | None
    """None: the server drafts, or nobody."""

    prompts: list[Prompt]
    sampling: Sampling


@dataclass(frozen=True)
class BlockResult:
    """Instants are of time.perf_counter, which all processes of a machine share."""

    observations: list[Observation]
    effort: ClientEffort


@dataclass
class Stream:
    """The tokens of one answer as they come. What comes together was verified together."""

    sent: float = field(default_factory=time.perf_counter)
    chunks: list[Chunk] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    failure: Failure | None = None

    def add(self, tokens: list[int]) -> None:
        if tokens:
            self.chunks.append(Chunk(time.perf_counter(), len(tokens)))
            self.tokens += tokens


LINK_BYTES = ("up_bytes", "down_bytes")
"""What the link counts; the other figures of a client's effort are counters of its engine."""


class ArmClient:
    """The link to one arm. With an engine, the client drafts: that of `edge serve` and `edge chat`. Without,
    the server drafts for itself or not at all, and the client takes tokens as they come."""

    def __init__(self, link: Link, engine: EdgeEngine | None = None) -> None:
        self.link = link
        self.engine = engine
        self._sessions = 0

    def effort(self) -> ClientEffort:
        """Totals so far; nothing where the client does not draft."""
        if self.engine is None:
            return ClientEffort()
        counters, traffic = self.engine.own, self.link.traffic
        return ClientEffort(
            **{n: getattr(counters, n) for n in ClientEffort.model_fields if n not in LINK_BYTES},
            up_bytes=traffic.sent,
            down_bytes=traffic.received,
        )

    def answer(self, prompt: list[int], sampling: Sampling) -> Stream:
        if self.engine is None:
            return self._listen(prompt, sampling)
        stream = Stream()
        for emission in self.engine.stream(prompt, sampling):
            stream.add(emission.tokens)
            stream.failure = Failure("stream_error", emission.error) if emission.error else None
        return stream

    def _listen(self, prompt: list[int], sampling: Sampling) -> Stream:
        events = self.link.receive(0.0)
        while events and isinstance(
            events[-1], LinkDown
        ):  # it may have broken while other arms were measured
            events = self.link.receive(SILENCE_S)
        self._sessions += 1
        stream = Stream()
        self.link.open(self._sessions, secrets.token_bytes(16), prompt, sampling, server_drafts=True)
        try:
            while not self._receive(stream):
                pass
        finally:
            self.link.end(self._sessions)
        return stream

    def _receive(self, stream: Stream) -> bool:
        """Return whether the answer has ended, or failed."""
        events = self.link.receive(SILENCE_S)
        if not events:
            stream.failure = Failure("stalled", f"the server sent nothing for {SILENCE_S:g} s")
        for event in events:
            if isinstance(event, Verdict | ClientTurn) and event.session == self._sessions:
                stream.add(event.tokens)
                if event.ended:
                    return True
            elif isinstance(event, SessionRefused) and event.session == self._sessions:
                stream.failure = Failure("refused", f"the server refused it: {event.message}")
            elif isinstance(event, LinkDown):
                stream.failure = Failure("cut", f"the link broke: {event.why}")
        return stream.failure is not None


def run_client(pipe: Pipe, number: int, draft: Model, tokenizer: Any) -> None:
    """Answer Blocks with BlockResult, or with the error that ends this client, until the pipe is closed."""
    arms: dict[str, ArmClient] = {}
    links: list[Connection] = []
    try:
        while True:
            block: Block = pipe.recv()
            if block.arm not in arms:
                link = connect(Destination(block.address))
                links.append(link)
                drafting = block.drafting
                engine = None if drafting is None else EdgeEngine(link, tokenizer, draft, drafting)
                arms[block.arm] = ArmClient(link, engine)
            arm = arms[block.arm]
            before = arm.effort()
            observations = [_send(arm, prompt, block.sampling, number, tokenizer) for prompt in block.prompts]
            pipe.send(BlockResult(observations, arm.effort().since(before)))
    except (EOFError, OSError):
        pass
    except SpecopsError as error:
        pipe.send(error)
    finally:
        for link in links:
            link.close()


def _send(arm: ArmClient, prompt: Prompt, sampling: Sampling, number: int, tokenizer: Any) -> Observation:
    temperature = sampling.temperature if prompt.temperature is None else prompt.temperature
    ids = [token for token in prompt.content if isinstance(token, int)]
    stream = arm.answer(ids, replace(sampling, temperature=temperature, seed=prompt.seed))
    failure = stream.failure
    if failure is None and not stream.tokens:
        failure = Failure("empty", "the answer has no tokens")
    return Observation(
        prompt=prompt.id,
        traffic_class=prompt.traffic_class,
        scheduled=stream.sent,
        first_sent=stream.sent,
        sent=stream.sent,
        ended=time.perf_counter(),
        answer=Answer(
            chunks=tuple(stream.chunks),
            # Two sequences of tokens with one text are one answer to the user; counts are compared beside it.
            text=tokenizer.decode(stream.tokens, skip_special_tokens=False),
            tokens=len(stream.tokens),
            tokens_from="usage",
            prompt_tokens=len(ids),
            failure=failure,
        ),
        temperature=temperature,
        connection=number + 1,
    )
