"""The service's table: whatever comes in whatever order, no token is lost or doubled, and nobody is confused.

Clients that keep to the protocol, and one that does not, talk to the table over streams that deliver late and
break; the engine is a model that insists on what it may rely on. Output tokens are numbered, so that a client
whose output is not 0, 1, 2, … has lost or doubled one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count

from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from specops.edge.link import Branch, ClientTurn, Proposal, SessionRefused
from specops.edge.messages import Begin, Command, DraftingStopped, End, Propose, SequenceVerdict, StepResults
from specops.edge.sessions import Answer, Effects, Limits, RoundVerdict, Sessions
from specops.edge.wire import Ahead, ClientRequest, Close, Mode, Open, Round, WireError
from specops.engine.request import Sampling

LENGTH = 12  # output tokens of a session
GREEDY = Sampling(max_tokens=LENGTH)
PROPOSAL = Proposal((1,), (0,))
AHEAD = 100  # and more: tokens of trees that were sent ahead, by the bonus that they follow
RESUME_S = 100.0
LIMITS = Limits(sessions=6, per_client=5, resume_s=RESUME_S)
ROGUE = range(50, 53)  # numbers of the one that keeps to nothing


class Engine:
    """What the engine's process makes of commands; it insists that one thing at a time is out."""

    def __init__(self) -> None:
        self.given: dict[int, int] = {}  # output tokens, by key
        self.number: dict[int, int] = {}
        self.out: set[int] = set()
        self.drafting: set[int] = set()
        self.stopping: set[int] = set()

    def obey(self, command: Command) -> None:
        if isinstance(command, Begin):
            assert command.key not in self.given
            self.given[command.key] = self.number[command.key] = 0
            self.out.add(command.key)
            if command.server_drafts:
                self.drafting.add(command.key)
        elif isinstance(command, End):
            self.given.pop(command.key, None)  # its last ruling may be on its way
            for each in (self.out, self.drafting, self.stopping):
                each.discard(command.key)
        elif isinstance(command, Propose):
            assert command.key not in self.out | self.drafting
            assert command.number == self.number[command.key]
            assert command.proposal == PROPOSAL or command.proposal == foreseen(self.given[command.key] - 1)
            self.out.add(command.key)
        elif command.key in self.given:  # else its last ruling is on its way
            if command.server_drafts:
                assert command.key not in self.out | self.drafting
                self.drafting.add(command.key)
            else:
                assert command.key in self.drafting - self.stopping
                self.stopping.add(command.key)

    def step(self, tokens: int) -> StepResults:
        rulings, held = [], []
        for key in sorted(self.out | self.drafting - self.stopping):
            start = self.given[key]
            end = min(start + tokens, LENGTH)
            rulings.append(
                SequenceVerdict(key, self.number[key], [], list(range(start, end)), end == LENGTH, 0, 0)
            )
            self.given[key] = end
            self.number[key] += 1
            self.out.discard(key)
            if end == LENGTH:
                del self.given[key]
                self.drafting.discard(key)
                self.stopping.discard(key)
        for key in sorted(self.stopping):
            held.append(DraftingStopped(key, self.number[key]))
        self.drafting -= self.stopping
        self.stopping.clear()
        return StepResults(0, 0.001, rulings, held, 0, 0, 0.0)


def foreseen(bonus: int) -> Proposal:
    """The tree for a round that ends with `bonus`; a round accepts nothing here."""
    return Proposal((AHEAD + bonus,), (0,))


@dataclass
class Wire:
    """A stream's two directions, in order."""

    number: int
    up: deque[ClientRequest] = field(default_factory=deque)
    down: deque[Answer] = field(default_factory=deque)


