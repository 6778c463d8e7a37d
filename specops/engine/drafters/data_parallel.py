"""Drafting side by side: each rank drafts for its share of the sequences (SpecInfer, arXiv 2305.09781).

Every rank holds the whole draft. A sequence is drafted for by one rank all its life, since that one's cache
has read it. What was drawn from, the distributions, goes to rank 0 alone, which verifies.

Drafts are drawn from a source of chance of their own. Each rank has a sequence's from the same seed: were
drafts drawn from it elsewhere and verified from it here, both would take the same numbers, and whether a
token is accepted would hang together with which one was drawn.
"""

from __future__ import annotations

import copyreg
from collections.abc import Sequence as Batch
from dataclasses import replace
from typing import Any

from torch import Tensor

from specops.engine.chance import Chance, Dice
from specops.engine.drafters import Drafter
from specops.engine.ranks import Ranks
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology

_OTHER = 1 << 64
"""Added to a request's seed, below which all of those are."""

# A shape is one object in a process, and its masks are not to travel.
copyreg.pickle(Topology, lambda topology: (Topology.of, (topology.parents,)))


class DataParallel:
    def __init__(self, drafter: Drafter, ranks: Ranks) -> None:
        self._drafter, self._ranks = drafter, ranks
        self.draws, self.reads_features = drafter.draws, drafter.reads_features
        self.nodes, self.depth = drafter.nodes, drafter.depth
        self._owner: dict[int, int] = {}  # by sequence: the same on all ranks
        self._chance: dict[int, Chance] = {}  # by sequence, of those that are drafted for here

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        for sequence in sequences:
            if sequence.id not in self._owner:
                owned = list(self._owner.values())
                self._owner[sequence.id] = min(range(self._ranks.size), key=owned.count)
                if self._owns(sequence):
                    seed = sequence.sampling.seed
                    self._chance[sequence.id] = Dice(None if seed is None else _OTHER + seed)
        own = [sequence for sequence in sequences if self._owns(sequence)]
        drafted = self._drafted(own) if own else []
        plain = [replace(tree, q=None, merged=None) for tree in drafted]
        trees = self._in_turn(self._ranks.gathered(plain), sequences)
        drawn = self.draws is not Draw.DETERMINISTIC and not all(sequence.greedy for sequence in sequences)
        if not drawn:
            return trees
        whole = self._ranks.gathered_first([(tree.q, tree.merged) for tree in drafted])
        if not self._ranks.first:
            return trees
        parts = self._in_turn(whole, sequences)
        return [replace(tree, q=q, merged=m) for tree, (q, m) in zip(trees, parts, strict=True)]

    def _drafted(self, own: Batch[Sequence]) -> list[TokenTree]:
        verifying = [sequence.chance for sequence in own]
        for sequence in own:
            sequence.chance = self._chance[sequence.id]
        try:
            return self._drafter.draft(own)
        finally:
            for sequence, chance in zip(own, verifying, strict=True):
                sequence.chance = chance

    def _in_turn(self, shares: list[list[Any]], sequences: Batch[Sequence]) -> list[Any]:
        """What each rank has for its own sequences, in the order of all."""
        rest = [iter(share) for share in shares]
        return [next(rest[self._owner[sequence.id]]) for sequence in sequences]

    def _owns(self, sequence: Sequence) -> bool:
        return self._owner.get(sequence.id) == self._ranks.rank

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None:
        if self._owns(sequence):
            self._drafter.commit(sequence, path, features)

    def move(self, sequence: Sequence, row: int) -> None:
        if self._owns(sequence):
            self._drafter.move(sequence, row)

    def release(self, sequence: Sequence) -> None:
        if self._owns(sequence):
            self._drafter.release(sequence)
        self._owner.pop(sequence.id, None)
        self._chance.pop(sequence.id, None)
