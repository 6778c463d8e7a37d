"""Dynamic trees: the draft's most likely continuations (EAGLE-2, arXiv 2406.16858; SpecExec, 2406.02532).

Level by level the best few nodes are expanded; at the end the best N of all candidates are kept. A node's
score is the probability that the draft gives its path, which falls along a path, so the N best are closed
under ancestors. The choice is a function of the context: such a tree is deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Batch
from dataclasses import dataclass

from torch import Tensor

from specops.engine.drafters.grower import Draft, Level
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology


@dataclass
class _Node:
    token: int
    parent: int  # among the candidates; -1 for the root
    score: float  # log-probability of the path
    place: int = -1  # in the draft's cache, behind the root; -1 while it has not been run


class _Growing:
    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.nodes = [_Node(sequence.tokens[-1], -1, 0.0, place=0)]
        self.run = [0]  # nodes in the order of their places
        self.frontier = [0]

    def branch(self, tokens: list[list[int]], logs: list[list[float]], beams: int) -> None:
        first = len(self.nodes)
        for node, children, values in zip(self.frontier, tokens, logs, strict=True):
            score = self.nodes[node].score
            self.nodes += [_Node(t, node, score + v) for t, v in zip(children, values, strict=True)]
        ranked = sorted(range(first, len(self.nodes)), key=lambda n: -self.nodes[n].score)
        self.frontier = sorted(ranked[:beams])

    def next_level(self, depth: int) -> Level:
        start = len(self.run)
        for node in self.frontier:
            self.nodes[node].place = len(self.run)
            self.run.append(node)
        parents = [-1] + [self.nodes[self.nodes[node].parent].place for node in self.run[1:]]
        mask = Topology.of(tuple(parents)).level_mask(start, len(self.run))
        tokens = [self.nodes[node].token for node in self.frontier]
        return Level(self.sequence, tokens, parents[start:], start, depth, mask)

    def tree(self, count: int) -> tuple[TokenTree, list[int]]:
        """The best `count` nodes, and the place of each in the draft's cache, or -1."""
        ranked = sorted(range(1, len(self.nodes)), key=lambda n: -self.nodes[n].score)
        kept = [0, *sorted(ranked[:count])]
        number = {node: i for i, node in enumerate(kept)}
        parents = [-1] + [number[self.nodes[node].parent] for node in kept[1:]]
        tokens = [self.nodes[node].token for node in kept]
        tree = TokenTree(Topology.of(tuple(parents)), tokens, Draw.DETERMINISTIC)
        return tree, [self.nodes[node].place for node in kept]


class Dynamic:
    draws = Draw.DETERMINISTIC

    def __init__(self, nodes: int, depth: int, draft: Draft, rows: int, length: int) -> None:
        self.nodes = nodes
        self.depth = depth
        self._beams = math.ceil(nodes / depth)
        self._grower = draft(rows, length, self._beams * depth)
        self.reads_features = self._grower.reads_features
        self._places: dict[int, list[int]] = {}  # by row: of the nodes of the last tree

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        ready, logits = self._grower.read(sequences)
        trees = [_Growing(sequence) for sequence in sequences]
        growing = [trees[i] for i in ready]
        for depth in range(1, self.depth + 1):
            if not growing:
                break
            self._branch(growing, logits)
            growing = [tree for tree in growing if tree.sequence.depth_left > depth]
            if growing and depth < self.depth:
                logits = self._grower.grow([tree.next_level(depth) for tree in growing])
        kept = [tree.tree(self.nodes) for tree in trees]
        self._places.update((t.sequence.row, places) for t, (_, places) in zip(trees, kept, strict=True))
        return [tree for tree, _ in kept]

    def _branch(self, trees: list[_Growing], logits: Tensor) -> None:
        # No node needs more children than there are nodes to keep.
        best = logits.log_softmax(-1).topk(min(self.nodes, logits.shape[-1]), -1)
        tokens, logs = best.indices.tolist(), best.values.tolist()
        start = 0
        for tree in trees:
            stop = start + len(tree.frontier)
            tree.branch(tokens[start:stop], logs[start:stop], self._beams)
            start = stop

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None:
        places = self._places[sequence.row]
        self._grower.commit(sequence, [places[node] for node in path if places[node] > 0], features)

    def move(self, sequence: Sequence, row: int) -> None:
        self._grower.move(sequence, row)

    def release(self, sequence: Sequence) -> None:
        self._grower.release(sequence)
