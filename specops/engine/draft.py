"""Protocols of drafters, of drafts, and of what grows trees from a draft.

A drafter proposes a tree for each sequence. A draft is a model, or a head that reads the target's features.
`heads/` has one file for each form and their registry. A grower holds the state of a draft for the sequences
of a batch, and runs the nodes of their trees level by level. What shape the trees have is the drafter's
decision (`drafters/`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Batch
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specops.engine.attention import Layout, Mask, Span, causal
from specops.engine.models.model import Shape, refuse_not_finite
from specops.engine.prefix_cache import DraftCache
from specops.engine.request import StepTimes
from specops.engine.rng import are_distributions
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree
from specops.errors import ModelError
from specops.trees import TreeSpec

WEIGHTS = "model.safetensors"


MakeGrower = Callable[[int, int, int], "Grower"]
"""(rows, length, nodes) -> Grower, as `Draft.grower`: only a drafter knows how many nodes it runs."""


class Drafter(Protocol):
    """Proposes a token tree for each sequence. `drafters/` has one file each, and their registry."""

    @property
    def draws(self) -> Draw:
        """The draw of trees for sequences at temperature > 0."""

    @property
    def reads_features(self) -> bool:
        """Return whether `commit` needs the target's features."""

    @property
    def nodes(self) -> int:
        """Largest number of nodes of a tree, without the root."""

    @property
    def depth(self) -> int:
        """Largest number of levels of a tree below the root."""

    @property
    def caches(self) -> Batch[DraftCache]:
        """Caches of drafts that read the text as the target does."""

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        """A tree for each sequence: its root is the last token, and its depth is at most `depth_left`.

        A sequence that is still reading its prompt gets a bare root, which is not used. The drafter reads as
        far as the target does.
        """

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None:
        """The nodes on `path` were accepted, and `sequence` has its new tokens; or a chunk was read, or
        restored from the prefix cache.

        features: [new tokens, width], the target's, of the tokens that are new in its cache; None unless
        `reads_features`.
        """

    def move(self, sequence: Sequence, row: int) -> None:
        """Move the state of `sequence` to another row, before the sequence itself moves."""

    def release(self, sequence: Sequence) -> None:
        """Forget `sequence`, which has ended."""


@runtime_checkable
class Learner(Protocol):
    """A drafter that chooses its trees by the time that steps take (`drafters/auto.py`)."""

    @property
    def steps_by_tree(self) -> dict[str, int]:
        """Number of steps for which it chose each tree: the dictionary itself, which the counters hold."""

    def learn(self, times: StepTimes) -> None:
        """The step that it drafted for has been committed, and took `times`."""


@dataclass(frozen=True)
class Recipe:
    """Arguments of a drafter besides its tree."""

    draw: Draw
    """Draw of a drafter that supports several."""

    growers: Iterator[MakeGrower]
    """Each part of a tree that a draft grows takes the next one."""

    rows: int
    """Largest number of sequences at a time."""

    length: int
    """Largest number of tokens of a sequence."""

    make: Callable[[TreeSpec, Recipe], Drafter]
    """Makes the drafter of a part."""


class Draft(ABC):
    """A draft: a model of its own, or a head that reads the target's features."""

    reads_features: ClassVar[bool]
    """Whether it drafts from the target's features, so that it has nothing to read before the first step."""

    max_positions: int | None
    """Tokens that a sequence may have; None if the draft has no positions."""

    @abstractmethod
    def grower(self, rows: int, length: int, nodes: int) -> Grower:
        """A grower of trees of up to `nodes` run nodes, for sequences in `rows` rows of up to `length`
        tokens."""

    @abstractmethod
    def unroll(
        self, whole: list[int], first: int, features: Tensor, depth: int
    ) -> Iterator[tuple[int, Tensor]]:
        """Return its distributions along a given text, as if each token from `first` on had been drafted.

        whole: n token ids; features: [n - 1 or more, width], the target's, of each of them. Yields, for each
        depth up to `depth` at which its distributions differ, (place, [n - first - place, V] logits): row i
        is what it would have proposed in place of token first + place + i.
        """


@dataclass(frozen=True)
class Level:
    """New nodes of one sequence's tree, all of one depth, for a grower to run.

    Nodes that were run lie in the grower's cache behind the root, in the order in which they were run. The
    root's place is 0, the first run node's place is 1.
    """

    sequence: Sequence
    tokens: list[int]
    parents: list[int]  # places of their parents
    place: int  # of the first of them
    depth: int  # below the root
    mask: Mask  # [len(tokens), m] over places 1 up to their own


class Grower(Protocol):
    """The state of a draft for the sequences of a batch, by cache row."""

    @property
    def reads_features(self) -> bool:
        """Return whether `commit` needs the target's features."""

    @property
    def caches(self) -> Batch[DraftCache]:
        """Its cache, if it reads the text as the target does."""

    def read(self, sequences: Batch[Sequence]) -> tuple[list[int], Tensor]:
        """Read the committed tokens of each sequence that were not read yet.

        Returns the indices of the sequences that can be drafted for, and [those, V] logits after their last
        tokens.
        """

    def grow(self, levels: Batch[Level]) -> Tensor:
        """Run the nodes of every level -> [nodes, V] logits, level after level."""

    def commit(self, sequence: Sequence, places: list[int], features: Tensor | None) -> None:
        """The nodes in `places`, ascending, were accepted: they now follow the root directly.

        features: [new tokens, width], the target's; None unless `reads_features`.
        """

    def move(self, sequence: Sequence, row: int) -> None:
        """Move the state of `sequence` to another row, before the sequence itself moves."""

    def release(self, sequence: Sequence) -> None:
        """Forget `sequence`, which has ended."""


