"""Merge-based trees (SpecInfer, arXiv 2305.09781): the union of what several drafters propose.

A prefix that several propose is one node, so that the target reads it once. What each of them drew, and from
what, stays known: the verifier tries one drafter's children of a node after the other's.
"""

from __future__ import annotations

from collections.abc import Sequence as Batch
from dataclasses import dataclass

from torch import Tensor

from specops.engine.draft import Drafter, Recipe
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology
from specops.trees import TreeSpec

Numbers = list[int]
"""Numbers of one drafter's nodes in the merged tree, by node."""


class Union:
    def __init__(self, drafters: Batch[Drafter]) -> None:
        """drafters: in order of precedence. At a node, the children of the first are tried first."""
        self._drafters = tuple(drafters)
        self.draws = _common({drafter.draws for drafter in drafters})
        self.reads_features = any(drafter.reads_features for drafter in drafters)
        self.caches = [cache for drafter in drafters for cache in drafter.caches]
        self.nodes = sum(drafter.nodes for drafter in drafters)
        self.depth = max(drafter.depth for drafter in drafters)
        self._numbers: dict[int, list[Numbers]] = {}  # by row: of each drafter's last tree

    @classmethod
    def from_spec(cls, spec: TreeSpec, recipe: Recipe) -> Union:
        return cls([recipe.make(part, recipe) for part in spec.parts])

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        trees = zip(*(drafter.draft(sequences) for drafter in self._drafters), strict=True)
        merged = [merge(alternatives) for alternatives in trees]
        self._numbers.update((s.row, numbers) for s, (_, numbers) in zip(sequences, merged, strict=True))
        return [tree for tree, _ in merged]

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None:
        # It has no state before its first tree, which comes late where copies take its place (auto.py).
        numbers_of = self._numbers.get(sequence.row) or [[] for _ in self._drafters]
        for drafter, numbers in zip(self._drafters, numbers_of, strict=True):
            own = {number: node for node, number in reversed(list(enumerate(numbers)))}
            read = features if drafter.reads_features else None
            drafter.commit(sequence, [own[node] for node in path if node in own], read)

    def move(self, sequence: Sequence, row: int) -> None:
        for drafter in self._drafters:
            drafter.move(sequence, row)
        self._numbers[row] = self._numbers.pop(sequence.row, [])

    def release(self, sequence: Sequence) -> None:
        for drafter in self._drafters:
            drafter.release(sequence)
        self._numbers.pop(sequence.row, None)


def merge(trees: Batch[TokenTree]) -> tuple[TokenTree, list[Numbers]]:
    """The union of trees with one root, and for each tree the numbers of its nodes in the union."""
    tokens, parents = [trees[0].tokens[0]], [-1]
    below: dict[tuple[int, int], int] = {}  # (parent, token) -> node
    q: list[tuple[Tensor, ...]] = [()]
    turns: list[list[tuple[int, int | None]]] = [[]]
    numbers: list[Numbers] = []
    for tree in trees:
        number = [0]
        for node in range(1, len(tree)):
            parent, token = number[tree.topology.parents[node]], tree.tokens[node]
            if (parent, token) not in below:
                below[parent, token] = len(tokens)
                tokens.append(token)
                parents.append(parent)
                q.append(())
                turns.append([])
            number.append(below[parent, token])
        numbers.append(number)
        for node, union_node in enumerate(number):
            drawn_before = len(q[union_node])
            if tree.q is not None:
                q[union_node] += tree.q[node]
            for child, source in tree.turns(node):
                turn = number[child], None if source is None else drawn_before + source
                # A copy of a tried token has no probability left to accept, but it counts as drawn.
                if source is not None or all(earlier != turn[0] for earlier, _ in turns[union_node]):
                    turns[union_node].append(turn)
    draw = _common({tree.draw for tree in trees})
    finite = all(tree.finite for tree in trees)
    turns_of = tuple(map(tuple, turns))
    whole = TokenTree(Topology.from_parents(tuple(parents)), tokens, draw, tuple(q), turns_of, finite=finite)
    return whole, numbers


def _common(draws: set[Draw]) -> Draw:
    """The common draw of all drawn trees; deterministic if no tree is drawn. Raises ValueError for several
    draws."""
    drawn = draws - {Draw.DETERMINISTIC}
    if len(drawn) > 1:
        raise ValueError(f"trees drawn {' and '.join(sorted(draw.value for draw in drawn))} cannot be merged")
    return drawn.pop() if drawn else Draw.DETERMINISTIC


ENOUGH = 0.6
"""Ratio of the expected tokens of a copy to those of the model's trees from which the copy is drafted.
Replayed on the shipped pair, ratios from 0.4 to 0.75 are within 1% of each other, for draft passes of 0.08
and of 0.25 target passes: where one of them gains little, the other loses little."""

MEMORY = 0.95
"""Factor by which each of the model's trees reduces the weight of earlier ones."""


@dataclass
class _Record:
    """Results of one sequence's trees."""

    accepted: float  # nodes of the model's trees, weighted
    trees: float
    copied: bool = False  # the last tree
    drafted: bool = False


class CopyFirst:
    def __init__(self, copying: Drafter, grown: Drafter) -> None:
        self._copying, self._grown = copying, grown
        self.draws = grown.draws
        self.reads_features, self.caches = grown.reads_features, grown.caches
        self.nodes = max(copying.nodes, grown.nodes)
        self.depth = max(copying.depth, grown.depth)
        self._records: dict[int, _Record] = {}  # by sequence

    @classmethod
    def from_spec(cls, spec: TreeSpec, recipe: Recipe) -> CopyFirst:
        return cls(*(recipe.make(part, recipe) for part in spec.parts))

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        trees = self._copying.draft(sequences)
        left = []
        for index, (sequence, tree) in enumerate(zip(sequences, trees, strict=True)):
            # Until something is known, the model's trees are taken to bring half of what they could.
            record = self._records.setdefault(sequence.id, _Record(self._grown.depth / 2, 1.0))
            expected = sum(tree.odds[1:]) if tree.odds is not None else 0.0
            record.copied = expected > 0 and expected >= ENOUGH * record.accepted / record.trees
            if not record.copied:
                left.append(index)
        if left:
            grown = self._grown.draft([sequences[index] for index in left])
            for index, tree in zip(left, grown, strict=True):
                trees[index] = tree
                self._records[sequences[index].id].drafted = len(tree) > 1
        return trees

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None:
        record = self._records.get(sequence.id)  # None: others drafted (edge/server_engine.py)
        copied = record is not None and record.copied
        if record is not None and record.drafted and not copied:
            record.accepted = MEMORY * record.accepted + len(path)
            record.trees = MEMORY * record.trees + 1
            record.drafted = False
        self._copying.commit(sequence, path if copied else [], None)
        self._grown.commit(sequence, [] if copied else path, features)

    def move(self, sequence: Sequence, row: int) -> None:
        self._copying.move(sequence, row)
        self._grown.move(sequence, row)

    def release(self, sequence: Sequence) -> None:
        self._copying.release(sequence)
        self._grown.release(sequence)
        self._records.pop(sequence.id, None)
