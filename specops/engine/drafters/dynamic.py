"""Dynamic trees: the draft's most likely continuations (EAGLE-2, arXiv 2406.16858; SpecExec, 2406.02532).

Level by level the best few nodes are expanded; at the end the best N of all candidates stay. A node's
score is the probability that the draft gives its path, which falls along a path, so the N best are closed
under ancestors. A level that could not bring enough is not grown (OPT-Tree, arXiv 2406.17276). The choice is
a function of the context: such a tree is deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Batch

from torch import Tensor

from specops.engine.draft import Level, MakeGrower, Recipe, retain_finite
from specops.engine.rng import are_distributions
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology
from specops.trees import TreeSpec

WORTH_A_PASS = 0.1
"""Tokens that another level must be able to bring, by the draft's own probabilities of the nodes that it
would expand. On the shipped pair dynamic:16:6 then takes 3.8 draft passes a step in place of 5.3, for 3.91
tokens a step in place of 3.94; a higher bar loses more tokens than it saves passes where a pass is cheap."""


class _Growing:
    """The candidates of one sequence, by number; the root is the first."""

    finite = True

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.tokens = [sequence.tokens[-1]]
        self.parents = [-1]
        self.scores = [0.0]  # log-probability of the path
        self.places = [0]  # in the draft's cache, behind the root; -1 of what has not been run
        self.run = [0]  # candidates in the order of their places
        self.run_parents = [-1]  # places
        self.frontier = [0]  # what is expanded next

    def branch(self, tokens: list[list[int]], logs: list[list[float]], beams: int) -> None:
        """tokens[i], of the log-probabilities logs[i], may follow the i-th node of the frontier."""
        first = len(self.tokens)
        for node, children, values in zip(self.frontier, tokens, logs, strict=True):
            score = self.scores[node]
            self.tokens += children
            self.parents += [node] * len(children)
            self.scores += [score + value for value in values]
        self.places += [-1] * (len(self.tokens) - first)
        self.frontier = sorted(self._best(range(first, len(self.tokens)))[:beams])

    @property
    def promise(self) -> float:
        """Probability that one of the nodes to be expanded next is accepted, by the draft alone."""
        return sum(math.exp(self.scores[node]) for node in self.frontier)

    def next_level(self, depth: int) -> Level:
        start = len(self.run)
        for node in self.frontier:
            self.places[node] = len(self.run)
            self.run.append(node)
            self.run_parents.append(self.places[self.parents[node]])
        mask = Topology.from_parents(tuple(self.run_parents)).level_mask(start, len(self.run))
        tokens = [self.tokens[node] for node in self.frontier]
        return Level(self.sequence, tokens, self.run_parents[start:], start, depth, mask)

    def tree(self, count: int) -> tuple[TokenTree, list[int]]:
        """The best `count` nodes, and the place of each in the draft's cache, or -1."""
        if not self.finite:
            return TokenTree.not_finite(self.tokens[0]), [0]
        retained = [0, *sorted(self._best(range(1, len(self.tokens)))[:count])]
        number = {node: i for i, node in enumerate(retained)}
        parents = (-1, *(number[self.parents[node]] for node in retained[1:]))
        tokens = [self.tokens[node] for node in retained]
        tree = TokenTree(Topology.from_parents(parents), tokens, Draw.DETERMINISTIC)
        return tree, [self.places[node] for node in retained]

    def _best(self, nodes: range) -> list[int]:
        """The best `nodes` by score, ascending by number. Among equal scores the first wins, so that no
        node precedes its parent."""
        return sorted(nodes, key=self.scores.__getitem__, reverse=True)


class Dynamic:
    draws = Draw.DETERMINISTIC

    def __init__(self, nodes: int, depth: int, draft: MakeGrower, rows: int, length: int) -> None:
        self.nodes = nodes
        self.depth = depth
        self._beams = math.ceil(nodes / depth)
        self._grower = draft(rows, length, self._beams * depth)
        self.reads_features, self.caches = self._grower.reads_features, self._grower.caches
        self._places: dict[int, list[int]] = {}  # by row: of the nodes of the last tree

    @classmethod
    def from_spec(cls, spec: TreeSpec, recipe: Recipe) -> Dynamic:
        nodes, depth = spec.sizes
        return cls(nodes, depth, next(recipe.growers), recipe.rows, recipe.length)

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        ready, logits = self._grower.read(sequences)
        trees = [_Growing(sequence) for sequence in sequences]
        growing = [trees[i] for i in ready]
        for depth in range(1, self.depth + 1):
            if not are_distributions(logits):
                growing, logits = retain_finite(growing, [len(tree.frontier) for tree in growing], logits)
            if not growing:
                break
            self._branch(growing, logits)
            growing = [
                tree for tree in growing if tree.sequence.depth_left > depth and tree.promise >= WORTH_A_PASS
            ]
            if growing and depth < self.depth:
                logits = self._grower.grow([tree.next_level(depth) for tree in growing])
        retained = [tree.tree(self.nodes) for tree in trees]
        self._places.update((t.sequence.row, places) for t, (_, places) in zip(trees, retained, strict=True))
        return [tree for tree, _ in retained]

    def _branch(self, trees: list[_Growing], logits: Tensor) -> None:
        # No node needs more children than there are nodes to keep.
        best = logits.topk(min(self.nodes, logits.shape[-1]), -1)
        logs = (best.values - logits.logsumexp(-1, keepdim=True)).tolist()
        tokens = best.indices.tolist()
        start = 0
        for tree in trees:
            stop = start + len(tree.frontier)
            tree.branch(tokens[start:stop], logs[start:stop], self._beams)
            start = stop

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None:
        places = self._places.get(sequence.row, [])
        self._grower.commit(sequence, [places[node] for node in path if places[node] > 0], features)

    def move(self, sequence: Sequence, row: int) -> None:
        self._grower.move(sequence, row)

    def release(self, sequence: Sequence) -> None:
        self._grower.release(sequence)