@dataclass
class Client:
    """One session of somebody who keeps to the protocol."""

    number: int
    key: bytes
    output: list[int] = field(default_factory=list)
    wire: Wire | None = None
    been: set[int] = field(default_factory=set)  # streams on which something of it may be on its way
    begun: bool = False  # an Open with its prompt was sent under this key
    owed: int = 0  # Turns
    server: bool = False
    may: int | None = None  # the round that it may send
    out: int | None = None  # the one that is out, as far as it knows
    ahead: list[set[int]] = field(default_factory=list)  # of that: the bonuses foreseen, by version from 1
    ended: bool = False
    lost: bool = False  # the server knows it no longer

    def say(self, asked: ClientRequest) -> None:
        assert self.wire is not None
        self.wire.up.append(asked)

    def open(self, wire: Wire) -> None:
        self.wire, self.may = wire, None
        self.been.add(wire.number)
        self.sent(None if self.begun or self.server else 0)
        prompt = [] if self.begun else [1]
        self.owed = 1 if self.begun else 0
        self.begun = True
        self.say(Open(self.number, self.key, prompt, GREEDY, len(self.output), self.server))

    def sent(self, number: int | None) -> None:
        """That round is out now."""
        self.out, self.ahead = number, []

    def send_ahead(self, bonuses: set[int]) -> None:
        assert self.out is not None
        self.ahead.append(bonuses)
        branches = tuple(Branch(0, bonus, foreseen(bonus)) for bonus in sorted(bonuses))
        self.say(Ahead(self.number, self.out, len(self.ahead), branches))

    def hear(self, answer: Answer, fresh: bytes, forgotten: bool) -> None:
        if isinstance(answer, SessionRefused):
            assert answer.reason in ("busy", "unknown"), answer
            if answer.reason == "unknown":
                assert forgotten or not self.output, "a session was forgotten"
                self.lost = bool(self.output)
            assert self.wire is not None
            self.been.discard(self.wire.number)
            self.key, self.begun, self.wire = fresh, False, None
            self.sent(None)
            return
        tokens = answer.ruling.tokens if isinstance(answer, RoundVerdict) else answer.tokens
        assert tokens == list(range(len(self.output), len(self.output) + len(tokens)))
        self.output += tokens
        if isinstance(answer, ClientTurn):
            assert self.owed > 0, "a ClientTurn that nobody asked for"
            self.owed -= 1
            self.ended, due, taken = answer.ended, answer.number, 0
        else:
            self.ended, due, taken = answer.ruling.ended, answer.ruling.number + 1, answer.version
            assert not taken or tokens[-1] in self.ahead[taken - 1], "taken for another outcome"
        self.may = due if not (self.ended or self.owed or self.server or taken) else None
        self.sent(due if taken else None)

    @property
    def connected(self) -> bool:
        return self.wire is not None and not self.ended and not self.lost


