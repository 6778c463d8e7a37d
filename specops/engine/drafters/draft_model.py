"""A draft model of its own: reads what was committed as the target does, then grows trees."""

from __future__ import annotations

from collections.abc import Sequence as Batch

import torch
from torch import Tensor

from specops.engine.attention import Span
from specops.engine.drafters.grower import Cached, Level
from specops.engine.model import Model
from specops.engine.sequence import Sequence


class DraftModel(Cached):
    reads_features = False

    def __init__(self, model: Model, rows: int, length: int, nodes: int) -> None:
        super().__init__(model.shape, rows, length, nodes)
        self._model = model

    def read(self, sequences: Batch[Sequence]) -> tuple[list[int], Tensor]:
        """A prompt is read by chunks, as far as the target reads."""
        spans: list[Span] = []
        tokens: list[int] = []
        ready: list[int] = []
        ends: list[int] = []
        for index, sequence in enumerate(sequences):
            start = self._read[sequence.row]
            # Not by a chunk in the end: an accepted leaf that was never run is one token more than the root.
            stop = start + sequence.chunk if sequence.reading else len(sequence.tokens)
            tokens += sequence.tokens[start:stop]
            spans.append(self._span(sequence.row, start, stop))
            self._read[sequence.row] = stop
            if not sequence.reading and sequence.depth_left > 0:
                ready.append(index)
                ends.append(len(tokens) - 1)
        wanted = torch.tensor(ends, dtype=torch.int64) if len(ends) < len(tokens) else None
        return ready, self._model.forward(torch.tensor(tokens), self._layout(spans), wanted)

    def grow(self, levels: Batch[Level]) -> Tensor:
        tokens = [token for level in levels for token in level.tokens]
        spans = [self._level_span(level) for level in levels]
        return self._model.forward(torch.tensor(tokens), self._layout(spans))

    def commit(self, sequence: Sequence, places: list[int], features: Tensor | None) -> None:
        if not sequence.reading:
            self.splice(sequence, places, [])
