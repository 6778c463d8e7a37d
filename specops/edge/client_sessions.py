"""A client's sessions: the state of each one's exchange with the server, and what each event changes."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from itertools import count

from specops.edge.client_metrics import EdgeCounters
from specops.edge.drafting import Drafts
from specops.edge.fallback import Fallback
from specops.edge.link import (
    ClientTurn,
    Event,
    Link,
    LinkDown,
    LinkUp,
    Pong,
    Proposal,
    SessionRefused,
    Verdict,
)
from specops.edge.settings import Depth, Pacing
from specops.engine.request import Counters, Emission, Sampling, StepTimes
from specops.engine.sequence import Sequence

VERSIONS = 3
"""Number of versions of the trees sent ahead in one round. An early version may be the only one in time,
and costs little."""


class Stage(Enum):
    """The side whose message is next."""

    HERE = auto()
    """The client's: the sequence's tree is being drafted, or is about to be."""
    AWAY = auto()
    """The server's: it has a round, or the prompt."""
    THERE = auto()
    """The server's, repeatedly: it drafts for itself."""
    UNCLEAR = auto()
    """The server's, a Turn: after a broken stream, or after it stopped drafting."""
    CLOSED = auto()
    """Nobody's: the session must be opened, at once or at `again`."""


@dataclass
class ClientSession:
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
    """The trees sent ahead for the round that is out, one dictionary for each version: (tree, expected
    tokens) by outcome."""

    branched_at: int = -1  # passes when that was; -1: nothing was sent ahead
    used_ahead: bool = False  # the server had what is out before it was its turn
    passes: int = 0  # of the draft, since then
    retained: int = 0  # levels of the tree that were there by then
    again: float = 0.0  # not to be opened before
    stuck_since: float | None = None  # since when the server has been out of reach, or busy
    stuck_by: str = ""  # why
    lost: int = 0  # times that the server did not know it any more, since the last verdict
    server_drafts: bool = False  # the last mode that the server got

    @property
    def received(self) -> int:
        """Number of this session's output tokens that the client has."""
        return len(self.sequence.tokens) - len(self.prompt)

    def begin_turn(self, due: int, now: float, retained: int) -> None:
        """Begin the client's turn with round `due`."""
        self.stage, self.due, self.proposal = Stage.HERE, due, None
        self.answered_at, self.passes, self.retained = now, 0, retained
        self.branches, self.branched_at = [], -1

    def goes_on(self, verdict: Verdict) -> Proposal:
        """Continue with the tree that was sent ahead for this outcome and is now the round that is out.
        Returns it."""
        self.proposal, self.promised = self.branches[verdict.version - 1][outcome(verdict)]
        self.due, self.branches, self.passes = verdict.number + 1, [], 0
        self.answered_at = self.sent_at = verdict.received
        self.used_ahead, self.branched_at = True, -1
        return self.proposal

    def sent(self, now: float) -> None:
        """Record that the proposal was sent."""
        self.stage, self.sent_at, self.used_ahead = Stage.AWAY, now, False

    @property
    def may_send_ahead(self) -> bool:
        """Return whether a round is out and the draft has grown since trees were last sent ahead for it."""
        out = self.stage is Stage.AWAY and self.proposal is not None
        return out and self.branched_at < self.passes and len(self.branches) < VERSIONS

    def wait(self, now: float, why: str, again: float) -> None:
        """Close the session until `again`, because of `why`."""
        self.stage, self.again, self.stuck_by = Stage.CLOSED, again, why
        if self.stuck_since is None:
            self.stuck_since = now


def anew(talk: ClientSession, number: int) -> ClientSession:
    """A new session, called `number`, for the rest of a sequence."""
    sequence = talk.sequence
    done = len(sequence.tokens)
    sampling = replace(
        sequence.sampling,
        max_tokens=sequence.remaining,
        # An equal seed would repeat the same random numbers.
        seed=derived(sequence.sampling.seed, f"from {done}"),
    )
    prompt = list(sequence.tokens)
    return ClientSession(
        sequence,
        number,
        prompt,
        sampling,
        stuck_since=talk.stuck_since,
        stuck_by=talk.stuck_by,
        lost=talk.lost + 1,
    )


