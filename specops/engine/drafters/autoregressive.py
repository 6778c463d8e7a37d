"""No draft at all: the baseline that speculation is measured against."""

from __future__ import annotations

from collections.abc import Sequence as Batch

from torch import Tensor

from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree


class Autoregressive:
    draws = Draw.DETERMINISTIC
    reads_features = False
    nodes = 0
    depth = 0

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        return [TokenTree.bare(sequence.tokens[-1]) for sequence in sequences]

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None: ...

    def move(self, sequence: Sequence, row: int) -> None: ...

    def release(self, sequence: Sequence) -> None: ...