@runtime_checkable
class ChainGrower(Protocol):
    """A grower that can draft a whole chain for one sequence in one call."""

    def chain(self, sequence: Sequence, most: int, worth: float) -> tuple[list[int], Tensor] | None:
        """Read what is new, then draw up to `most` tokens, each after the one before it.

        For a greedy sequence each is the most likely token. worth: when the estimated probability that all
        tokens so far are accepted falls below it, no further one is drawn (`drafters/expansion.py`).
        Returns the tokens, and the distributions that they were drawn from, [tokens, V]. Returns None, and
        draws nothing, if the chain needs `read` and `grow`. Raises NotFinite if its logits are not.
        """


class CachedGrower:
    """A grower that attends to the tokens that it read. It has a KV cache with one row for each sequence."""

    def __init__(self, shape: Shape, rows: int, length: int, nodes: int) -> None:
        """`rows` sequences of up to `length` tokens, each with up to `nodes` run nodes."""
        self._cache = shape.cache(rows, length + nodes)
        self._tile = shape.tile
        self._read = [0] * rows  # slots that hold committed tokens
        self._line = torch.arange(length + nodes).clamp_(max=shape.max_positions - 1)

    def splice(self, sequence: Sequence, places: list[int], rest: list[int]) -> None:
        """Move the nodes in `places` directly behind the root, and those in `rest` behind them.

        Both are ascending. The nodes of `rest` then have places 1, 2, … behind the last of `places`.
        """
        read = self._read[sequence.row]
        self._cache.compact(sequence.row, read, [read - 1 + place for place in (*places, *rest)])
        self._read[sequence.row] = read + len(places)

    def move(self, sequence: Sequence, row: int) -> None:
        self._read[row], self._read[sequence.row] = self._read[sequence.row], 0
        self._cache.move(sequence.row, row, self._read[row])

    def release(self, sequence: Sequence) -> None:
        self._read[sequence.row] = 0
        if sequence.finish_reason == "error":
            self._cache.clear(sequence.row)

    def _span(self, row: int, start: int, stop: int) -> Span:
        return Span(row, start, stop - start, self._line[start:stop], causal(stop - start))

    def _level_span(self, level: Level) -> Span:
        root, count = self._read[level.sequence.row] - 1, len(level.tokens)
        position = root + level.depth
        positions = self._line[position : position + 1] if count == 1 else self._line[position].expand(count)
        return Span(level.sequence.row, root + level.place, count, positions, level.mask)

    def _layout(self, spans: list[Span]) -> Layout:
        return Layout(spans, self._cache, self._tile)


class FeatureGrower(ABC):
    """The part of a grower that drafts from one feature: the target's, of the token before the root.

    So it stores nothing of the text, and has nothing to read again after a pause.
    """

    reads_features = True
    caches = ()

    def __init__(self, rows: int, vocab: int) -> None:
        self._vocab = vocab
        self._feature: list[Tensor | None] = [None] * rows  # [1, width] by row, of the last cached token

    @abstractmethod
    def first(self, ready: Batch[Sequence], features: list[Tensor]) -> Tensor:
        """features [1, width] of the token before each root -> [n, V] logits of the token after it."""

    def read(self, sequences: Batch[Sequence]) -> tuple[list[int], Tensor]:
        """Indices of the sequences that can be drafted for, and the logits [n, V] after their roots."""
        ready, features = [], []
        for index, sequence in enumerate(sequences):
            feature = self._feature[sequence.row]
            # With more than the root uncached, the feature is not of the token before the root.
            if feature is not None and sequence.uncached == 1 and sequence.depth_left > 0:
                ready.append(index)
                features.append(feature)
        if not ready:
            return [], torch.empty(0, self._vocab)
        return ready, self.first([sequences[index] for index in ready], features)

    def commit(self, sequence: Sequence, places: list[int], features: Tensor | None) -> None:
        assert features is not None
        self._feature[sequence.row] = features[-1:]

    def move(self, sequence: Sequence, row: int) -> None:
        self._feature[row], self._feature[sequence.row] = self._feature[sequence.row], None

    def release(self, sequence: Sequence) -> None:
        self._feature[sequence.row] = None


class Growing(Protocol):
    """A tree on its way, in a drafter."""

    finite: bool


T = TypeVar("T", bound=Growing)


def retain_finite(trees: list[T], nodes: list[int], logits: Tensor) -> tuple[list[T], Tensor]:
    """The trees whose logits are distributions', and these logits; the others are marked.

    logits: [sum of `nodes`, V], nodes[i] rows for trees[i]. Called where `are_distributions` is false.
    """
    parts = torch.split(logits, nodes)
    for tree, part in zip(trees, parts, strict=True):
        tree.finite = are_distributions(part)
    sound = [part for tree, part in zip(trees, parts, strict=True) if tree.finite]
    return [tree for tree in trees if tree.finite], torch.cat([logits[:0], *sound])


def weight_names(folder: Path) -> set[str]:
    """The names of a folder's weights; empty if they cannot be read, which loading them then reports."""
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as weights:
            return set(weights.keys())
    except (OSError, SafetensorError):
        return set()


def read_weights(folder: Path, description: str) -> dict[str, Tensor]:
    """Read all weights of a folder's model.safetensors, as float32. Raises ModelError, with the `description`
    of what they are."""
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as stored:
            weights = {name: stored.get_tensor(name).float() for name in list(stored.keys())}
    except (OSError, SafetensorError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"could not load {description} from {folder}: {reason}") from error
    refuse_not_finite(folder, weights.items())
    return weights


def joined(rows: list[Tensor]) -> Tensor:
    """[n, width], of n rows [1, width]; without a copy if there is one row."""
    return rows[0] if len(rows) == 1 else torch.cat(rows)
