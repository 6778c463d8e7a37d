"""The server's sessions: their states, and the commands and answers that follow from a message.

A state machine without network, engine or clock. For each session, the engine has at most one thing at a
time: its prompt, a round, or its own drafting. A session for which the engine has nothing is *quiet*. Only
then a Turn is given or the drafting handed over. So an answer never crosses a question:

- Output is counted when the engine gives it, and sent once on one stream: with its verdict, or with the Turn
  that is owed. A client that resumes a session says how many tokens it has; there the Turn begins.
- A client whose Turn is owed has sent nothing that the Turn could be mistaken for an answer to: its earlier
  rounds are in the engine, or were lost with a stream that is no longer read.
- Trees sent ahead belong to one round. They are stored while that round is out and the client's next message
  would be a round. A ruling uses them; a Mode, or another Open, drops them, and a Turn follows. If a round
  is taken from them, the verdict before says so. The client then has its turn, or knows that it has none,
  and its next round cannot cross one that the server took.
- After a refusal, messages of that session may still be under way. They are ignored until the number is
  opened again. gRPC keeps the order of a stream, so messages after an Open belong to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from msgspec import Struct

from specops.edge import messages
from specops.edge.link import ClientTurn, Proposal, Reason, SessionRefused
from specops.edge.messages import Begin, Command, End, Propose, SequenceVerdict, SetMode, StepResults
from specops.edge.wire import Ahead, ClientRequest, Close, Mode, Open, Round, WireError


@dataclass(frozen=True)
class Limits:
    sessions: int  # in all that have not ended
    per_client: int
    resume_s: float  # how long one outlives its stream, and its end


class RoundVerdict(Struct, frozen=True):
    """A verdict; `session` is the client's number."""

    session: int
    ruling: SequenceVerdict
    step_s: float
    version: int = 0  # version of what was sent ahead, if the next round is of it


Answer: TypeAlias = RoundVerdict | ClientTurn | SessionRefused


@dataclass
class Effects:
    """Commands to the engine and answers to clients that follow from a message."""

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
class TreesAhead:
    """Trees for the round after the one that is out, for some of its outcomes."""

    version: int = 0  # 0: nothing was sent
    trees: Mapping[tuple[int, int], Proposal] = field(default_factory=dict)  # by last accepted node and bonus


NOTHING = TreesAhead()


@dataclass(eq=False)
class Session:
    key: int
    name: tuple[str, bytes]  # owner, and the key that the client gave it
    client: str
    wants_drafts: bool  # the client wants the server to draft
    drafting: bool  # the engine drafts for it
    stopping: bool = False  # and is to stop
    out: bool = True  # its prompt or a round is in the engine
    due: int = 0  # number of the next verdict
    output: list[int] = field(default_factory=list)
    sent: int = 0  # output tokens that the client has, or that are on their way on its stream
    owed: int = 0  # Turns
    ahead: TreesAhead = NOTHING  # only while the client's next word would be a round
    ended: bool = False
    attached_to: tuple[int, int] | None = None  # stream and number
    since: float = 0.0  # when it was last ruled on or taken up, or lost its stream

    @property
    def quiet(self) -> bool:
        return self.ended or not (self.out or self.drafting)


RETRY_S = 0.5
"""Seconds after which a client that found no place may try again."""

_TURN_S = 300.0  # that a client may take for a round, before its place is given to others
_OWED = 64  # Turns that a client may have requested and not got yet
_LATE = 1024  # numbers of a stream that are remembered as refused


