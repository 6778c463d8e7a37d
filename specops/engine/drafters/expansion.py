"""Expansion-based trees (SpecInfer, arXiv 2305.09781): <k1..km>, of which a chain is <1,..,1>."""

from __future__ import annotations

from collections.abc import Sequence as Batch
from itertools import pairwise

from torch import Tensor

from specops.engine.chance import distribution
from specops.engine.drafters.grower import Draft, Level
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology


class _Growing:
    """The tree of one sequence on its way: levels are numbered in order, so a node's place is its number."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.tokens = [sequence.tokens[-1]]
        self.parents = [-1]
        self.q: list[Tensor | None] = [None]
        self.level = range(1)  # the deepest nodes
        self.run = 0  # nodes that the draft model has seen

    def branch(self, children: list[list[int]], q: Tensor | None) -> None:
        """children[i], drawn from q[i], follow the i-th node of the level."""
        start = len(self.tokens)
        for index, (node, tokens) in enumerate(zip(self.level, children, strict=True)):
            if q is not None and tokens:
                self.q[node] = q[index]
            self.tokens += tokens
            self.parents += [node] * len(tokens)
        self.level = range(start, len(self.tokens))
        self.q += [None] * len(self.level)

    def next_level(self, depth: int) -> Level:
        start, stop = self.level.start, self.level.stop
        self.run = stop - 1
        mask = Topology.of(tuple(self.parents)).level_mask(start, stop)
        return Level(self.sequence, self.tokens[start:], self.parents[start:], start, depth, mask)

    def tree(self, draw: Draw) -> TokenTree:
        topology = Topology.of(tuple(self.parents))
        if self.sequence.greedy or draw is Draw.DETERMINISTIC:
            return TokenTree(topology, self.tokens, Draw.DETERMINISTIC)
        return TokenTree(topology, self.tokens, draw, tuple(self.q))


class Expansion:
    def __init__(self, widths: tuple[int, ...], draw: Draw, draft: Draft, rows: int, length: int) -> None:
        self._widths = widths
        self.draws = draw
        self.depth = len(widths)
        self.nodes = len(Topology.expansion(widths)) - 1
        self._grower = draft(rows, length, self.nodes)
        self.reads_features = self._grower.reads_features
        self._run: dict[int, int] = {}  # by row: nodes of the last tree that the model has seen

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        ready, logits = self._grower.read(sequences)
        trees = [_Growing(sequence) for sequence in sequences]
        growing = [trees[i] for i in ready]
        for depth, width in enumerate(self._widths, start=1):
            if not growing:
                break
            self._branch(growing, logits, width)
            growing = [tree for tree in growing if tree.level and tree.sequence.depth_left > depth]
            if growing and depth < len(self._widths):
                logits = self._grower.grow([tree.next_level(depth) for tree in growing])
        self._run.update((tree.sequence.row, tree.run) for tree in trees)
        return [tree.tree(self.draws) for tree in trees]

    def _branch(self, trees: list[_Growing], logits: Tensor, width: int) -> None:
        """logits: a row for each node of the trees' levels, tree after tree."""
        ends = [0]
        for tree in trees:
            ends.append(ends[-1] + len(tree.level))
        best: list[list[int]] | None = None
        for tree, (start, stop) in zip(trees, pairwise(ends), strict=True):
            sequence = tree.sequence
            if sequence.greedy or self.draws is Draw.DETERMINISTIC:
                best = best or _most_likely(logits, width)
                tree.branch(best[start:stop], None)
                continue
            q = distribution(logits[start:stop], sequence.sampling)
            replace = self.draws is Draw.IID
            tree.branch([sequence.chance.draw(row, width, replace=replace) for row in q], q)

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None:
        run = self._run[sequence.row]
        self._grower.commit(sequence, [node for node in path if node <= run], features)

    def move(self, sequence: Sequence, row: int) -> None:
        self._grower.move(sequence, row)

    def release(self, sequence: Sequence) -> None:
        self._grower.release(sequence)


def _most_likely(logits: Tensor, width: int) -> list[list[int]]:
    width = min(width, logits.shape[-1])
    chosen = logits.argmax(-1, keepdim=True) if width == 1 else logits.topk(width, -1).indices
    tokens: list[list[int]] = chosen.tolist()
    return tokens