def derived(seed: int | None, purpose: str) -> int | None:
    """A seed whose numbers are independent of those of `seed`; None, fresh entropy, for None."""
    if seed is None:
        return None
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose}".encode()).digest()[:8], "big")


def outcome(verdict: Verdict) -> tuple[int, int]:
    """The outcome of a round: the node at which its path ends, and the bonus token."""
    return verdict.path[-1] if verdict.path else 0, verdict.tokens[-1]


def unfit(verdict: Verdict, talk: ClientSession) -> str | None:
    """The fault of a verdict on the round that is out; None if it is valid."""
    proposal = talk.proposal
    tokens, parents = (proposal.tokens, proposal.parents) if proposal is not None else ((), ())
    path, above = verdict.path, 0
    for node in path:
        if not above < node <= len(tokens) or parents[node - 1] != above:
            return f"its path {path} is not in the tree"
        above = node
    if not verdict.tokens or len(verdict.tokens) > len(path) + 1:
        return f"it has {len(verdict.tokens)} tokens for a path of {len(path)} nodes"
    if len(verdict.tokens) <= len(path) and not verdict.ended:
        return "its tokens are fewer than its path"
    accepted = [tokens[node - 1] for node in path]
    if verdict.tokens[: len(path)] != accepted[: len(verdict.tokens)]:
        return "its tokens are not those of its path"
    if verdict.version:
        sent = talk.branches[verdict.version - 1] if verdict.version <= len(talk.branches) else {}
        if verdict.ended or outcome(verdict) not in sent:
            return "it continues with a tree that was not sent"
    return None


log = logging.getLogger(__name__)

LOST_TOO_OFTEN = 3
"""Number of times that a reachable server may lose a session that makes no progress."""

AWAY_TOO_LONG_S = 10.0
"""Seconds after which a link that is down is reported as unavailable."""

SLACK = 1.5
"""Number of draft passes before the deadline at which trees are sent ahead: one pass that would still end
in time, and a reserve for variation."""

RETRY_S = 0.5
"""Seconds until a session is opened again, if the server named no time."""


