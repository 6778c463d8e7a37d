"""The tree of one sequence at its client: what was sent for verification, and what grows on ahead of it.

A child of a node that was sent, itself not sent, is a guess at how the round ends: the path at its parent,
and its token the bonus. So drafting ahead (SpecEdge's proactive drafting, arXiv 2505.17052) is
growing the same tree on, unsent: where the verdict's path and bonus lead to a node that is there, it is the
next root, and all below it is kept with its KV. SpecEdge grows below one such node; below several they are an
outcome cache (Saguaro, arXiv 2603.03251).

Greedy, candidates are the draft's likeliest and the best of all are sent (SpecExec, arXiv 2406.02532). At
temperature > 0 the children of a node are drawn, and what was drawn at a node is sent whole or not at all, by
a rule that does not look at it. Beside it stand guesses, the likeliest tokens that were not drawn, which are
never sent as children.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import nlargest

import torch
from torch import Tensor

from specops.edge.proposal import Proposal
from specops.edge.quantised import Quantised
from specops.engine.attention import Mask
from specops.engine.chance import Chance
from specops.engine.drafters.grower import Level
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw

LEAST = math.log(1e-3)
"""Of what is less likely than this nothing is drafted ahead."""

SPARE = 8
"""Guesses beside what was drawn at a node."""

LEVELS = 4
"""Of drawn trees, about. What a pass runs is drawn and has its room in the tree for good: one that ran all it
could would leave none for the levels below."""

TAKEN = 0.7
"""How likely a child drawn at a node is accepted, those before it being rejected. About right is enough: it
orders what is run, and what it promises is held against what came of it (depth.py)."""


@dataclass(frozen=True)
class Kept:
    """What a verdict leaves of a tree: places in the draft's cache, ascending."""

    accepted: list[int]  # of what is committed now, the new root among them after a hit
    ahead: list[int]  # of what lies below the new root
    hit: bool


