"""Trees of a shape that is fixed before anything is drafted, grown level by level.

SpecInfer's expansions <k1..km> (arXiv 2305.09781), of which a chain is <1,..,1>; and uneven ones, where each
node has its own number of children (Sequoia, arXiv 2402.12374: the better a node's chance, the more). The
shape does not depend on what is drawn, so the draws at each node are those that the verifiers know.
"""

from __future__ import annotations

from collections.abc import Sequence as Batch
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

from torch import Tensor

from specops.engine.attention import Mask
from specops.engine.draft import ChainGrower, Level, MakeGrower, Recipe, retain_finite
from specops.engine.rng import are_distributions, distribution
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology
from specops.errors import NotFinite
from specops.trees import TreeSpec


@dataclass(frozen=True)
class _Round:
    """The nodes of one depth that have children: what is run together, the root in the first round."""

    nodes: tuple[int, ...]
    counts: tuple[int, ...]  # of the children of each
    stop: int  # the tree's nodes down to these children
    parents: list[int]  # the place of each one's parent in the draft's cache
    place: int  # of the first of them there
    mask: Mask | None  # what they see there; None of the root, which is read and not grown


@dataclass(frozen=True)
class _Plan:
    """A shape, numbered level by level, and how it is grown."""

    topology: Topology
    rounds: tuple[_Round, ...]
    places: tuple[int, ...]  # by node, in the draft's cache behind the root; -1 of a leaf, which is never run

    @staticmethod
    @lru_cache(maxsize=256)
    def for_topology(topology: Topology) -> _Plan:
        children, depth = topology.children, topology.depth
        run = [node for node in range(len(topology)) if children[node]]
        places = [-1] * len(topology)
        for place, node in enumerate(run):
            places[node] = place
        cached = Topology.from_parents((-1, *(places[topology.parents[node]] for node in run[1:])))
        rounds = []
        for level in range(max(depth)):
            nodes = tuple(node for node in run if depth[node] == level)
            start = places[nodes[0]]
            stop = start + len(nodes)
            rounds.append(
                _Round(
                    nodes,
                    tuple(len(children[node]) for node in nodes),
                    children[nodes[-1]][-1] + 1,
                    list(cached.parents[start:stop]),
                    start,
                    cached.level_mask(start, stop) if level else None,
                )
            )
        return _Plan(topology, tuple(rounds), tuple(places))

    def to_depth(self, depth: int) -> _Plan:
        """The plan without what lies deeper."""
        if depth >= len(self.rounds):
            return self
        retained = sum(d <= max(depth, 0) for d in self.topology.depth)
        return _Plan.for_topology(Topology.from_parents(self.topology.parents[:retained]))


class PartialTree:
    """The tree of one sequence on its way: nodes are grown in the order of their numbers."""

    odds = 1.0
    """Estimated probability that all its nodes are accepted; maintained only where it is needed."""

    finite = True

    def __init__(self, sequence: Sequence, plan: _Plan) -> None:
        self.sequence = sequence
        self.plan = plan
        self.tokens = [sequence.tokens[-1]]
        self.q: dict[int, tuple[Tensor, ...]] = {}

    def branch(self, depth: int, drawn: list[list[int]], q: Batch[Tensor] | None) -> None:
        """drawn[i], from q[i], follow the i-th node that has children at this depth."""
        level_round = self.plan.rounds[depth]
        for tokens in drawn:
            self.tokens += tokens
        if q is not None:
            self.q.update((node, (row,)) for node, row in zip(level_round.nodes, q, strict=True))
        if len(self.tokens) < level_round.stop:  # q had fewer tokens than were planned for
            self._cut(level_round, drawn)

    def _cut(self, level_round: _Round, drawn: list[list[int]]) -> None:
        """Remove the planned nodes below children that were not drawn."""
        shape = self.plan.topology
        lacking = [
            child
            for node, tokens in zip(level_round.nodes, drawn, strict=True)
            for child in shape.children[node][len(tokens) :]
        ]
        self.plan = _Plan.for_topology(shape.without(lacking))

    def level(self, depth: int) -> Level:
        level_round = self.plan.rounds[depth]
        assert level_round.mask is not None
        tokens = [self.tokens[node] for node in level_round.nodes]
        return Level(self.sequence, tokens, level_round.parents, level_round.place, depth, level_round.mask)

    def tree(self, draw: Draw) -> TokenTree:
        if not self.finite:
            return TokenTree.not_finite(self.tokens[0])
        topology = self.plan.topology
        if self.sequence.greedy or draw is Draw.DETERMINISTIC:
            return TokenTree(topology, self.tokens, Draw.DETERMINISTIC)
        q = tuple(self.q.get(node, ()) for node in range(len(self.tokens)))
        return TokenTree(topology, self.tokens, draw, q)


