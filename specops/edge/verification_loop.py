"""The engine's side of a verification server: a loop that takes commands, steps, and reports verdicts."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from socket import socket
from time import perf_counter

from specops.edge.batching import DYNAMIC, Batching, FairQueue, WaitingRound
from specops.edge.messages import (
    Begin,
    Command,
    Commands,
    DraftingStopped,
    EngineMessage,
    Failed,
    Idle,
    PackedConnection,
    Propose,
    Ready,
    SequenceRefused,
    SequenceVerdict,
    SetMode,
    StepResults,
)
from specops.edge.server_engine import Remote
from specops.engine.request import Emission
from specops.engine.step import Engine
from specops.errors import UsageError
from specops.serve import worker_process
from specops.serve.worker_process import Worker, obey

log = logging.getLogger(__name__)


def verify_in_process(
    make: Callable[[], Engine],
    inherited: list[socket],
    *,
    max_batch: int = 8,
    batching: Batching = DYNAMIC,
) -> AbstractContextManager[Worker]:
    """An engine over a Remote that verifies in a separate process (serve/process.py).

    max_batch: largest number of rounds in one step; the engine has more rows than that, to read prompts
    beside them. The connection takes Commands and gives EngineMessages, both in msgpack. Failed, or the end
    of the connection, is the last message. `ready` has a Ready.
    """
    return worker_process.in_process(lambda: VerificationLoop(make(), max_batch, batching), _work, inherited)


def verify_in_thread(engine: Engine, *, max_batch: int = 8, batching: Batching = DYNAMIC) -> Worker:
    return worker_process.in_thread(VerificationLoop(engine, max_batch, batching), _work)


def _work(verifying: VerificationLoop, connection: Connection) -> None:
    channel = PackedConnection[Commands](connection, Commands)

    def run(commands: queue.SimpleQueue[Commands]) -> None:
        connection.send(verifying.ready)
        verifying.run(commands, channel.send)

    obey(channel, run, Failed)


@dataclass
class _Session:
    key: int
    client: int
    sequence: int  # the engine's number for it
    server_drafts: bool
    number: int = 0  # of the ruling that is next
    out: bool = True  # it waits for its turn, or has it: its client does not
    arrived: float = 0.0  # what it has its turn for
    evicted: int = 0  # tokens that are read again for it
    hands_over: bool = False  # it is notified when its client's turn has come


class VerificationLoop:
    """The sessions of an engine, their waiting rounds, and its steps. Not thread-safe."""

    def __init__(self, engine: Engine, max_batch: int, batching: Batching) -> None:
        remote = engine.drafter
        if not isinstance(remote, Remote) or engine.max_batch <= max_batch:
            raise ValueError("verifying takes an engine over a Remote, with more rows than rounds in a step")
        self._engine, self._remote = engine, remote
        self._most, self._batching = max_batch, batching
        self._sessions: dict[int, _Session] = {}  # by key
        self._by_sequence: dict[int, _Session] = {}
        self._rounds, self._to_read = FairQueue(), FairQueue()
        self._readers: dict[int, _Session] = {}  # by key: of those that have their turn, what reads
        self._idle = {"busy": 0.0, "starved": 0.0, "empty": 0.0}
        self._since = perf_counter()  # it has done what it does now

    @property
    def ready(self) -> Ready:
        engine = self._engine
        vocabulary = engine.target.shape.vocab
        return Ready(engine.max_length, rows=engine.max_batch, vocabulary=vocabulary, eos=engine.eos)

    def run(self, commands: queue.SimpleQueue[Commands], say: Callable[[EngineMessage], None]) -> None:
        """Run until None is received. `say` gets StepResults after every step, and each SequenceRefused."""
        self._since = perf_counter()
        while self._obey(commands, say):
            say(self._step())

    # --- commands ------------------------------------------------------------------------

    def _obey(self, commands: queue.SimpleQueue[Commands], say: Callable[[EngineMessage], None]) -> bool:
        """Process all commands, and wait until there is something to step for. Returns False to stop."""
        while True:
            try:
                received = commands.get_nowait()
            except queue.Empty:
                pause = self._pause()
                if pause == 0:
                    return True
                try:
                    self._spent("busy")
                    received = commands.get(timeout=pause)
                except queue.Empty:
                    continue
                finally:
                    self._spent("starved" if self._sessions else "empty")
            if received is None:
                return False
            for command in received:
                self._carry_out(command, say)

    def _carry_out(self, command: Command, say: Callable[[EngineMessage], None]) -> None:
        if isinstance(command, Begin):
            self._begin(command, say)
        elif (session := self._sessions.get(command.key)) is None:
            return  # it has ended meanwhile
        elif isinstance(command, Propose):
            self._propose(session, command)
        elif isinstance(command, SetMode):
            self._set_mode(session, command.server_drafts)
        else:
            self._end(session)

    def _begin(self, begin: Begin, say: Callable[[EngineMessage], None]) -> None:
        try:
            sequence = self._engine.submit(begin.prompt, begin.sampling)
        except UsageError as error:
            say(SequenceRefused(begin.key, error.message))
            return
        self._engine.hold(sequence)
        self._remote.draft_itself(sequence, begin.server_drafts)
        session = _Session(begin.key, begin.client, sequence, begin.server_drafts)
        self._sessions[begin.key] = self._by_sequence[sequence] = session
        self._queue(session, perf_counter())

    def _propose(self, session: _Session, request: Propose) -> None:
        if session.out or request.number != session.number:
            log.warning("dropped round %d: round %d is due, or under way", request.number, session.number)
            return
        self._remote.put(session.sequence, request.proposal)
        self._engine.hold(session.sequence)  # anew: rows are taken from those that were last heard of earlier
        self._queue(session, request.arrived)

    def _set_mode(self, session: _Session, server_drafts: bool) -> None:
        """Hand the drafting over. The client drafts after the engine's own step that is under way, if
        there is one."""
        session.hands_over = not server_drafts and (session.server_drafts or session.hands_over)
        session.server_drafts = server_drafts
        if server_drafts:
            self._remote.draft_itself(session.sequence, True)
            if not session.out:
                self._queue(session, perf_counter())

    def _end(self, session: _Session) -> None:
        for turns in (self._rounds, self._to_read):
            turns.drop(session.key, session.client)
        self._engine.cancel(session.sequence)
        self._forget(session)

    def _queue(self, session: _Session, arrived: float) -> None:
        session.out, session.arrived = True, arrived
        reads = session.number == 0 or self._engine.unread(session.sequence) > 0
        (self._to_read if reads else self._rounds).add(WaitingRound(session.key, session.client, arrived))

    # --- steps --------------------------------------------------------------------------------

    def _pause(self) -> float | None:
        """Seconds until the next step; None: until a command comes."""
        if self._readers or len(self._to_read):
            return 0.0
        return self._pause_of_rounds() if len(self._rounds) else None

    def _pause_of_rounds(self) -> float:
        waiting = len(self._rounds)
        at_clients = len(self._sessions) - waiting - len(self._to_read) - len(self._readers)
        possible = min(waiting + at_clients, self._most)
        return self._batching.pause(waiting, possible, self._rounds.oldest, perf_counter())

    def _step(self) -> StepResults:
        engine = self._engine
        self._give_turns()
        started = perf_counter()
        emissions = engine.step()
        ended = perf_counter()
        rulings, held = [], []
        for emission in emissions:
            session = self._by_sequence[emission.sequence_id]
            rulings.append(self._rule(session, emission, started))
            if emission.finish_reason is not None:
                self._forget(session)
                continue
            engine.hold(session.sequence)
            if session.server_drafts:
                self._queue(session, ended)
            elif session.hands_over:
                session.hands_over = False
                self._remote.draft_itself(session.sequence, False)
                held.append(DraftingStopped(session.key, session.number))
        self._spent("busy")
        return StepResults(
            started,
            ended,
            rulings,
            held,
            engine.running,
            len(self._sessions) - engine.running,
            engine.kv_usage,
            engine.counters,
            Idle(**self._idle),
        )

    def _give_turns(self) -> None:
        engine = self._engine
        if len(self._rounds) and self._pause_of_rounds() == 0:
            for _ in range(min(self._most, engine.max_batch - len(self._readers), len(self._rounds))):
                self._give_turn(self._rounds.take())
        # Together no more than a chunk, so that all end within this step, unless one alone is longer.
        left = engine.prefill_chunk - sum(
            engine.unread(session.sequence) + 1 for session in self._readers.values()
        )
        while len(self._to_read) and len(self._readers) < engine.max_batch - self._most:
            tokens = engine.unread(self._sessions[self._to_read.next.key].sequence) + 1
            if self._readers and tokens > left:
                break
            left -= tokens
            self._give_turn(self._to_read.take())

    def _give_turn(self, arrived: WaitingRound) -> None:
        session = self._sessions[arrived.key]
        unread = self._engine.unread(session.sequence)
        if session.number == 0 or unread > 0:  # also a round whose session lost its row while it waited
            self._readers[session.key] = session
        session.evicted = unread if session.number > 0 else 0
        self._engine.resume(session.sequence)

    def _rule(self, session: _Session, emission: Emission, started: float) -> SequenceVerdict:
        self._readers.pop(session.key, None)
        session.out = False
        number, session.number = session.number, session.number + 1
        return SequenceVerdict(
            session.key,
            number,
            self._remote.accepted(session.sequence),
            emission.tokens,
            emission.finish_reason is not None,
            started - session.arrived,
            session.evicted,
        )

    def _forget(self, session: _Session) -> None:
        self._remote.forget(session.sequence)
        self._readers.pop(session.key, None)
        del self._sessions[session.key], self._by_sequence[session.sequence]

    def _spent(self, kind: str) -> None:
        """Count the time since the last report as `kind`."""
        now = perf_counter()
        self._idle[kind] += now - self._since
        self._since = now
