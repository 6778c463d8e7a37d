"""A link whose server is here: it verifies node by node with whole prefixes, in virtual time.

Nothing of the engine's batching, cache or masks is in it, so that it is an oracle for what the client does.
Messages take `delay()` seconds; a cut loses what is on its way and, if asked to, what arrived last.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import torch
from drawn_nodes import parted
from torch import Tensor

from specops.edge.link import (
    Branch,
    ClientTurn,
    Event,
    LinkDown,
    LinkUp,
    Proposal,
    Reason,
    ServerLimits,
    SessionRefused,
    Traffic,
    Verdict,
)
from specops.engine.request import Sampling
from specops.engine.rng import Chance, Dice, distribution
from specops.engine.tree import Draw, TokenTree, Topology
from specops.engine.verifiers import best_verifier

Logits = Callable[[tuple[int, ...]], Tensor]
"""All tokens so far -> [V], of the next one."""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class There:
    """A session at the server."""

    key: bytes
    prompt: list[int]
    sampling: Sampling
    chance: Chance
    output: list[int] = field(default_factory=list)
    due: int = 0
    ended: bool = False
    server_drafts: bool = False
    at: int | None = None  # its number on the link
    ahead: tuple[int, dict[tuple[int, int], Proposal]] = (0, {})  # the last version, by outcome


def distribution_of(tokens: Sequence[int], weights: Sequence[int], vocabulary: int) -> Tensor:
    """[V], what the children of a node were drawn from."""
    q = torch.zeros(vocabulary)
    for token, weight in zip(tokens, weights, strict=True):
        q[token] = weight / sum(weights)
    return q


class Rows:
    """The target's distributions after a tree's nodes, as a verifier asks for them."""

    def __init__(self, of: Callable[[int], Tensor]) -> None:
        self._of = of

    def __getitem__(self, node: int) -> Tensor:
        return self._of(node)


def served(vocabulary: int, **other: object) -> ServerLimits:
    usual = {
        "model": "target", "tokenizer": b"", "eos": frozenset(), "max_length": 160, "max_nodes": 64,
        "max_support": 32, "max_sessions": 8, "resume_s": 60.0, "own_tree": "none", "max_ahead": 16,
    }  # fmt: skip
    return ServerLimits(vocabulary=vocabulary, **{**usual, **other})  # type: ignore[arg-type]


class LocalLink:
    def __init__(
        self,
        logits: Logits,
        served: ServerLimits,
        *,
        delay: Callable[[], float] = lambda: 0.015,
        chance: Callable[[Sampling], Chance] = lambda sampling: Dice(sampling.seed),
    ) -> None:
        self.limits, self.traffic, self.clock = served, Traffic(), Clock()
        self.there: dict[bytes, There] = {}
        self.proposals: list[tuple[int, Proposal]] = []
        self.taken: list[tuple[int, Proposal]] = []  # of what was sent ahead
        self.refusals: list[tuple[Reason, float]] = []  # of the next opens
        self._logits, self._delay, self._chance = logits, delay, chance
        self._coming: list[tuple[float, int, Event]] = []
        self._order = count()
        self._up = True

    # --- what the client calls ----------------------------------------------------------------

    def open(
        self,
        session: int,
        key: bytes,
        prompt: list[int],
        sampling: Sampling,
        *,
        acknowledged: int = 0,
        server_drafts: bool = False,
    ) -> None:
        assert self._up, "opened while the link is down"
        if self.refusals:
            reason, retry_s = self.refusals.pop(0)
            self._say(SessionRefused(session, reason, f"it is {reason}", retry_s))
            return
        there = self.there.get(key)
        if there is not None:
            assert acknowledged <= len(there.output)
            there.at, there.server_drafts = session, server_drafts
            self._say(ClientTurn(session, there.due, there.output[acknowledged:], there.ended))
            self._draft(there)
        elif acknowledged or not prompt:
            self._say(SessionRefused(session, "unknown", "there is no such session", 0.0))
        else:
            there = There(key, list(prompt), sampling, self._chance(sampling), at=session)
            there.server_drafts = server_drafts
            self.there[key] = there
            self._rule(there, 0, Proposal((), ()))
            self._draft(there)

    def propose(self, session: int, number: int, proposal: Proposal) -> None:
        assert self._up, "proposed while the link is down"
        there = self._at(session)
        assert not there.ended
        assert number == there.due, "a round that is not due"
        assert len(proposal.tokens) <= self.limits.max_nodes
        self.proposals.append((number, proposal))
        self._rule(there, number, proposal)

    def ahead(self, session: int, number: int, version: int, branches: Sequence[Branch]) -> None:
        assert self._up, "told while the link is down"
        assert 0 < len(branches) <= self.limits.max_ahead
        there = self._at(session)
        assert number == there.due - 1, "nothing is out that it could be ahead of"
        assert version > there.ahead[0]
        trees = {(branch.end, branch.bonus): branch.proposal for branch in branches}
        assert len(trees) == len(branches)
        there.ahead = (version, trees)

    def set_mode(self, session: int, *, server_drafts: bool) -> None:
        assert self._up, "told while the link is down"
        there = self._at(session)
        there.server_drafts = server_drafts
        if server_drafts:
            self._draft(there)
        else:
            self._say(ClientTurn(session, there.due, [], there.ended))

    def end(self, session: int) -> None:
        for there in list(self.there.values()):
            if there.at == session:
                del self.there[there.key]

    def probe(self) -> None: ...

    def receive(self, timeout: float | None) -> list[Event]:
        until = self.clock.now + (timeout or 0.0)
        if self._coming and self._coming[0][0] <= until:
            self.clock.now = max(self.clock.now, self._coming[0][0])
        elif timeout:
            self.clock.now = until
        events = []
        while self._coming and self._coming[0][0] <= self.clock.now:
            events.append(heapq.heappop(self._coming)[2])
            if isinstance(events[-1], LinkUp):
                self._up = True
            if isinstance(events[-1], Verdict):
                for there in self.there.values():
                    if there.at == events[-1].session:
                        events[-1] = self._go_on(there, events[-1])
                        self._draft(there)
        return events

    def close(self) -> None: ...

    # --- what a test does ---------------------------------------------------------------------

    @property
    def going(self) -> list[There]:
        """Sessions that have neither ended nor been closed."""
        return [there for there in self.there.values() if not there.ended]

    def cut(self, *, for_s: float = 0.05, arrived: bool = True, forget: bool = False) -> None:
        """The connection breaks, and what is on its way is lost. arrived: the rounds that are out had reached
        the server, and so had what was sent ahead, which it then went on with; forget: it loses its sessions
        as well."""
        if not self._up:
            return
        lost = {e.session: e for _, _, e in self._coming if isinstance(e, Verdict) and e.number > 0}
        for there in self.there.values():
            verdict = lost.get(there.at) if there.at is not None else None
            if verdict is not None and not arrived and not there.server_drafts:
                del there.output[len(there.output) - len(verdict.tokens) :]
                there.due, there.ended = verdict.number, False
            there.at = None
            if verdict is not None and arrived:
                self._go_on(there, verdict)
            there.ahead = (0, {})
        if forget:
            self.there.clear()
        self._up = False
        down, up = (
            (self.clock.now, next(self._order), LinkDown("cut")),
            (self.clock.now + for_s, next(self._order), LinkUp()),
        )
        self._coming = [down, up]

    # --- verification -------------------------------------------------------------------------

    def _go_on(self, there: There, verdict: Verdict) -> Verdict:
        """With what was sent ahead, if it was for this outcome: what came until now was there in time."""
        (version, trees), there.ahead = there.ahead, (0, {})
        outcome = (verdict.path[-1] if verdict.path else 0, verdict.tokens[-1])
        if there.server_drafts or verdict.ended or outcome not in trees:
            return verdict
        self.taken.append((there.due, trees[outcome]))
        self._rule(there, there.due, trees[outcome])
        return replace(verdict, version=version)

    def _rule(self, there: There, number: int, proposal: Proposal) -> None:
        path, tokens = self._verified(there, proposal)
        taken = []
        for token in tokens:
            taken.append(token)
            there.output.append(token)
            stops = () if there.sampling.ignore_eos else self.limits.eos
            full = len(there.prompt) + len(there.output) >= self.limits.max_length
            if token in stops or token in there.sampling.stop_token_ids or full:
                there.ended = True
            if there.ended or len(there.output) == there.sampling.max_tokens:
                there.ended = True
                break
        there.due = number + 1
        if there.at is not None:
            said_path = [] if there.server_drafts else path
            verdict = Verdict(there.at, number, said_path, taken, there.ended, 0.0, 0.0, 0, 0.0)
            self._say(verdict)

    def _verified(self, there: There, proposal: Proposal) -> tuple[list[int], list[int]]:
        before = (*there.prompt, *there.output)
        topology = Topology.from_parents((-1, *proposal.parents))
        q: list[tuple[Tensor, ...]] = [() for _ in range(len(topology))]
        for node, (some, weights) in parted(proposal.drawn).items():
            q[node] = (distribution_of(some, weights, self.limits.vocabulary),)
        tokens = [before[-1], *proposal.tokens]
        tree = TokenTree(topology, tokens, proposal.draw, tuple(q))

        def after(node: int) -> Tensor:
            return self._logits((*before, *(tree.tokens[step] for step in tree.path_to(node))))

        if there.sampling.temperature == 0:
            node, path = 0, []
            while True:
                choice = int(after(node).argmax())
                below = [child for child in topology.children[node] if tokens[child] == choice]
                if not below:
                    return path, [*(tokens[step] for step in path), choice]
                node = below[0]
                path.append(node)
        verifier = best_verifier(proposal.draw if len(tree) > 1 else Draw.DETERMINISTIC)
        rows = Rows(lambda node: distribution(after(node)[None], there.sampling)[0])
        verified = verifier.verify(tree, rows, there.chance)
        return verified.path, [*(tokens[step] for step in verified.path), verified.bonus]

    def _draft(self, there: There) -> None:
        """The next step of a server that drafts for itself, when the one before is out."""
        waiting = any(isinstance(e, Verdict) and e.session == there.at for _, _, e in self._coming)
        if there.server_drafts and not there.ended and there.at is not None and not waiting:
            self._rule(there, there.due, Proposal((), ()))

    def _at(self, session: int) -> There:
        (there,) = [there for there in self.there.values() if there.at == session]
        return there

    def _say(self, event: Event) -> None:
        """Of one session in order, as a stream keeps it."""
        before = [when for when, _, e in self._coming if _session(e) == _session(event)]
        at = max([self.clock.now + self._delay(), *before])
        if isinstance(event, Verdict):
            event = replace(event, received=at)
        heapq.heappush(self._coming, (at, next(self._order), event))


def _session(event: Event) -> int | None:
    return event.session if isinstance(event, Verdict | ClientTurn | SessionRefused) else None


def logits_of(model: torch.nn.Module) -> Logits:
    """Of transformers' own forward over the whole prefix, remembered."""
    known: dict[tuple[int, ...], Tensor] = {}

    def logits(prefix: tuple[int, ...]) -> Tensor:
        if prefix not in known:
            with torch.inference_mode():
                known[prefix] = model(torch.tensor([prefix]), use_cache=False).logits[0, -1].float()
        return known[prefix]

    return logits
