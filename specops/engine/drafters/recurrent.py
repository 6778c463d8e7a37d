"""A recurrent head growing trees: all it keeps of a sequence is the target's last feature."""

from __future__ import annotations

from collections.abc import Sequence as Batch

import torch
from torch import Tensor

from specops.engine.drafters.grower import Level
from specops.engine.recurrent import Recurrent
from specops.engine.sequence import Sequence


class RecurrentGrower:
    reads_features = True

    def __init__(self, head: Recurrent, rows: int, length: int, nodes: int) -> None:
        self._head = head
        # By row:
        self._feature: list[Tensor | None] = [None] * rows  # of the last token in the target's cache
        self._states: list[list[Tensor]] = [[] for _ in range(rows)]  # by place, [1, width]

    def read(self, sequences: Batch[Sequence]) -> tuple[list[int], Tensor]:
        ready, tokens, features = [], [], []
        for index, sequence in enumerate(sequences):
            feature = self._feature[sequence.row]
            # Its feature must be of the token before the root: what the root was chosen from.
            if feature is not None and sequence.uncached == 1 and sequence.depth_left > 0:
                ready.append(index)
                tokens.append(sequence.tokens[-1])
                features.append(feature)
        if not ready:
            return [], torch.empty(0, self._head.vocab)
        states, logits = self._head.draft(_joined(features), tokens)
        for index, state in zip(ready, states[:, None].unbind(), strict=True):
            self._states[sequences[index].row] = [state]
        return ready, logits

    def grow(self, levels: Batch[Level]) -> Tensor:
        tokens = [token for level in levels for token in level.tokens]
        parents = [self._states[level.sequence.row][place] for level in levels for place in level.parents]
        states, logits = self._head.draft(_joined(parents), tokens)
        rows = iter(states[:, None].unbind())
        for level in levels:
            self._states[level.sequence.row] += [next(rows) for _ in level.tokens]
        return logits

    def commit(self, sequence: Sequence, places: list[int], features: Tensor | None) -> None:
        assert features is not None
        self._feature[sequence.row] = features[-1:]

    def move(self, sequence: Sequence, row: int) -> None:
        self._feature[row], self._feature[sequence.row] = self._feature[sequence.row], None

    def release(self, sequence: Sequence) -> None:
        self._feature[sequence.row] = None


def _joined(rows: list[Tensor]) -> Tensor:
    return rows[0] if len(rows) == 1 else torch.cat(rows)
