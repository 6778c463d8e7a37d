"""The tree of one sequence at its client: what was sent for verification, and what grows on ahead of it.

A child of a node that was sent, itself not sent, is a guess at how the round ends: the path at its parent,
and its token the bonus. So drafting ahead (SpecEdge's proactive drafting, arXiv 2505.17052) is
growing the same tree on, unsent: where the verdict's path and bonus lead to a node that is there, it is the
next root, and all below it is stored with its KV. SpecEdge grows below one such node; below several they are
an outcome cache (Saguaro, arXiv 2603.03251), and the trees below the likeliest may be sent before it is
known which of them is right.

Greedy, candidates are the draft's likeliest and the best of all are sent (SpecExec, arXiv 2406.02532). At
temperature > 0 the children of a node are drawn, and what was drawn at a node is sent whole or not at all, by
a rule that does not look at it. Beside it stand guesses, the likeliest tokens that were not drawn, which are
never sent as children.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from specops.edge.link import Branch, Proposal
from specops.edge.quantisation import Quantised, joined
from specops.engine.attention import Mask
from specops.engine.draft import Level
from specops.engine.rng import Chance
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

LEAST = math.log(1e-4)
"""Log-probability below which nothing is drafted ahead."""

SPARE = 8
"""Number of guesses beside the drawn children of a node."""

LEVELS = 4
"""Approximate number of levels of drawn trees. Nodes that a pass runs are drawn, and keep their room in
the tree. A pass that ran all it could would leave no room for the levels below."""

TAKEN = 0.7
"""Assumed probability that a drawn child is accepted after its siblings were rejected. A rough value
suffices: it orders the nodes to run, and depth.py corrects the expected tokens by the accepted ones."""


@dataclass(frozen=True)
class Retained:
    """The part of a tree that a verdict leaves: places in the draft's cache, ascending."""

    accepted: list[int]  # of what is committed now, the new root among them after a hit
    ahead: list[int]  # of what lies below the new root
    hit: bool