class Sessions:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._keys = count()
        self._numbers = count()
        self._streams: dict[int, Stream] = {}
        self._clients: dict[str, Client] = {}
        self._by_key: dict[int, Session] = {}
        self._by_name: dict[tuple[str, bytes], Session] = {}
        self._closed: tuple[Reason, str] | None = None  # why nothing new is begun
        self._active = 0  # sessions that have not ended
        self._effects = Effects()
        self.resumed = 0
        self.used_ahead = 0  # rounds, of what was sent ahead

    # --- streams ------------------------------------------------------------------------------

    def connected(self, stream: int, owner: str, client: str) -> None:
        """Add a stream. owner: who may resume its sessions later. client: whose share of the server they
        use."""
        self._streams[stream] = Stream(owner, client)

    def gone(self, stream: int, now: float) -> Effects:
        """Remove a stream. Its sessions wait to be resumed; a session whose prompt has not been read yet
        ends.

        Such a client has no output yet, and begins a new session when it is back. Reading prompts for clients
        that are gone would delay the others.
        """
        for session in list(self._streams[stream].sessions.values()):
            if session.due == 0:
                self._forget(session)
                continue
            self._detach(session)
            if not session.ended:
                session.since = now
                self._stop_drafting(session)
        del self._streams[stream]
        return self._done()

    # --- messages of clients ------------------------------------------------------------------

    def request(self, stream: int, request: ClientRequest, now: float) -> Effects:
        try:
            if isinstance(request, Open):
                self._open(stream, request, now)
            elif (session := self._streams[stream].sessions.get(request.session)) is None:
                self._without_session(stream, request)
            elif isinstance(request, Round):
                self._round(session, request, now)
            elif isinstance(request, Ahead):
                self._ahead(session, request)
            elif isinstance(request, Mode):
                self._mode(session, request)
            else:
                self._forget(session)
        except WireError as error:
            self._refuse(stream, request.session, error.reason, error.message)
        return self._done()

    def refused(self, stream: int, error: WireError) -> Effects:
        """Process a message that could be decoded only in part."""
        self._refuse(stream, error.session or 0, error.reason, error.message)
        return self._done()

    def _open(self, stream: int, request: Open, now: float) -> None:
        by = self._streams[stream]
        name = (by.owner, request.key)
        session, current = self._by_name.get(name), by.sessions.get(request.session)
        if current is not None and current is not session:
            if not current.ended:
                raise WireError(f"session {request.session} is open already, under another key")
            self._detach(current)
        by.late.pop(request.session, None)
        if session is None:
            session = self._begin(by, name, request)
            self._attach(session, stream, request.session)
            return
        if request.acknowledged > len(session.output):
            self._forget(session)
            raise WireError(
                f"{request.acknowledged} tokens were acknowledged, but only {len(session.output)} were sent"
            )
        self._detach(session)
        self._attach(session, stream, request.session)
        self.resumed += 1
        session.sent, session.wants_drafts, session.since = request.acknowledged, request.server_drafts, now
        session.owed += 1
        self._stop_drafting(session)
        self._settle(session)

    def _begin(self, by: Stream, name: tuple[str, bytes], request: Open) -> Session:
        if self._closed is not None:
            raise WireError(self._closed[1], self._closed[0])
        if request.acknowledged or not request.prompt:
            raise WireError("unknown session: it was never opened here, or has ended", "unknown")
        client = self._clients.get(by.client) or Client(next(self._numbers))
        if client.sessions >= self._limits.per_client:
            raise WireError(f"a client has at most {self._limits.per_client} sessions", "busy")
        if self._active >= self._limits.sessions:
            raise WireError(f"all {self._limits.sessions} sessions of this server are taken", "busy")
        self._clients[by.client] = client
        client.sessions += 1
        self._active += 1
        session = Session(next(self._keys), name, by.client, request.server_drafts, request.server_drafts)
        self._by_key[session.key] = self._by_name[name] = session
        begin = Begin(session.key, client.number, request.prompt, request.sampling, request.server_drafts)
        self._effects.commands.append(begin)
        return session

    def _round(self, session: Session, request: Round, now: float) -> None:
        if session.ended:
            raise WireError("a round came for a session that has ended")
        if session.wants_drafts or session.drafting:
            raise WireError("a round came while the server drafts")
        if session.out or session.owed:
            raise WireError(f"round {request.number} came before the answer to the last one")
        if request.number != session.due:
            raise WireError(f"round {session.due} is due, not {request.number}")
        session.out = True
        self._effects.commands.append(Propose(session.key, request.number, request.proposal, now))

    def _ahead(self, session: Session, request: Ahead) -> None:
        """Store the trees that a client sent ahead. Some are ignored, since an honest client may send them:

        - for a round that was ruled on: its verdict is under way, even if it ended the session;
        - while the server drafts, or the client wants it to: the server continues after the round that is
          out, or a Turn asks for the next round after a Mode that takes the drafting back;
        - while a Turn is owed, after such a Mode or an Open that resumed the session: the Turn answers the
          round that is out, without an outcome, and then it is the client's turn.

        A number above the one that is due is an error: numbers only rise, and rise here first. On a stream
        that the session was taken from, everything is ignored (_without_session).
        """
        if request.number < session.due:
            return
        if request.number > session.due:
            raise WireError(
                f"trees were sent ahead for round {request.number}, but round {session.due} is due"
            )
        if session.wants_drafts or session.drafting or session.owed:
            return
        if not session.out:
            raise WireError(f"trees were sent ahead for round {request.number} before that round")
        if request.version <= session.ahead.version:
            raise WireError(
                f"version {request.version} of trees sent ahead came after version {session.ahead.version}"
            )
        trees = {(branch.end, branch.bonus): branch.proposal for branch in request.branches}
        session.ahead = TreesAhead(request.version, trees)

    def _mode(self, session: Session, request: Mode) -> None:
        session.wants_drafts, session.ahead = request.server_drafts, NOTHING
        if not session.wants_drafts:
            if session.owed >= _OWED:
                raise WireError("the drafting was taken back too often without waiting for an answer")
            session.owed += 1
            self._stop_drafting(session)
        self._settle(session)

    def _without_session(self, stream: int, request: Round | Ahead | Mode | Close) -> None:
        if not isinstance(request, Close) and request.session not in self._streams[stream].late:
            raise WireError(f"session {request.session} was not opened on this stream")

    # --- messages of the engine ---------------------------------------------------------------

    def stepped(self, stepped: StepResults, now: float) -> Effects:
        """Process the results of a step. Rulings of sessions that were dropped meanwhile are ignored."""
        step_s = stepped.ended - stepped.started
        for ruling in stepped.rulings:
            if (session := self._by_key.get(ruling.key)) is not None:
                self._rule(session, ruling, step_s, now)
        for held in stepped.held:
            if (session := self._by_key.get(held.key)) is not None:
                session.drafting = session.stopping = False
                session.due = held.number
                self._settle(session)
        return self._done()

    def _rule(self, session: Session, ruling: SequenceVerdict, step_s: float, now: float) -> None:
        session.output += ruling.tokens
        session.due = ruling.number + 1
        session.out, session.since = False, now
        if ruling.ended:
            session.ended = True
            self._free(session)
        version = self._take_ahead(session, ruling, now)
        if session.attached_to is not None and not session.owed:
            session.sent = len(session.output)
            stream, number = session.attached_to
            self._effects.answers.append((stream, RoundVerdict(number, ruling, step_s, version)))
        self._settle(session)

    def _take_ahead(self, session: Session, ruling: SequenceVerdict, now: float) -> int:
        """Continue with the tree that the client sent ahead for this outcome, if there is one. Returns its
        version, or 0."""
        ahead, session.ahead = session.ahead, NOTHING
        if session.ended or (proposal := ahead.trees.get(_outcome(ruling))) is None:
            return 0
        session.out = True
        self._effects.commands.append(Propose(session.key, session.due, proposal, now))
        self.used_ahead += 1
        return ahead.version

    def unfit(self, refused: messages.SequenceRefused) -> Effects:
        """Process a session that the engine rejected and does not know."""
        if (session := self._by_key.get(refused.key)) is not None:
            attached_to = session.attached_to
            self._forget(session, tell=False)
            if attached_to is not None:
                self._refuse(*attached_to, "nonsense", refused.message)
        return self._done()

    # --- timeouts and shutdown ----------------------------------------------------------------

    def expire(self, now: float) -> Effects:
        """Drop sessions that ended or lost their stream too long ago, and refuse those whose client lets
        its turn pass."""
        for session in list(self._by_key.values()):
            waited = now - session.since
            if session.ended or session.attached_to is None:
                if waited >= self._limits.resume_s:
                    self._forget(session)
            elif session.quiet and waited >= _TURN_S:
                self._refuse(*session.attached_to, "unknown", "its client sent nothing for too long")
        return self._done()

    def drain(self) -> None:
        """Refuse new sessions from now on."""
        self._closed = ("draining", "this server is shutting down")

    def end(self, reason: Reason, message: str) -> Effects:
        """Refuse all sessions, now and later."""
        self._closed = (reason, message)
        for session in list(self._by_key.values()):
            attached_to = session.attached_to
            finished = session.ended
            self._forget(session)
            if attached_to is not None and not finished:
                self._refuse(*attached_to, reason, message)
        return self._done()

    @property
    def running(self) -> int:
        """Number of running sessions with a stream."""
        return sum(not s.ended and s.attached_to is not None for s in self._by_key.values())

    @property
    def parked(self) -> int:
        """Number of running sessions that wait for their client."""
        return sum(not s.ended and s.attached_to is None for s in self._by_key.values())

    def __len__(self) -> int:
        """Number of all stored sessions, ended ones included."""
        return len(self._by_key)

    # --- state of one session -----------------------------------------------------------------

    def _settle(self, session: Session) -> None:
        """Do what had to wait until the session was quiet: give a Turn, or hand over the drafting."""
        if session.attached_to is None or not session.quiet:
            return
        stream, number = session.attached_to
        for _ in range(session.owed):
            lacking = session.output[session.sent :]
            session.sent = len(session.output)
            self._effects.answers.append((stream, ClientTurn(number, session.due, lacking, session.ended)))
        session.owed = 0
        if session.wants_drafts and not session.ended:
            session.drafting = True
            self._effects.commands.append(SetMode(session.key, True))

    def _stop_drafting(self, session: Session) -> None:
        if session.drafting and not session.stopping and not session.ended:
            session.stopping = True
            self._effects.commands.append(SetMode(session.key, False))

    def _attach(self, session: Session, stream: int, number: int) -> None:
        session.attached_to = (stream, number)
        self._streams[stream].sessions[number] = session

    def _detach(self, session: Session) -> None:
        """Detach the session from its stream; later messages for it there are ignored."""
        if session.attached_to is not None:
            stream, number = session.attached_to
            session.attached_to = None
            session.owed = 0
            session.ahead = NOTHING
            del self._streams[stream].sessions[number]
            self._ignore(stream, number)

    def _ignore(self, stream: int, number: int) -> None:
        late = self._streams[stream].late
        late.pop(number, None)
        late[number] = None
        if len(late) > _LATE:
            del late[next(iter(late))]

    def _refuse(self, stream: int, number: int, reason: Reason, message: str) -> None:
        if (session := self._streams[stream].sessions.get(number)) is not None:
            self._forget(session)
        self._ignore(stream, number)
        retry_s = RETRY_S if reason == "busy" else 0.0
        self._effects.answers.append((stream, SessionRefused(number, reason, message, retry_s)))

    def _forget(self, session: Session, *, tell: bool = True) -> None:
        self._detach(session)
        del self._by_key[session.key], self._by_name[session.name]
        if not session.ended:
            self._free(session)
            if tell:
                self._effects.commands.append(End(session.key))

    def _free(self, session: Session) -> None:
        """Free the session's place for others."""
        self._active -= 1
        client = self._clients[session.client]
        client.sessions -= 1
        if not client.sessions:
            del self._clients[session.client]

    def _done(self) -> Effects:
        effects, self._effects = self._effects, Effects()
        return effects


def _outcome(ruling: SequenceVerdict) -> tuple[int, int]:
    """The outcome of a round: its last accepted node and the token after it."""
    return (ruling.path[-1] if ruling.path else 0), ruling.tokens[-1]
