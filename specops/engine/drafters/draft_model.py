"""A draft model with a KV cache of its own: reads what was committed, then grows trees level by level."""

from __future__ import annotations

from collections.abc import Sequence as Batch
from dataclasses import dataclass

import torch
from torch import Tensor

from specops.engine.attention import Layout, Mask, Span, causal
from specops.engine.model import Model
from specops.engine.sequence import Sequence


@dataclass(frozen=True)
class Level:
    """New nodes of one sequence's tree, all of one depth, to be run through the draft model.

    Nodes that were run lie in the cache behind the root, in the order in which they were run: the first of
    them in place 1.
    """

    sequence: Sequence
    tokens: list[int]
    place: int  # of the first of them
    depth: int  # below the root
    mask: Mask  # [len(tokens), m] over places 1 up to their own


class DraftModel:
    def __init__(self, model: Model, rows: int, length: int, nodes: int) -> None:
        self._model = model
        self._cache = model.shape.cache(rows, length + nodes)
        self._read = [0] * rows  # committed tokens whose KV is in the row
        self._line = torch.arange(length + nodes).clamp_(max=model.shape.max_positions - 1)

    def read(self, sequences: Batch[Sequence]) -> Tensor:
        """Catch up with each sequence, a prompt by chunks -> [len(sequences), V] logits of its last token."""
        spans: list[Span] = []
        tokens: list[int] = []
        for sequence in sequences:
            start = self._read[sequence.row]
            # Not by a chunk in the end: an accepted leaf that was never run is one token more than the root.
            stop = start + sequence.chunk if sequence.reading else len(sequence.tokens)
            pending = sequence.tokens[start:stop]
            self._read[sequence.row] = stop
            spans.append(
                Span(sequence.row, start, len(pending), self._line[start:stop], causal(len(pending)))
            )
            tokens += pending
        ends = torch.tensor([span.count for span in spans]).cumsum(0) - 1
        return self._run(tokens, spans, ends if len(tokens) > len(spans) else None)

    def grow(self, levels: Batch[Level]) -> Tensor:
        """Run the nodes of every level -> [nodes, V] logits, level after level."""
        spans: list[Span] = []
        tokens: list[int] = []
        for level in levels:
            root, count = self._read[level.sequence.row] - 1, len(level.tokens)
            positions = self._line[root + level.depth].expand(count)
            spans.append(Span(level.sequence.row, root + level.place, count, positions, level.mask))
            tokens += level.tokens
        return self._run(tokens, spans, None)

    def commit(self, sequence: Sequence, places: list[int]) -> None:
        """The nodes in `places`, ascending, were accepted: they follow the root at once."""
        read = self._read[sequence.row]
        self._cache.compact(sequence.row, read, [read - 1 + place for place in places])
        self._read[sequence.row] = read + len(places)

    def move(self, sequence: Sequence, row: int) -> None:
        self._read[row], self._read[sequence.row] = self._read[sequence.row], 0
        self._cache.move(sequence.row, row, self._read[row])

    def release(self, sequence: Sequence) -> None:
        self._read[sequence.row] = 0

    def _run(self, tokens: list[int], spans: list[Span], wanted: Tensor | None) -> Tensor:
        layout = Layout(spans, self._cache, self._model.shape.tile)
        return self._model.forward(torch.tensor(tokens), layout, wanted)