class Growth:
    """A growing tree. Nodes have numbers, each above its parent's. The root is 0, and so is its place in
    the draft's cache."""

    def __init__(self, root: int, room: int, ends: frozenset[int]) -> None:
        """room: largest number of nodes to run. ends: tokens that end a sequence."""
        self.room = room
        self.tokens: Ints = np.array([root])
        self.parents: Ints = np.array([-1])
        self.depths: Ints = np.array([0])
        self.scores: Floats = np.zeros(1)  # log-probability of the path, as far as known
        self.offered: Flags = np.ones(1, bool)  # whether it may be sent; False of a guess
        self.places: Ints = np.array([0])  # -1 of what has not been run
        self.run: list[int] = [0]  # nodes by place
        self.drawn: dict[int, Quantised] = {}  # what children were drawn from
        self.sent: dict[int, int] | None = None  # their numbers in the proposal; None: nothing is away
        self.order: list[int] = []  # nodes 1, 2, … of the proposal
        self.branched: list[dict[int, list[int]]] = []
        """The trees sent ahead, one dictionary for each version: by guess, the nodes of the tree below it."""

        self.levels = 0  # of what was stored at the last verdict
        self.promised = 0.0  # tokens that the proposal may bring, by the scores of its nodes that were run
        self.ran = 1  # places in use when it was sent: those from here on are of what was run ahead
        self._ends = np.array(sorted(ends), np.int64)
        self._head: int | None = None  # the one guess of SpecEdge's, once it is chosen
        self._guesses: Ints = np.array([-1])  # while it is away: the guess that a node is, or is below of
        self._sees: Flags = np.eye(room + 1, dtype=bool)  # [places, places]

    def __len__(self) -> int:
        return len(self.tokens)

    # --- growth -------------------------------------------------------------------------------

    def branch(self, nodes: list[int], tokens: ArrayLike, logs: ArrayLike) -> None:
        """Add the likeliest tokens after each of `nodes`. tokens, logs (their log-probabilities): [nodes,
        children]."""
        tokens, logs = np.asarray(tokens), np.asarray(logs)
        parents = np.repeat(nodes, tokens.shape[1])
        offered = np.ones(len(parents), bool)
        self._add(parents, tokens.ravel(), self.scores[parents] + logs.ravel(), offered)

    def branch_drawn(self, node: int, q: Quantised, width: int, chance: Chance) -> None:
        """Draw `width` children of `node` from q; if they could no longer be sent, add guesses instead."""
        tokens: list[int] = []
        logs: list[float] = []
        rejected = 0.0  # log of how likely all that was drawn is
        if self.sent is None or node not in self.sent:
            tokens = q.draw(chance, width)
            self.drawn[node] = q
            for _ in tokens:
                logs.append(rejected + math.log(TAKEN))
                rejected += math.log(1 - TAKEN)
        drawn = len(tokens)
        left = [(w, t) for w, t in zip(q.weights, q.tokens, strict=True) if t not in tokens]
        mass = sum(weight for weight, _ in left)
        for weight, token in sorted(left, reverse=True)[:SPARE]:
            tokens.append(token)
            logs.append(rejected + math.log(weight / mass))
        parents = np.full(len(tokens), node)
        offered = np.arange(len(tokens)) < drawn
        self._add(parents, np.array(tokens, np.int64), self.scores[node] + np.array(logs), offered)

    def _add(self, parents: Ints, tokens: Ints, scores: Floats, offered: Flags) -> None:
        if self.sent is not None:
            above, numbers = self._guesses[parents], np.arange(len(self), len(self) + len(parents))
            self._guesses = np.concatenate([self._guesses, np.where(above < 0, numbers, above)])
        self.tokens = np.concatenate([self.tokens, tokens])
        self.parents = np.concatenate([self.parents, parents])
        self.depths = np.concatenate([self.depths, self.depths[parents] + 1])
        self.scores = np.concatenate([self.scores, scores])
        self.offered = np.concatenate([self.offered, offered])
        self.places = np.concatenate([self.places, np.full(len(parents), -1)])

    def levels_of(self, sequence: Sequence, nodes: list[int]) -> list[Level]:
        """Give `nodes` their places, to be run in one pass; those of one depth are a level."""
        levels = []
        chosen = np.array(nodes)
        for depth in np.unique(self.depths[chosen]).tolist():
            level = chosen[self.depths[chosen] == depth]
            start, stop = len(self.run), len(self.run) + len(level)
            parents: list[int] = self.places[self.parents[level]].tolist()
            self._sees[start:stop] |= self._sees[parents]
            self.places[level] = np.arange(start, stop)
            self.run += level.tolist()
            mask = Mask(torch.from_numpy(self._sees[start:stop, 1:stop]))
            levels.append(Level(sequence, self.tokens[level].tolist(), parents, start, depth, mask))
        return levels

    @property
    def room_left(self) -> int:
        return self.room + 1 - len(self.run)

    def children(self, node: int) -> list[int]:
        children: list[int] = np.flatnonzero(self.parents == node).tolist()
        return children

    # --- choice of the next nodes -------------------------------------------------------------

    def next_here(
        self, beams: int, nodes: int, deepest: int, *, width: int | None
    ) -> tuple[list[int], float]:
        """The nodes that a pass would run before the tree is sent, the best first, and the expected accepted
        tokens: the sum of the probabilities of their paths, less those of the nodes that their children would
        displace.

        nodes: number of nodes that may be sent. width: number of children drawn at each node; None for the
        likeliest ones.
        """
        if width is None:
            whole = self._best(nodes, deepest)
            worst = float(self.scores[whole].min()) if len(whole) == nodes else -math.inf
        else:
            whole, worst = np.array(self._whole(nodes), np.int64), -math.inf
            beams = min(beams, math.ceil(nodes / width / LEVELS), (nodes - len(whole)) // width)
        waiting = whole[self._waits(deepest)[whole] & (self.scores[whole] > worst)]
        run = ranked(self.scores, waiting)[: max(min(beams, self.room_left), 0)]
        return run, float((np.exp(self.scores[run]) - math.exp(worst)).sum())

    def next_ahead(self, beams: int, heads: int, deepest: int) -> list[int]:
        """The nodes that a pass would run while the tree is away, the best first.

        First come the ends of the tree that was sent, whose children are guesses, then the nodes below the
        best guesses.
        """
        assert self.sent is not None
        waits = self._waits(deepest) & (self.scores > LEAST)
        if heads == 0:
            return []
        if heads == 1:
            eligible = self._below_one_leaf(waits)
        else:
            drafted_for = np.zeros(len(self) + 1, bool)
            drafted_for[best(self.scores, self._all_guesses(), heads)] = True
            drafted_for[-1] = True  # _guesses of what was sent
            is_guess = self._guesses == np.arange(len(self))
            eligible = np.flatnonzero(waits & drafted_for[self._guesses] & (self.offered | is_guess))
        count = max(min(beams, self.room_left), 0)
        return ranked(self.scores, best(self.scores, eligible, count))

    def _below_one_leaf(self, waits: Flags) -> Ints:
        """The nodes to run by SpecEdge's rule: leaves are run once, and the best guess below them is the
        only one."""
        assert self.sent is not None
        if self._head is None:
            inner = {int(self.parents[node]) for node in self.order}
            leaves: Ints = np.array([node for node in self.sent if node not in inner])
            unrun: Ints = leaves[waits[leaves]]
            if len(unrun) and not (self.places[leaves] >= self.ran).any():
                return unrun
            below = np.isin(self.parents, leaves) & ~self._ending()
            if not below.any():
                return NONE
            self._head = ranked(self.scores, np.flatnonzero(below))[0]
        under = self._guesses == self._head
        under[under] = self.offered[under] | (np.flatnonzero(under) == self._head)
        return np.flatnonzero(under & waits)

    def _all_guesses(self) -> Ints:
        return np.flatnonzero(self._guesses == np.arange(len(self)))

    def _ending(self) -> Flags:
        ending: Flags = np.isin(self.tokens, self._ends)
        return ending

    def _waits(self, deepest: int) -> Flags:
        """Return which nodes may be run, [nodes] bool."""
        return (self.places < 0) & (self.depths < deepest) & ~self._ending()

    def _best(self, count: int, deepest: int) -> Ints:
        nodes = np.flatnonzero(self.depths <= deepest)
        return best(self.scores, nodes[nodes > 0], count)

    # --- sending ------------------------------------------------------------------------------

    def propose(self, nodes: int, deepest: int, *, sampled: bool) -> Proposal:
        """The tree as it is sent. It counts as away from now on."""
        self._send(self._whole(nodes) if sampled else self._best(nodes, deepest).tolist())
        return self._proposal(0, self.order, sampled=sampled)

    def branch_off(
        self, count: int, nodes: int, deepest: int, worth: Callable[[int, float], bool], *, sampled: bool
    ) -> list[tuple[Branch, float]]:
        """The trees below the likeliest guesses that were run, at most `count`, each as it would be sent if
        its guess were right, with its expected accepted tokens.

        worth: whether to send a tree, by its levels and its expected tokens.
        """
        assert self.sent is not None
        branches, orders = [], {}
        guesses = self._all_guesses()
        for guess in ranked(self.scores, guesses[self.places[guesses] > 0])[:count]:
            under = np.flatnonzero(self._guesses == guess)
            deep = int(self.depths[under[self.places[under] > 0]].max())
            if sampled:
                order = self._whole(nodes, guess)
            else:
                may = (under != guess) & (self.depths[under] <= deepest)
                order = best(self.scores, under[may], nodes).tolist()
            promise = self._promise(guess, order)
            if order and worth(1 + deep - int(self.depths[guess]), promise):
                orders[guess] = order
                proposal = self._proposal(guess, order, sampled=sampled)
                end = self.sent[int(self.parents[guess])]
                branches.append((Branch(end, int(self.tokens[guess]), proposal), promise))
        self.branched.append(orders)
        return branches

    def send_bare(self) -> None:
        """Treat the root alone as sent, so that all nodes below it are guesses."""
        self._send([])

    def _send(self, order: list[int]) -> None:
        self.order = order
        self.sent = {0: 0, **{node: number for number, node in enumerate(order, start=1)}}
        self._head, self.ran, self.branched = None, len(self.run), []
        self.promised = self._promise(0, order)
        away = np.zeros(len(self), bool)
        away[[0, *order]] = True
        self._guesses = self._topmost(~away & away[self.parents])

    def _topmost(self, tops: Flags) -> Ints:
        """Return for every node its ancestor in `tops`, or itself if it is one of them; -1 without one. No
        node of `tops` is below another."""
        topmost = np.where(tops, np.arange(len(self)), -1)
        for depth in range(1, int(self.depths.max()) + 1):
            level = np.flatnonzero((self.depths == depth) & ~tops)
            topmost[level] = topmost[self.parents[level]]
        return topmost

    def _promise(self, root: int, order: list[int]) -> float:
        """Expected accepted tokens of a tree, by the scores of its nodes that were run."""
        nodes = np.array([root, *order])
        return float(np.exp(self.scores[nodes[self.places[nodes] >= 0]] - self.scores[root]).sum())

    def _proposal(self, root: int, order: list[int], *, sampled: bool) -> Proposal:
        number = {root: 0, **{node: number for number, node in enumerate(order, start=1)}}
        above: list[int] = self.parents[order].tolist() if order else []
        tokens = tuple(self.tokens[order].tolist()) if order else ()
        parents = tuple(number[node] for node in above)
        if not sampled:
            return Proposal(tokens, parents)
        drawn = joined({number[node]: self.drawn[node] for node in dict.fromkeys(above)})
        return Proposal(tokens, parents, Draw.WITHOUT_REPLACEMENT, drawn)

    def _whole(self, nodes: int, root: int = 0) -> list[int]:
        """Nodes below `root`, at most `nodes`: for each node in the order of its run, all of its drawn
        children or none."""
        order: list[int] = []
        selected = {root}
        for node in self.run:
            if node not in selected or node not in self.drawn:
                continue
            drawn = [child for child in self.children(node) if self.offered[child]]
            if len(order) + len(drawn) > nodes:
                break
            order += drawn
            selected.update(drawn)
        return order

    # --- outcomes -----------------------------------------------------------------------------

    def follow(self, path: list[int], bonus: int, version: int = 0) -> Retained:
        """Process the verdict on the tree that was sent: `path`, numbers of the proposal, and the bonus
        token.

        After a hit the tree is what is below the bonus; otherwise it can no longer be used. version: that of
        the tree sent ahead that is now being verified; 0 if none is.
        """
        nodes = [self.order[number - 1] for number in path]
        guess = self._guess_of(nodes[-1] if nodes else 0, bonus)
        if guess is None or self.places[guess] < 0:  # one whose turn had not come is worth nothing
            return Retained(
                [place for place in self.places[nodes].tolist() if place > 0] if nodes else [], [], hit=False
            )
        order = self.branched[version - 1][guess] if version else []
        retained, number = self._rooted_at(guess)
        if version:
            self._send([number[node] for node in order])
        return retained

    def walk(self, tokens: list[int]) -> Retained:
        """Process `tokens` that follow the root and were verified in an unknown way.

        Below a node that was sent, drawn children may have been rejected. So the tree continues only if the
        tokens end at a guess: below a node that was sent, or in a tree sent ahead that the server continued
        with.
        """
        node = 0
        places: list[int] = []
        for token in tokens:
            below = self.child(node, token)
            if below is None or self.places[below] < 0:
                break
            node = below
            places.append(int(self.places[node]))
        whole = len(places) == len(tokens)
        ends_at_guess = self.sent is not None and node not in self.sent
        if (
            whole
            and ends_at_guess
            and not any(node in order for sent in self.branched for order in sent.values())
        ):
            return self._rooted_at(node)[0]
        # The last token is read again in any case: what follows it is requested of the draft anew.
        return Retained(places[: len(tokens) - 1], [], hit=False)

    def child(self, node: int, token: int) -> int | None:
        matches = np.flatnonzero((self.parents == node) & (self.tokens == token))
        return int(matches[0]) if len(matches) else None

    def _guess_of(self, end: int, bonus: int) -> int | None:
        """Number of the guess `bonus` after node `end`; None without such a guess."""
        child = self.child(end, bonus)
        return child if self.sent is not None and child not in self.sent else None

    def _rooted_at(self, root: int) -> tuple[Retained, dict[int, int]]:
        """Drop all nodes except `root` and those below it. Returns what is left, and the new numbers of
        nodes by the old ones."""
        accepted, above = [], root
        while above > 0:
            accepted.append(int(self.places[above]))
            above = int(self.parents[above])
        retained = np.flatnonzero(self._topmost(np.arange(len(self)) == root) == root)
        number = dict(zip(retained.tolist(), range(len(retained)), strict=True))
        run = [node for node in self.run if node in number]
        places = self.places[run].tolist()
        sees = np.eye(self.room + 1, dtype=bool)
        sees[: len(run), : len(run)] = self._sees[np.ix_(places, places)]
        self.parents = np.searchsorted(retained, self.parents[retained])
        self.parents[0] = -1
        self.tokens, self.offered = self.tokens[retained], self.offered[retained]
        self.scores = self.scores[retained] - self.scores[root]
        self.depths = self.depths[retained] - self.depths[root]
        self.run = [number[node] for node in run]
        self.places = np.full(len(retained), -1)
        self.places[self.run] = np.arange(len(run))
        self.drawn = {number[node]: q for node, q in self.drawn.items() if node in number}
        self.sent, self.order, self.branched, self._head, self._sees = None, [], [], None, sees
        self.levels = 1 + int(self.depths[self.run].max())
        return Retained(accepted[::-1], places[1:], hit=True), number


NONE: Ints = np.zeros(0, np.int64)


def best(scores: Floats, among: Ints, count: int) -> Ints:
    """The `count` nodes of `among` with the highest scores, in their order there. Among equal scores the
    first wins, so that with ascending nodes none precedes its parent."""
    if count <= 0 or len(among) <= count:
        return among[: max(count, 0)]
    candidates = scores[among]
    least = np.partition(candidates, -count)[-count]
    selected = candidates > least
    selected[np.flatnonzero(candidates == least)[: count - selected.sum()]] = True
    nodes: Ints = among[selected]
    return nodes


def ranked(scores: Floats, among: Ints) -> list[int]:
    """The nodes of `among`, the highest score first; among equal scores the first."""
    order: list[int] = among[np.argsort(-scores[among], kind="stable")].tolist()
    return order
