"""An engine's process without an engine: a thread that verifies against a rule, and says so in messages.

What follows a token depends on all before it, so that one lost, doubled or taken from another session shows
in everything after it.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from dataclasses import dataclass, field

from msgspec import DecodeError

from specops.edge.link import Proposal
from specops.edge.messages import (
    Begin,
    Command,
    Commands,
    DraftingStopped,
    End,
    PackedConnection,
    Propose,
    Ready,
    SequenceRefused,
    SequenceVerdict,
    SetMode,
    StepResults,
)
from specops.engine.request import Sampling
from specops.serve.worker_process import Channel, Worker

VOCABULARY, EOS, LENGTH = 97, 96, 4000
UNFIT = 95  # a prompt that begins with it is refused by the engine


def following(tokens: list[int]) -> int:
    """The one token that follows `tokens`: never EOS."""
    state = 17
    for token in tokens[-6:]:
        state = (state * 31 + token + 7) % 1_000_003
    return (state + len(tokens)) % EOS


def continued(prompt: list[int], count: int) -> list[int]:
    """The output that is right."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(following(tokens))
    return tokens[len(prompt) :]


@dataclass
class _Run:
    tokens: list[int]
    prompt_length: int
    sampling: Sampling
    drafting: bool
    number: int = 0
    waiting: Proposal | None = None
    arrived: float = 0.0
    fresh: bool = True

    @property
    def busy(self) -> bool:
        return self.fresh or self.drafting or self.waiting is not None

    def verify(self) -> tuple[list[int], list[int], bool]:
        """Path, tokens and whether it ended."""
        path: list[int] = []
        given: list[int] = []
        proposal = self.waiting or Proposal((), ())
        node, over = 0, False
        while True:
            token = following(self.tokens)
            given.append(token)
            self.tokens.append(token)
            over = len(self.tokens) - self.prompt_length >= self.sampling.max_tokens
            below = [
                child
                for child, (what, parent) in enumerate(
                    zip(proposal.tokens, proposal.parents, strict=True), start=1
                )
                if parent == node and what == token
            ]
            if over or not below:
                return path, given, over
            node = below[0]
            path.append(node)


@dataclass
class ScriptedEngine:
    """`worker` is what a service takes. Clear `gate`, and no step is made until it is set again."""

    gate: threading.Event = field(default_factory=threading.Event)
    seen: list[Command] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # rulings by step
    live: dict[int, _Run] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gate.set()
        self._stopped: list[int] = []  # sessions that the engine drafts for no longer, and does not say yet
        ours, self._theirs = multiprocessing.Pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        ready = Ready(LENGTH, vocabulary=VOCABULARY, eos=frozenset({EOS}))
        self.worker = Worker(ours, ready, self._thread.join)

    def die(self) -> None:
        """As a process does that is killed."""
        self.worker.connection.send_bytes(b"")

    def _run(self) -> None:
        connection, stop = PackedConnection[Commands](self._theirs, Commands), False
        try:
            while not stop:
                wanted = self._wanted()
                while not stop and (not wanted or self._theirs.poll()):
                    commands = connection.recv()
                    stop = commands is None
                    self._obey(connection, commands)
                    wanted = self._wanted()
                if not stop and self.gate.wait(0.01):
                    self._step(connection)
        except (EOFError, OSError, DecodeError):
            pass
        finally:
            self._theirs.close()

    def _wanted(self) -> bool:
        return bool(self._stopped) or any(run.busy for run in self.live.values())

    def _obey(self, connection: Channel, commands: Commands) -> None:
        for command in commands or ():
            self._carry_out(connection, command)

    def _carry_out(self, connection: Channel, command: Command) -> None:
        self.seen.append(command)
        if isinstance(command, Begin):
            if command.prompt[0] == UNFIT:
                connection.send(SequenceRefused(command.key, "the engine will not have it"))
            else:
                self.live[command.key] = _Run(
                    list(command.prompt), len(command.prompt), command.sampling, command.server_drafts
                )
        elif isinstance(command, End):
            self.live.pop(command.key, None)
        elif isinstance(command, Propose):
            if run := self.live.get(command.key):
                assert not run.busy, "two things of a session at a time"
                assert command.number == run.number
                run.waiting, run.arrived = command.proposal, command.arrived
        elif isinstance(command, SetMode) and (run := self.live.get(command.key)):
            assert run.drafting != command.server_drafts
            run.drafting = command.server_drafts
            if not command.server_drafts:
                self._stopped.append(command.key)

    def _step(self, connection: Channel) -> None:
        rulings = []
        for key, run in list(self.live.items()):
            if not run.busy:
                continue
            waited = time.perf_counter() - run.arrived if run.waiting else 0.0
            path, tokens, over = run.verify()
            rulings.append(SequenceVerdict(key, run.number, path, tokens, over, waited, 0))
            run.number, run.fresh, run.waiting = run.number + 1, False, None
            if over:
                del self.live[key]
        held = [DraftingStopped(key, self.live[key].number) for key in self._stopped if key in self.live]
        self._stopped.clear()
        if rulings:
            self.sizes.append(len(rulings))
        if rulings or held:
            self._say(connection, rulings, held)

    def _say(self, connection: Channel, rulings: list[SequenceVerdict], held: list[DraftingStopped]) -> None:
        now = time.perf_counter()
        connection.send(StepResults(now - 1e-4, now, rulings, held, len(self.live), 0, 0.0))
