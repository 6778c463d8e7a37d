"""What grows trees level by level: a draft model, or a draft head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Set
from collections.abc import Sequence as Batch
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from specops.engine.attention import Layout, Mask, Span, causal
from specops.engine.model import FeatureModel, Shape
from specops.engine.sequence import Sequence


@dataclass(frozen=True)
class Level:
    """New nodes of one sequence's tree, all of one depth, to be run through what grows it.

    Nodes that were run lie in the cache behind the root, in the order in which they were run: the first of
    them in place 1; the root's place is 0.
    """

    sequence: Sequence
    tokens: list[int]
    parents: list[int]  # the places of their parents
    place: int  # of the first of them
    depth: int  # below the root
    mask: Mask  # [len(tokens), m] over places 1 up to their own


class Grower(Protocol):
    @property
    def reads_features(self) -> bool:
        """Whether `commit` is to be given the target's features."""

    def read(self, sequences: Batch[Sequence]) -> tuple[list[int], Tensor]:
        """Catch up with each sequence.

        Returns which of the sequences can be drafted for, and [those, V] logits of their last tokens.
        """

    def grow(self, levels: Batch[Level]) -> Tensor:
        """Run the nodes of every level -> [nodes, V] logits, level after level."""

    def commit(self, sequence: Sequence, places: list[int], features: Tensor | None) -> None:
        """The nodes in `places`, ascending, were accepted: they follow the root at once."""

    def move(self, sequence: Sequence, row: int) -> None:
        """`sequence` is about to go on in another row."""

    def release(self, sequence: Sequence) -> None:
        """`sequence` has ended."""


class DraftHead(ABC):
    """A network that drafts from the target's features (specops/engine/heads)."""

    marks: ClassVar[Set[str]]
    """Weights of which a folder of this form has one, and no other draft has any."""

    @abstractmethod
    def __init__(self, folder: Path, target: FeatureModel) -> None:
        """Raises ModelError where the folder is damaged or the head is another target's."""

    @property
    @abstractmethod
    def max_positions(self) -> int | None:
        """Tokens that a sequence may have; None: it has no positions."""

    @abstractmethod
    def grower(self, rows: int, length: int, nodes: int) -> Grower:
        """What grows trees of up to `nodes` for sequences in `rows` of up to `length` tokens."""

    @abstractmethod
    def unroll(self, whole: list[int], first: int, features: Tensor, depth: int) -> Iterator[Tensor]:
        """Drafting from every token from `first` on at once, along the tokens that follow each.

        features [n, width]: the target's, of every token of `whole`. Yields for the depths 1, 2, … below the
        roots [roots - depth + 1, V] logits; the roots nearest the end have no tokens left for deeper ones.
        """


@runtime_checkable
class Chains(Protocol):
    """A grower that drafts a chain for one sequence in one go."""

    def chain(self, sequence: Sequence, most: int, worth: float) -> tuple[list[int], Tensor] | None:
        """Catch up, and draw up to `most` tokens, each after the one before it; of a greedy sequence the
        likeliest ones. None, and nothing is done, where it takes `read` and `grow`.

        worth: when the odds that all so far are accepted (adaptive.py) are below it, nothing follows.
        returns the tokens, and [those, V], what they were drawn from
        """


class Cached:
    """The part of a grower that attends to what it read: a KV cache of its own, a row a sequence."""

    def __init__(self, shape: Shape, rows: int, length: int, nodes: int) -> None:
        """`rows` sequences of up to `length` tokens, each with up to `nodes` nodes that are run."""
        self._cache = shape.cache(rows, length + nodes)
        self._tile = shape.tile
        self._read = [0] * rows  # slots whose KV is of committed tokens
        self._line = torch.arange(length + nodes).clamp_(max=shape.max_positions - 1)

    def splice(self, sequence: Sequence, places: list[int], kept: list[int]) -> None:
        """The nodes in `places` follow the root at once, and those in `kept` stay, as places 1, 2, … behind
        the last of them; all ascending."""
        read = self._read[sequence.row]
        self._cache.compact(sequence.row, read, [read - 1 + place for place in (*places, *kept)])
        self._read[sequence.row] = read + len(places)

    def move(self, sequence: Sequence, row: int) -> None:
        self._read[row], self._read[sequence.row] = self._read[sequence.row], 0
        self._cache.move(sequence.row, row, self._read[row])

    def release(self, sequence: Sequence) -> None:
        self._read[sequence.row] = 0

    def _span(self, row: int, start: int, stop: int) -> Span:
        return Span(row, start, stop - start, self._line[start:stop], causal(stop - start))

    def _level_span(self, level: Level) -> Span:
        root, count = self._read[level.sequence.row] - 1, len(level.tokens)
        at = root + level.depth
        positions = self._line[at : at + 1] if count == 1 else self._line[at].expand(count)
        return Span(level.sequence.row, root + level.place, count, positions, level.mask)

    def _layout(self, spans: list[Span]) -> Layout:
        return Layout(spans, self._cache, self._tile)


Draft = Callable[[int, int, int], Grower]
"""(rows, length, nodes) -> what grows the trees: a drafter alone knows how many nodes it runs."""
