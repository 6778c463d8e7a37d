"""Copies where they hold, else a model's tree: one or the other for each sequence at each step.

A copied token costs the target a row of its pass; a drafted one costs a pass of the draft, which a union of
both always pays. So the draft is left out where the copy alone is likely to bring nearly as much, and catches
up when it is next asked. Which of the two is taken follows from the tokens that are there and from what was
accepted before them, not from what would be drawn: what is drawn keeps its draw, and what is copied is sure.
"""

from __future__ import annotations

from collections.abc import Sequence as Batch
from dataclasses import dataclass

from torch import Tensor

from specops.engine.drafters import Drafter
from specops.engine.sequence import Sequence
from specops.engine.tree import TokenTree

ENOUGH = 0.6
"""Tokens that a copy must be expected to bring for each that the model's trees brought. Replayed on the
shipped pair, 0.4 to 0.75 are within 1% of each other, whether a draft's pass takes 0.08 or 0.25 of the
target's: where little is to be won by the one, little is to be lost by the other."""

MEMORY = 0.95
"""What each of the model's trees leaves of the weight of those before it."""


@dataclass
class _Record:
    """Of one sequence."""

    accepted: float  # nodes of the model's trees, weighted
    trees: float
    copied: bool = False  # the last tree
    drafted: bool = False


class Either:
    def __init__(self, copying: Drafter, grown: Drafter) -> None:
        self._copying, self._grown = copying, grown
        self.draws = grown.draws
        self.reads_features = grown.reads_features
        self.nodes = max(copying.nodes, grown.nodes)
        self.depth = max(copying.depth, grown.depth)
        self._records: dict[int, _Record] = {}  # by sequence

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
        record = self._records.get(sequence.id)  # None: it goes on by what others drafted (edge/remote.py)
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
