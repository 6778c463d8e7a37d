"""A draft head over the target's features (EAGLE), growing trees as a draft model does.

Its cache holds one slot for each token but the first: slot i is the token i + 1 beside the target's feature
of the token i. What was drafted was run on guessed features; once it is accepted, the head reads it again
beside the true ones.
"""

from __future__ import annotations

from collections.abc import Sequence as Batch

import torch
from torch import Tensor

from specops.engine.attention import Span
from specops.engine.chance import Dice
from specops.engine.drafters.grower import Cached, Level
from specops.engine.head import Head
from specops.engine.sequence import Sequence


class Eagle(Cached):
    reads_features = True

    def __init__(self, head: Head, rows: int, length: int, nodes: int) -> None:
        super().__init__(head.shape, rows, length, nodes)
        self._head = head
        # By row:
        self._known: list[list[Tensor]] = [[] for _ in range(rows)]  # features that were not read yet
        self._guessed: list[list[Tensor]] = [[] for _ in range(rows)]  # by place, [1, hidden]

    def read(self, sequences: Batch[Sequence]) -> tuple[list[int], Tensor]:
        spans: list[Span] = []
        tokens: list[int] = []
        features: list[Tensor] = []
        ready: list[int] = []
        ends: list[int] = []
        for index, sequence in enumerate(sequences):
            row = sequence.row
            if not self._known[row]:  # its prompt is new: the target has not seen any of it
                continue
            start, stop = self._read[row], sequence.cached
            tokens += sequence.tokens[start + 1 : stop + 1]
            features += self._known[row]
            spans.append(self._span(row, start, stop))
            self._known[row], self._read[row] = [], stop
            # With more than the root uncached, the target's features do not reach it yet.
            if sequence.uncached == 1 and sequence.depth_left > 0:
                ready.append(index)
                ends.append(len(tokens) - 1)
        if not tokens:
            return [], torch.empty(0, self._head.shape.vocab)
        guessed, logits = self._head.draft(tokens, _joined(features), spans, self._cache, ends)
        for index, guess in zip(ready, _apart(guessed), strict=True):
            self._guessed[sequences[index].row] = [guess]
        return ready, logits

    def chain(self, sequence: Sequence, most: int, worth: float) -> tuple[list[int], Tensor] | None:
        row, sampling, chance = sequence.row, sequence.sampling, sequence.chance
        start, stop, most = self._read[row], sequence.cached, min(most, sequence.depth_left)
        if not self._known[row] or sequence.uncached != 1 or most < 1 or not self._head.chains(stop - start):
            return None
        if sequence.greedy:
            dice = [0.0] * most
        elif isinstance(chance, Dice) and sampling.top_k == 0 and sampling.top_p == 1:
            dice = chance.several(most)
        else:
            return None
        tokens, features = sequence.tokens[start + 1 : stop + 1], _joined(self._known[row])
        span, temperature = self._span(row, start, stop), sampling.temperature
        self._known[row], self._read[row] = [], stop
        return self._head.chain(
            tokens, features, span, self._cache, dice, temperature=temperature, worth=worth
        )

    def grow(self, levels: Batch[Level]) -> Tensor:
        tokens = [token for level in levels for token in level.tokens]
        parents = [self._guessed[level.sequence.row][place] for level in levels for place in level.parents]
        spans = [self._level_span(level) for level in levels]
        wanted = list(range(len(tokens)))
        guessed, logits = self._head.draft(tokens, _joined(parents), spans, self._cache, wanted)
        rows = iter(_apart(guessed))
        for level in levels:
            self._guessed[level.sequence.row] += [next(rows) for _ in level.tokens]
        return logits

    def commit(self, sequence: Sequence, places: list[int], features: Tensor | None) -> None:
        assert features is not None
        self._known[sequence.row].append(features)

    def move(self, sequence: Sequence, row: int) -> None:
        super().move(sequence, row)
        self._known[row], self._known[sequence.row] = self._known[sequence.row], []

    def release(self, sequence: Sequence) -> None:
        super().release(sequence)
        self._known[sequence.row] = []


def _apart(rows: Tensor) -> list[Tensor]:
    """[n, hidden] -> n times [1, hidden]."""
    return [rows] if len(rows) == 1 else list(rows[:, None].unbind())


def _joined(rows: list[Tensor]) -> Tensor:
    return rows[0] if len(rows) == 1 else torch.cat(rows)