class Talking(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = Sessions(LIMITS)
        self.engine = Engine()
        self.said: deque[StepResults] = deque()  # by the engine, on its way
        self.streams = count()
        self.now = 0.0
        self.forgot = False  # some session may have been
        self.keys = (number.to_bytes(16) for number in count())
        self.wires = [self.connect("ann"), self.connect("ann"), self.connect("bob")]
        self.clients = [Client(number, next(self.keys)) for number in (1, 2, 3, 4)]

    def connect(self, owner: str) -> Wire:
        wire = Wire(next(self.streams))
        self.table.connected(wire.number, owner, owner)
        return wire

    def carry_out(self, effects: Effects) -> None:
        for command in effects.commands:
            self.engine.obey(command)
        for stream, answer in effects.answers:
            (wire,) = (wire for wire in self.wires if wire.number == stream)
            wire.down.append(answer)

    # --- what may happen ----------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        for place in range(len(self.clients)):
            self.open(place, place % 2)

    @rule(place=some.integers(0, 3), stream=some.integers(0, 1))
    def open(self, place: int, stream: int) -> None:
        """Also a session that is open already on another stream: a client goes to a new one, and never
        back to where an answer to what it said before could be on its way."""
        client = self.clients[place]
        if not client.ended and not client.lost and self.wires[stream].number not in client.been:
            client.open(self.wires[stream])

    @rule(place=some.integers(0, 3))
    def propose(self, place: int) -> None:
        client = self.clients[place]
        if client.connected and client.may is not None:
            client.say(Round(client.number, client.may, PROPOSAL))
            client.sent(client.may)
            client.may = None

    @rule(place=some.integers(0, 3), foresees=some.sets(some.integers(0, 4)))
    def send_ahead(self, place: int, foresees: set[int]) -> None:
        """Also where the client has just said that the server is to draft, or asked for its turn."""
        client = self.clients[place]
        if client.connected and client.out is not None:
            client.send_ahead({len(client.output) + further for further in foresees})

    @rule(place=some.integers(0, 3))
    def change_who_drafts(self, place: int) -> None:
        client = self.clients[place]
        if client.connected:
            client.server = not client.server
            client.may = None
            client.owed += not client.server
            client.say(Mode(client.number, client.server))

    @rule(place=some.integers(0, 2))
    def deliver_to_server(self, place: int) -> None:
        wire = self.wires[place]
        if wire.up:
            self.carry_out(self.table.request(wire.number, wire.up.popleft(), self.now))

    @rule(place=some.integers(0, 2))
    def deliver_to_client(self, place: int) -> None:
        wire = self.wires[place]
        if not wire.down:
            return
        answer = wire.down.popleft()
        if answer.session in ROGUE:
            return
        (client,) = (client for client in self.clients if client.number == answer.session)
        if client.wire is wire:
            client.hear(answer, next(self.keys), self.forgot)

    @rule(tokens=some.integers(1, 4), place=some.integers(0, 1), foresees=some.sets(some.integers(0, 4)))
    def go_round(self, tokens: int, place: int, foresees: set[int]) -> None:
        """Nothing is late on one stream, nor at the engine, and clients take their turns: else most of what
        is tried never gets far."""
        for _ in range(len(self.wires[place].up)):
            self.deliver_to_server(place)
        self.step(tokens)
        for _ in range(len(self.said)):
            self.hear_engine()
        for _ in range(len(self.wires[place].down)):
            self.deliver_to_client(place)
        for number in range(len(self.clients)):
            self.propose(number)
            self.send_ahead(number, foresees)

    @rule(tokens=some.integers(1, 4))
    def step(self, tokens: int) -> None:
        self.said.append(self.engine.step(tokens))

    @rule()
    def hear_engine(self) -> None:
        if self.said:
            self.carry_out(self.table.stepped(self.said.popleft(), self.now))

    @rule(place=some.integers(0, 2))
    def cut(self, place: int) -> None:
        """The server notices at once, or the client opens elsewhere before it does."""
        gone = self.wires[place]
        self.wires[place] = self.connect("bob" if place == 2 else "ann")
        self.carry_out(self.table.gone(gone.number, self.now))
        for client in self.clients:
            if client.wire is gone:
                client.wire, client.may = None, None
                client.sent(None)

    @rule(seconds=some.sampled_from([1.0, RESUME_S]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.forgot |= seconds >= RESUME_S
        self.carry_out(self.table.expire(self.now))

    @rule(
        stream=some.integers(0, 2),
        session=some.sampled_from(ROGUE),
        number=some.integers(0, 3),
        kind=some.integers(0, 5),
        known=some.integers(0, 2),
    )
    def speak_nonsense(self, stream: int, session: int, number: int, kind: int, known: int) -> None:
        key = bytes([session]) * 16
        asked = (
            Open(session, key, [1], GREEDY, known, number % 2 == 0),
            Round(session, number, PROPOSAL),
            Mode(session, True),
            Mode(session, False),
            Close(session),
            Ahead(session, number, 1 + known, (Branch(0, number, foreseen(number)),)),
        )[kind]
        self.wires[stream].up.append(asked)

    @rule(stream=some.integers(0, 2), session=some.sampled_from(ROGUE))
    def send_what_cannot_be_read(self, stream: int, session: int) -> None:
        error = WireError("it says nothing", session=session)
        self.carry_out(self.table.refused(self.wires[stream].number, error))

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def the_limits_hold(self) -> None:
        assert self.table.running + self.table.parked <= LIMITS.sessions

    def teardown(self) -> None:
        """Everybody comes back and finishes; then nothing is left."""
        for place in range(3):
            self.cut(place)
        for _ in range(200):
            for place, client in enumerate(self.clients):
                if client.wire is None:
                    self.open(place, 0)
                elif client.server and not client.ended:
                    self.change_who_drafts(place)
                self.propose(place)
            self.deliver_to_server(0)
            self.step(3)
            while self.said:
                self.hear_engine()
            while self.wires[0].down:
                self.deliver_to_client(0)
            if all(client.ended or client.lost for client in self.clients):
                break
            self.now += RESUME_S / 1000  # makes place where the table was full
        for client in self.clients:
            assert client.lost or client.output == list(range(LENGTH))
        for place in range(3):
            self.cut(place)
        self.now += 2 * RESUME_S
        self.carry_out(self.table.expire(self.now))
        assert len(self.table) == 0
        assert not self.engine.given


TestTalking = Talking.TestCase
TestTalking.settings = settings(max_examples=100, stateful_step_count=40)