@dataclass
class Growth:
    """Nodes by number, each after its parent; the root is 0, whose place in the draft's cache is 0."""

    tokens: list[int]
    room: int  # nodes that may be run
    ends: frozenset[int]  # tokens after which there are no more
    parents: list[int] = field(default_factory=lambda: [-1])
    children: list[list[int]] = field(default_factory=lambda: [[]])
    depths: list[int] = field(default_factory=lambda: [0])
    scores: list[float] = field(default_factory=lambda: [0.0])  # log-probability of the path, as far as known
    offered: list[bool] = field(default_factory=lambda: [True])  # whether it may be sent; False of a guess
    places: list[int] = field(default_factory=lambda: [0])  # -1 of what has not been run
    run: list[int] = field(default_factory=lambda: [0])  # nodes by place
    drawn: dict[int, Quantised] = field(default_factory=dict)  # what children were drawn from
    sent: dict[int, int] | None = None  # their numbers in the proposal; None: nothing is away
    order: list[int] = field(default_factory=list)  # nodes 1, 2, … of the proposal
    levels: int = 0  # of what was kept at the last verdict
    promised: float = 0.0  # tokens that the proposal may bring, by the scores of its nodes that were run
    ran: int = 1  # places in use when it was sent: those from here on are of what was run ahead
    _head: int | None = None  # the one guess of SpecEdge's, once it is chosen
    _sees: Tensor = field(init=False)  # [places, places] bool

    def __post_init__(self) -> None:
        self._sees = torch.eye(self.room + 1, dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.tokens)

    # --- growing ------------------------------------------------------------------------------

    def branch(self, node: int, tokens: list[int], logs: list[float]) -> None:
        """The likeliest `tokens`, of these log-probabilities after `node`, may follow it."""
        for token, log in zip(tokens, logs, strict=True):
            self._add(node, token, self.scores[node] + log, offered=True)

    def branch_drawn(self, node: int, q: Quantised, width: int, chance: Chance) -> None:
        """Draw the children of `node` from q, or, where they could no longer be sent, guess."""
        drawn: list[int] = []
        rejected = 0.0  # log of how likely all that was drawn is
        if self.sent is None or node not in self.sent:
            drawn = q.draw(chance, width)
            self.drawn[node] = q
            for token in drawn:
                self._add(node, token, self.scores[node] + rejected + math.log(TAKEN), offered=True)
                rejected += math.log(1 - TAKEN)
        left = [(w, t) for w, t in zip(q.weights, q.tokens, strict=True) if t not in drawn]
        mass = sum(weight for weight, _ in left)
        for weight, token in sorted(left, reverse=True)[:SPARE]:
            self._add(node, token, self.scores[node] + rejected + math.log(weight / mass), offered=False)

    def _add(self, parent: int, token: int, score: float, *, offered: bool) -> None:
        self.children[parent].append(len(self.tokens))
        self.tokens.append(token)
        self.parents.append(parent)
        self.children.append([])
        self.depths.append(self.depths[parent] + 1)
        self.scores.append(score)
        self.offered.append(offered)
        self.places.append(-1)

    def levels_of(self, sequence: Sequence, nodes: list[int]) -> list[Level]:
        """Give `nodes` their places, to be run in one pass; those of one depth are a level."""
        levels = []
        for depth in sorted({self.depths[node] for node in nodes}):
            here = [node for node in nodes if self.depths[node] == depth]
            start, stop = len(self.run), len(self.run) + len(here)
            parents = [self.places[self.parents[node]] for node in here]
            self._sees[start:stop] |= self._sees[parents]
            for place, node in enumerate(here, start):
                self.places[node] = place
            self.run += here
            tokens = [self.tokens[node] for node in here]
            mask = Mask(self._sees[start:stop, 1:stop])
            levels.append(Level(sequence, tokens, parents, start, depth, mask))
        return levels

    @property
    def room_left(self) -> int:
        return self.room + 1 - len(self.run)

    # --- what to run next ---------------------------------------------------------------------

    def next_here(
        self, beams: int, nodes: int, deepest: int, *, width: int | None
    ) -> tuple[list[int], float]:
        """What a pass would run before the tree is sent, the best first, and the sum of the probabilities
        that their paths are accepted, less those of what their children would push out.

        nodes: that may be sent. width: children drawn at each node; None: the likeliest.
        """
        if width is None:
            best = self._best(nodes, deepest)
            worst = self.scores[best[-1]] if len(best) == nodes else -math.inf
            found = [node for node in best if self._waits(node, deepest) and self.scores[node] > worst]
        else:
            whole, worst = self._whole(nodes), -math.inf
            waiting = [node for node in whole if self._waits(node, deepest)]
            found = sorted(waiting, key=self.scores.__getitem__, reverse=True)
            beams = min(beams, math.ceil(nodes / width / LEVELS), (nodes - len(whole)) // width)
        found = found[: min(beams, self.room_left)]
        return found, sum(math.exp(self.scores[node]) - math.exp(worst) for node in found)

    def next_ahead(self, beams: int, heads: int, deepest: int) -> list[int]:
        """What a pass would run while the tree is away, the best first.

        First the ends of what was sent, whose children are guesses; then what lies below the best guesses.
        """
        assert self.sent is not None
        if heads == 0:
            return []
        if heads == 1:
            found = self._below_one_leaf(deepest)
        else:
            guesses = [child for node in self.sent for child in self.children[node] if child not in self.sent]
            found = [node for node in self.sent if self._waits(node, deepest)]
            for head in nlargest(heads, guesses, key=self.scores.__getitem__):
                found += self._waiting_below(head, deepest)
        found = [node for node in found if self.scores[node] > LEAST]
        return nlargest(min(beams, self.room_left), found, key=self.scores.__getitem__)

    def _below_one_leaf(self, deepest: int) -> list[int]:
        """SpecEdge: leaves are run once, and the best guess below them is the only one."""
        assert self.sent is not None
        if self._head is None:
            leaves = [n for n in self.sent if not any(child in self.sent for child in self.children[n])]
            unrun = [n for n in leaves if self._waits(n, deepest) and self.scores[n] > LEAST]
            if unrun and not any(self.places[n] >= self.ran for n in leaves):
                return unrun
            guesses = [
                child for n in leaves for child in self.children[n] if self.tokens[child] not in self.ends
            ]
            if not guesses:
                return []
            self._head = max(guesses, key=self.scores.__getitem__)
        return self._waiting_below(self._head, deepest)

    def _waits(self, node: int, deepest: int) -> bool:
        return self.places[node] < 0 and self.depths[node] < deepest and self.tokens[node] not in self.ends

    def _waiting_below(self, head: int, deepest: int) -> list[int]:
        """Of `head` and what may be sent below it."""
        found, below = [], [head]
        for node in below:
            if self.places[node] >= 0:
                below += [child for child in self.children[node] if self.offered[child]]
            elif self._waits(node, deepest):
                found.append(node)
        return found

    def _best(self, count: int, deepest: int) -> list[int]:
        """Of equal scores the first comes first, so that no node comes before its parent."""
        nodes = [node for node in range(1, len(self)) if self.depths[node] <= deepest]
        return nlargest(count, nodes, key=self.scores.__getitem__)

    # --- sending ------------------------------------------------------------------------------

    def propose(self, nodes: int, deepest: int, *, sampled: bool) -> Proposal:
        """The tree as it is sent: from now on it is away."""
        self.order = self._whole(nodes) if sampled else sorted(self._best(nodes, deepest))
        self.sent = {0: 0, **{node: number for number, node in enumerate(self.order, start=1)}}
        self._head, self.ran = None, len(self.run)
        self.promised = sum(math.exp(self.scores[node]) for node in self.sent if self.places[node] >= 0)
        tokens = tuple(self.tokens[node] for node in self.order)
        parents = tuple(self.sent[self.parents[node]] for node in self.order)
        if not sampled:
            return Proposal(tokens, parents)
        inner = {self.parents[node]: None for node in self.order}
        drawn = tuple(self.drawn[node].of(self.sent[node]) for node in inner)
        return Proposal(tokens, parents, Draw.WITHOUT_REPLACEMENT, drawn)

    def _whole(self, nodes: int) -> list[int]:
        """All that was drawn at a node or nothing, node after node as they were run, as far as it fits."""
        order: list[int] = []
        taken = {0}
        for node in self.run:
            if node not in taken or node not in self.drawn:
                continue
            drawn = [child for child in self.children[node] if self.offered[child]]
            if len(order) + len(drawn) > nodes:
                break
            order += drawn
            taken.update(drawn)
        return order

    def send_bare(self) -> None:
        """The root alone is away: all that is below it are guesses."""
        self.order, self.sent = [], {0: 0}
        self._head, self.ran = None, len(self.run)

    # --- what became of it --------------------------------------------------------------------

    def follow(self, path: list[int], bonus: int) -> Kept:
        """The verdict on what was sent: `path`, numbers of the proposal, and the token after it.

        After a hit the tree is what is below the bonus; otherwise it is of no more use.
        """
        nodes = [self.order[number - 1] for number in path]
        guess = self._guess(nodes[-1] if nodes else 0, bonus)
        if guess is None:
            return Kept([self.places[node] for node in nodes if self.places[node] > 0], [], hit=False)
        return self._rooted_at(guess)

    def walk(self, tokens: list[int]) -> Kept:
        """`tokens` followed the root, verified in a way that is not known here: as far as that goes.

        Below a node that was sent, what was drawn may have been rejected; so the tree goes on only where the
        way ends at a guess.
        """
        node = 0
        nodes: list[int] = []
        for token in tokens:
            node = next((child for child in self.children[node] if self.tokens[child] == token), 0)
            if node == 0 or self.places[node] < 0:
                break
            nodes.append(node)
        whole = len(nodes) == len(tokens)
        if whole and self.sent is not None and node not in self.sent:
            return self._rooted_at(node)
        # The last token is read again in any case: what follows it is asked of the draft anew.
        return Kept([self.places[node] for node in nodes[: len(tokens) - 1]], [], hit=False)

    def _guess(self, end: int, bonus: int) -> int | None:
        """What was run of it; a guess whose turn had not come is worth nothing."""
        for child in self.children[end]:
            if self.tokens[child] == bonus and self.sent is not None and child not in self.sent:
                return child if self.places[child] >= 0 else None
        return None

    def _rooted_at(self, root: int) -> Kept:
        """Forget all but `root` and what is below it."""
        accepted, above = [], root
        while above > 0:
            accepted.append(self.places[above])
            above = self.parents[above]
        number = {root: 0}  # new numbers of the nodes that stay
        for node in range(root + 1, len(self)):
            if self.parents[node] in number:
                number[node] = len(number)
        run = [node for node in self.run if node in number]
        places = [self.places[node] for node in run]
        place = {node: i for i, node in enumerate(run)}
        kept = list(number)
        score, depth = self.scores[root], self.depths[root]
        sees = torch.eye(self.room + 1, dtype=torch.bool)
        sees[: len(run), : len(run)] = self._sees[places][:, places]
        self.parents = [number.get(self.parents[node], -1) for node in kept]
        self.children = [[number[child] for child in self.children[node]] for node in kept]
        self.tokens = [self.tokens[node] for node in kept]
        self.scores = [self.scores[node] - score for node in kept]
        self.depths = [self.depths[node] - depth for node in kept]
        self.offered = [self.offered[node] for node in kept]
        self.places = [place.get(node, -1) for node in kept]
        self.run = [number[node] for node in run]
        self.drawn = {number[node]: q for node, q in self.drawn.items() if node in number}
        self.sent, self.order, self._head, self._sees = None, [], None, sees
        self.levels = 1 + max(self.depths[node] for node in self.run)
        return Kept(accepted[::-1], places[1:], hit=True)