class ClientSessions:
    def __init__(
        self,
        link: Link,
        drafts: Drafts,
        fallback: Fallback,
        counters: Counters,
        own: EdgeCounters,
        *,
        patience_s: float,
        clock: Callable[[], float],
    ) -> None:
        """patience_s: timeout of a sequence while the server is out of reach or busy, in seconds. clock:
        the link's."""
        self.fallback = fallback
        self.pacing = {greedy: Pacing() for greedy in (True, False)}
        self._link, self._drafts, self._clock = link, drafts, clock
        self._counters, self._own, self._patience_s = counters, own, patience_s
        self._by_sequence: dict[int, ClientSession] = {}
        self._by_number: dict[int, ClientSession] = {}
        self._numbers = count(1)
        self._down: tuple[float, str] | None = None  # since when, and why

    def __len__(self) -> int:
        return len(self._by_sequence)

    def __getitem__(self, sequence_id: int) -> ClientSession:
        return self._by_sequence[sequence_id]

    def __contains__(self, sequence_id: int) -> bool:
        return sequence_id in self._by_sequence

    def in_stages(self, *stages: Stage) -> list[ClientSession]:
        return [talk for talk in self._by_sequence.values() if talk.stage in stages]

    @property
    def connected(self) -> bool:
        return self._down is None

    @property
    def unavailable(self) -> str | None:
        """Return why nothing can be verified; None while it can, and for the first `AWAY_TOO_LONG_S`
        seconds."""
        if self._down is None or self._clock() - self._down[0] < AWAY_TOO_LONG_S:
            return None
        return f"the verification server is out of reach: {self._down[1]}"

    # --- sent messages ----------------------------------------------------------------------------

    def begin(self, sequence: Sequence) -> None:
        self._drafts.begin(sequence)
        self._add(ClientSession(sequence, next(self._numbers), list(sequence.tokens), sequence.sampling))

    def end(self, talk: ClientSession, *, tell: bool = True) -> None:
        if tell and talk.stage is not Stage.CLOSED:
            self._link.end(talk.number)
        del self._by_sequence[talk.sequence.id], self._by_number[talk.number]
        self._drafts.end(talk.sequence)

    def propose(self, talk: ClientSession) -> None:
        """Send the session's tree as it is now."""
        talk.proposal, talk.promised = self._drafts.propose(talk.sequence)
        self._own.count_tree(talk.proposal)
        self._send(talk)

    def send_ahead(self, count: int, depth: Depth, pass_s: float | None, *, at_once: bool) -> None:
        """Send the next trees of the rounds that are out: as late as they can still arrive before the
        verdict, or at once where waiting would not improve them.

        count: number of outcomes. pass_s: seconds of a draft pass.
        """
        for talk in [] if self.fallback.server_drafts else self.in_stages(Stage.AWAY):
            pace = self.pacing[talk.sequence.greedy].pace(pass_s)
            if pace is None or not talk.may_send_ahead:
                continue
            late = talk.sent_at + pace.served_s - (pace.way_s if talk.used_ahead else 0.0)
            now = self._clock()
            if not at_once and now + SLACK * pace.pass_s < late:
                continue
            if talk.branches and now > late:  # they would most likely come after the verdict
                continue
            ahead = self._drafts.ahead(talk.sequence, count, partial(depth.ahead, pace=pace))
            talk.branches.append(
                {(branch.end, branch.bonus): (branch.proposal, worth) for branch, worth in ahead}
            )
            talk.branched_at = talk.passes
            if ahead:
                version = len(talk.branches)
                self._link.ahead(talk.number, talk.due, version, [branch for branch, _ in ahead])

    def due_within(self, pass_s: float | None) -> bool:
        """Return whether a verdict is expected before a draft pass of `pass_s` seconds would end, and would
        have to wait for it."""
        now = self._clock()
        for talk in self.in_stages(Stage.AWAY):
            pace = self.pacing[talk.sequence.greedy].pace(pass_s)
            if pace is not None and talk.proposal is not None:
                comes = talk.sent_at + pace.served_s + (0.0 if talk.used_ahead else pace.way_s)
                if now < comes < now + pace.pass_s:
                    return True
        return False

    def tend(self) -> list[Emission]:
        """Do what is due now, and return the output of failed sequences: open sessions, hand over
        drafting, end sequences whose patience has run out."""
        now, emissions = self._clock(), []
        for talk in list(self._by_sequence.values()):
            if talk.stuck_since is not None and now - talk.stuck_since >= self._patience_s:
                emissions.append(self._fail(talk, f"the verification server did not go on: {talk.stuck_by}"))
            elif talk.stage is Stage.CLOSED and self._down is None and now >= talk.again:
                self._open(talk)
            elif talk.stage is Stage.HERE and self.fallback.server_drafts:
                self._hand_over(talk, server_drafts=True)
            elif talk.stage is Stage.THERE and not self.fallback.server_drafts:
                self._hand_over(talk, server_drafts=False)
        if self._by_sequence and self._down is None and self.fallback.due(now):
            self._link.probe()
        return emissions

    def _open(self, talk: ClientSession) -> None:
        drafts_there = self.fallback.server_drafts
        prompt = [] if talk.opened else talk.prompt
        self._link.open(
            talk.number,
            talk.key,
            prompt,
            talk.sampling,
            acknowledged=talk.received,
            server_drafts=drafts_there,
        )
        talk.server_drafts = drafts_there
        if talk.opened:
            talk.stage = Stage.UNCLEAR
            self._own.resumed += 1
        else:
            talk.stage, talk.opened = Stage.THERE if drafts_there else Stage.AWAY, True

    def _hand_over(self, talk: ClientSession, *, server_drafts: bool) -> None:
        self._link.set_mode(talk.number, server_drafts=server_drafts)
        talk.server_drafts = server_drafts
        talk.stage = Stage.THERE if server_drafts else Stage.UNCLEAR
        self._own.to_server += server_drafts
        self._own.to_client += not server_drafts

    def _send(self, talk: ClientSession) -> None:
        assert talk.proposal is not None
        self._link.propose(talk.number, talk.due, talk.proposal)
        talk.sent(self._clock())

    # --- received messages --------------------------------------------------------------------

    def hear(self, events: list[Event]) -> list[Emission]:
        emissions = []
        for event in events:
            if isinstance(event, LinkDown):
                self._lost(event)
            elif isinstance(event, LinkUp):
                self._down = None  # `tend` opens the sessions
                for session in self._by_sequence.values():
                    session.stuck_since = None
            elif isinstance(event, Pong):
                self.fallback = self.fallback.pinged(self._clock(), event.rtt_s)
            elif (talk := self._by_number.get(event.session)) is not None:
                emissions += self._answered(talk, event)
        return emissions

    def _answered(self, talk: ClientSession, event: Verdict | ClientTurn | SessionRefused) -> list[Emission]:
        if isinstance(event, SessionRefused):
            return self._refused(talk, event)
        if talk.stage in (Stage.HERE, Stage.CLOSED):
            log.debug("session %d: what came was not waited for", talk.number)
            return []
        talk.stuck_since, talk.lost = None, 0
        if isinstance(event, ClientTurn):
            return self._turn(talk, event)
        if talk.stage is Stage.AWAY:
            return self._verdict(talk, event)
        return self._server_draft_verdict(talk, event)

    def _verdict(self, talk: ClientSession, verdict: Verdict) -> list[Emission]:
        """Process the verdict on a round or on the prompt."""
        fault = "it is of another round" if verdict.number != talk.due else unfit(verdict, talk)
        if fault is not None:
            return [self._fail(talk, f"could not take the server's verdict: {fault}")]
        hit = not verdict.ended and self._drafts.follow(
            talk.sequence, verdict.path, verdict.tokens, verdict.version
        )
        retained = self._drafts.levels(talk.sequence) if hit else 0
        if talk.due > 0:
            self._count(talk, verdict, hit=hit)
        if verdict.version:
            self._own.taken += 1
            self._own.count_tree(talk.goes_on(verdict))
        else:
            talk.begin_turn(verdict.number + 1, verdict.received, retained)
        return [self._extend(talk, verdict.tokens, ended=verdict.ended)]

    def _server_draft_verdict(self, talk: ClientSession, verdict: Verdict) -> list[Emission]:
        """Process a verdict on the server's own draft."""
        if verdict.number < talk.due or not verdict.tokens:
            return [self._fail(talk, "could not take the server's verdict: it is of an earlier step")]
        self._own.verdicts += 1
        if talk.answered_at is not None:
            seconds = verdict.received - talk.answered_at
            self.fallback = self.fallback.streamed(
                verdict.received, tokens=len(verdict.tokens), seconds=seconds
            )
        self._drafts.walk(talk.sequence, verdict.tokens)
        talk.due, talk.answered_at, talk.proposal = verdict.number + 1, verdict.received, None
        return [self._extend(talk, verdict.tokens, ended=verdict.ended)]

    def _turn(self, talk: ClientSession, turn: ClientTurn) -> list[Emission]:
        now = self._clock()
        if talk.proposal is not None and not turn.tokens and not turn.ended:
            if turn.number != talk.due:
                return [self._fail(talk, f"the server has no verdict, and wants round {turn.number} next")]
            talk.answered_at = now  # how long the link was down says nothing of the draft
            if talk.server_drafts:
                talk.stage = Stage.THERE
            else:
                self._send(talk)  # it was lost on its way
            return []
        emissions = []
        if turn.tokens or turn.ended:
            self._drafts.walk(talk.sequence, turn.tokens)
            emissions.append(self._extend(talk, turn.tokens, ended=turn.ended))
        talk.begin_turn(turn.number, now, 0)
        if talk.server_drafts:
            talk.stage = Stage.THERE
        return emissions

    def _refused(self, talk: ClientSession, refused: SessionRefused) -> list[Emission]:
        again = self._clock() + (refused.retry_s or RETRY_S)
        if refused.reason == "busy":  # it has not begun
            talk.wait(self._clock(), refused.message, again)
            talk.opened = False
        elif refused.reason == "draining" or (refused.reason == "unknown" and talk.lost < LOST_TOO_OFTEN):
            fresh = anew(talk, next(self._numbers))
            if refused.reason == "draining":
                fresh.wait(self._clock(), refused.message, again)
            del self._by_number[talk.number]
            self._add(fresh)
            self._drafts.withdraw(talk.sequence)
            self._own.reopened += 1
        else:
            return [self._fail(talk, f"the verification server refused: {refused.message}", tell=False)]
        return []

    def _lost(self, down: LinkDown) -> None:
        now = self._clock()
        self._own.downs += 1
        self._down = (now, down.why)
        for talk in self._by_sequence.values():
            talk.wait(now, down.why, now)
            talk.lost = 0

    # --- consequences -------------------------------------------------------------------------

    def _add(self, talk: ClientSession) -> None:
        self._by_sequence[talk.sequence.id] = self._by_number[talk.number] = talk
        if self._down is not None:
            now = self._clock()
            talk.wait(now, self._down[1], now)

    def _extend(self, talk: ClientSession, tokens: list[int], *, ended: bool) -> Emission:
        sequence = talk.sequence
        if len(sequence.tokens) == sequence.prompt_length:
            self._counters.prompt_tokens += sequence.prompt_length
        emission = sequence.extend(tokens, [])
        self._counters.generated_tokens += len(emission.tokens)
        if emission.finish_reason is not None:
            self.end(talk, tell=not ended)
        elif ended:
            error = "the verification server ended a sequence that has not ended"
            return replace(self._fail(talk, error, tell=False), tokens=emission.tokens, text=emission.text)
        return emission

    def _fail(self, talk: ClientSession, error: str, *, tell: bool = True) -> Emission:
        self._own.failed += 1
        self.end(talk, tell=tell)
        return Emission(talk.sequence.id, [], "", "cancelled", error=error)

    def _count(self, talk: ClientSession, verdict: Verdict, *, hit: bool) -> None:
        assert talk.answered_at is not None
        assert talk.proposal is not None
        tokens, accepted = len(verdict.tokens), len(verdict.path)
        home_s, away_s = talk.sent_at - talk.answered_at, verdict.received - talk.sent_at
        served_s = verdict.waited_s + verdict.step_s
        rtt = max(away_s - served_s, 0.0)
        counters, own = self._counters, self._own
        counters.add(StepTimes(home_s, away_s, 0.0))
        if talk.proposal.tokens:
            counters.drafts += 1
            counters.draft_tokens += len(talk.proposal.tokens)
            counters.accepted_tokens += accepted
            by_depth = counters.accepted_per_position
            by_depth += [0] * (accepted - len(by_depth))
            for depth in range(accepted):
                by_depth[depth] += 1
        own.rounds += 1
        own.verdicts += 1
        own.hits += hit
        own.draft_s += home_s
        own.network_s += rtt
        own.waited_s += verdict.waited_s
        own.step_s += verdict.step_s
        own.evicted += verdict.evicted
        pacing = self.pacing[talk.sequence.greedy]
        pacing.learn(
            tokens=tokens,
            promised=talk.promised,
            home_s=home_s,
            away_s=away_s,
            served_s=served_s,
            way_s=None if talk.used_ahead else rtt,
        )
        self.fallback = self.fallback.round(
            verdict.received, tokens=tokens, seconds=home_s + away_s, rtt=rtt, step=verdict.step_s
        )