class Expansion:
    worth_a_pass = 0.0
    """Probability that all of a chain is accepted, below which no further pass is run; 0 runs all passes."""

    def __init__(self, shape: Topology, draw: Draw, draft: MakeGrower, rows: int, length: int) -> None:
        self._plan = _Plan.for_topology(shape.level_order)
        self.draws = draw
        self.depth = len(self._plan.rounds)
        self.nodes = len(shape) - 1
        self._grower = draft(rows, length, self.nodes)
        self.reads_features, self.caches = self._grower.reads_features, self._grower.caches
        is_chain = self.nodes == self.depth
        self._chains = self._grower if is_chain and isinstance(self._grower, ChainGrower) else None
        self._places: dict[int, tuple[int, ...]] = {}  # by row: of the nodes of its last tree

    @classmethod
    def from_spec(cls, spec: TreeSpec, recipe: Recipe) -> Expansion:
        shape = (
            Topology.from_parents(spec.parents) if spec.kind == "shape" else Topology.expansion(spec.widths)
        )
        return cls(shape, recipe.draw, next(recipe.growers), recipe.rows, recipe.length)

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        if self._chains is None:
            return self._by_levels(sequences)
        chains = [self._in_one_go(sequence) for sequence in sequences]
        unchained = [s for s, chain in zip(sequences, chains, strict=True) if chain is None]
        grown = iter(self._by_levels(unchained) if unchained else ())
        return [next(grown) if chain is None else chain for chain in chains]

    def _by_levels(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        ready, logits = self._grower.read(sequences)
        nothing = self._plan.to_depth(0)
        trees = [PartialTree(sequence, nothing) for sequence in sequences]
        growing = [trees[index] for index in ready]
        for tree in growing:
            tree.plan = self._plan.to_depth(tree.sequence.depth_left)
        for depth in range(self.depth):
            if depth > 0:
                logits = self._grower.grow([tree.level(depth) for tree in growing])
            if not are_distributions(logits):
                nodes = [len(tree.plan.rounds[depth].nodes) for tree in growing]
                growing, logits = retain_finite(growing, nodes, logits)
            self.branch(growing, depth, logits)
            growing = [tree for tree in growing if len(tree.plan.rounds) > depth + 1]
            if not growing:
                break
        self._places.update((tree.sequence.row, tree.plan.places) for tree in trees)
        return [tree.tree(self.draws) for tree in trees]

    def _in_one_go(self, sequence: Sequence) -> TokenTree | None:
        """The tree, drafted in one call of the grower. None if it needs a pass for each level.

        Whether it does depends on the sequence alone, so that its draft does not depend on the batch.
        """
        sampled = not sequence.greedy
        if self._chains is None or (sampled and self.draws is Draw.DETERMINISTIC):
            return None
        root = sequence.tokens[-1]
        try:
            drawn = self._chains.chain(sequence, self.depth, self.worth_a_pass)
        except NotFinite:
            return TokenTree.not_finite(root)
        if drawn is None:
            return None
        tokens, q = drawn
        plan = self._plan.to_depth(len(tokens))
        self._places[sequence.row] = plan.places
        sources = (*((row,) for row in q.unbind()), ()) if sampled else None
        draw = self.draws if sampled else Draw.DETERMINISTIC
        return TokenTree(plan.topology, [root, *tokens], draw, sources)

    def branch(self, trees: list[PartialTree], depth: int, logits: Tensor) -> None:
        """logits: a row for each node of the trees that has children at this depth, tree after tree."""
        rounds = [tree.plan.rounds[depth] for tree in trees]
        best: list[list[int]] | None = None
        stop = 0
        for tree, level_round in zip(trees, rounds, strict=True):
            start, stop = stop, stop + len(level_round.nodes)
            sequence = tree.sequence
            if sequence.greedy or self.draws is Draw.DETERMINISTIC:
                best = best or _most_likely(logits, max(max(level_round.counts) for level_round in rounds))
                drawn = [row[:n] for row, n in zip(best[start:stop], level_round.counts, strict=True)]
                tree.branch(depth, drawn, None)
                continue
            own = logits if len(logits) == stop - start else logits[start:stop]
            q = distribution(own, sequence.sampling).unbind()
            chance, replace = sequence.chance, self.draws is Draw.IID
            drawn = [
                chance.draw(row, n, replace=replace) for row, n in zip(q, level_round.counts, strict=True)
            ]
            tree.branch(depth, drawn, q)

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None:
        places = self._places.get(sequence.row, ())
        self._grower.commit(sequence, [places[node] for node in path if places[node] > 0], features)

    def move(self, sequence: Sequence, row: int) -> None:
        self._grower.move(sequence, row)

    def release(self, sequence: Sequence) -> None:
        self._grower.release(sequence)


def _most_likely(logits: Tensor, width: int) -> list[list[int]]:
    width = min(width, logits.shape[-1])
    chosen = logits.argmax(-1, keepdim=True) if width == 1 else logits.topk(width, -1).indices
    tokens: list[list[int]] = chosen.tolist()
    return tokens


class Adaptive(Expansion):
    worth_a_pass = 0.3
    """Measured on the shipped pair, where a chain of the EAGLE head is one call: 0.2 and 0.3 are within 1% of
    each other, greedily and not, and 0.4 is 2% slower greedily."""

    def __init__(self, most: int, draw: Draw, draft: MakeGrower, rows: int, length: int) -> None:
        super().__init__(Topology.expansion((1,) * most), draw, draft, rows, length)

    @classmethod
    def from_spec(cls, spec: TreeSpec, recipe: Recipe) -> Adaptive:
        return cls(spec.nodes, recipe.draw, next(recipe.growers), recipe.rows, recipe.length)

    def branch(self, trees: list[PartialTree], depth: int, logits: Tensor) -> None:
        super().branch(trees, depth, logits)
        if depth + 1 == self.depth:
            return
        for tree, row in zip(trees, logits, strict=True):  # a chain's levels have one node each
            tree.odds *= self._acceptance(tree, depth, row)
            if tree.odds < self.worth_a_pass:
                tree.plan = tree.plan.to_depth(depth + 1)

    def _acceptance(self, tree: PartialTree, depth: int, logits: Tensor) -> float:
        """Estimated probability that the token after node `depth` is accepted if the node is, from the
        draft's logits alone.

        For drawn tokens it is the probability that both distributions share. On the shipped pair that is
        halfway between 1 and the probability that two draws from the draft agree, since flat distributions
        still share half. Greedily, the target agrees with a top token more often than its probability says.
        """
        if not tree.sequence.greedy and self.draws is not Draw.DETERMINISTIC:
            (q,) = tree.q[depth]
            return (1 + float(q.dot(q))) / 2
        top = float(logits.softmax(-1).amax())
        return sqrt(top) if tree.sequence.greedy else top
