"""N-gram drafts (prompt look-up): what followed the last few tokens when they occurred before."""

from __future__ import annotations

from collections.abc import Sequence as Batch

from torch import Tensor

from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology

LONGEST, SHORTEST = 4, 2  # tokens that must match


class _Index:
    """Where each n-gram of one sequence was last followed by something."""

    def __init__(self) -> None:
        self._indexed = 0  # tokens that are already the successor of indexed n-grams
        self._after: dict[tuple[int, ...], int] = {}

    def look_up(self, tokens: list[int], count: int) -> list[int]:
        for position in range(max(self._indexed, 1), len(tokens)):
            for size in range(SHORTEST, min(LONGEST, position) + 1):
                self._after[tuple(tokens[position - size : position])] = position
        self._indexed = len(tokens)
        for size in range(min(LONGEST, len(tokens)), SHORTEST - 1, -1):
            found = self._after.get(tuple(tokens[-size:]))
            if found is not None:
                return tokens[found : found + count]
        return []


class NGram:
    draws = Draw.DETERMINISTIC
    reads_features = False

    def __init__(self, count: int) -> None:
        self.nodes = self.depth = count
        self._index: dict[int, _Index] = {}  # by sequence

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        return [self._chain(sequence) for sequence in sequences]

    def _chain(self, sequence: Sequence) -> TokenTree:
        if sequence.reading:
            return TokenTree.bare(sequence.tokens[-1])
        index = self._index.setdefault(sequence.id, _Index())
        tokens = index.look_up(sequence.tokens, min(self.nodes, max(sequence.depth_left, 0)))
        return TokenTree(Topology.expansion((1,) * len(tokens)), [sequence.tokens[-1], *tokens], self.draws)

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None: ...

    def move(self, sequence: Sequence, row: int) -> None: ...

    def release(self, sequence: Sequence) -> None:
        self._index.pop(sequence.id, None)
