"""Medusa heads growing trees: of every depth one distribution, whatever the path above it.

That is as good a q as any other: verification needs to know what each child was drawn from, not that it
depended on the path.
"""

from __future__ import annotations

from collections.abc import Sequence as Batch

import torch
from torch import Tensor

from specops.engine.drafters.grower import Level
from specops.engine.medusa import Medusa
from specops.engine.sequence import Sequence


class MedusaGrower:
    reads_features = True

    def __init__(self, heads: Medusa, rows: int, length: int, nodes: int) -> None:
        self._heads = heads
        self._feature: list[Tensor | None] = [None] * rows  # by row: of the last token in the target's cache

    def read(self, sequences: Batch[Sequence]) -> tuple[list[int], Tensor]:
        ready, features = [], []
        for index, sequence in enumerate(sequences):
            feature = self._feature[sequence.row]
            if feature is not None and sequence.uncached == 1 and sequence.depth_left > 0:
                ready.append(index)
                features.append(feature)
        if not ready:
            return [], torch.empty(0, self._heads.vocab)
        return ready, self._heads.predict(torch.cat(features), 1)

    def grow(self, levels: Batch[Level]) -> Tensor:
        known = [self._feature[level.sequence.row] for level in levels]
        features = torch.cat([feature for feature in known if feature is not None])
        assert len({level.depth for level in levels}) == 1  # drafters grow all trees level by level
        logits = self._heads.predict(features, levels[0].depth + 1)
        counts = [len(level.tokens) for level in levels]
        return logits.repeat_interleave(torch.tensor(counts), 0) if max(counts) > 1 else logits

    def commit(self, sequence: Sequence, places: list[int], features: Tensor | None) -> None:
        assert features is not None
        self._feature[sequence.row] = features[-1:]

    def move(self, sequence: Sequence, row: int) -> None:
        self._feature[row], self._feature[sequence.row] = self._feature[sequence.row], None

    def release(self, sequence: Sequence) -> None:
        self._feature[sequence.row] = None
