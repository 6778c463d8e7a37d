"""Medusa heads (arXiv 2401.10774): several tokens ahead are predicted at once, each by a head of its own.

Head d reads the target's feature before the root and predicts the token d + 1 places after the root, whatever
lies between: a residual block, then an output layer of its own or the target's. Nothing of a tree is run, so
that a deeper tree costs nothing more, and nodes of one depth all have the same distribution below them.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from collections.abc import Sequence as Batch
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specops.engine.drafters.grower import DraftHead, Level
from specops.engine.linear import Linear
from specops.engine.model import FeatureModel
from specops.engine.sequence import Sequence
from specops.errors import ModelError

WEIGHTS = "model.safetensors"
PREFIXES = ("medusa_head.", "")
"""Of the names of weights: as the authors' models have them, and as their separate files of heads do."""

BLOCK, BIAS, OUTPUT = "0.linear.weight", "0.linear.bias", "1.weight"
MARKS = tuple(f"{prefix}0.{BLOCK}" for prefix in PREFIXES)
"""One of them is among the weights: what tells such heads from other drafts."""


class Medusa(DraftHead):
    """The authors' form with one residual block a head: block {head}.0.linear, output layer {head}.1.

    Heads without an output layer of their own use the target's.
    """

    marks: ClassVar[Set[str]] = frozenset(MARKS)

    def __init__(self, folder: Path, target: FeatureModel) -> None:
        """Raises ModelError where the folder is damaged or the heads are another target's."""
        try:
            with safe_open(folder / WEIGHTS, framework="pt") as file:
                weights = {name: file.get_tensor(name).float() for name in list(file.keys())}
        except (OSError, SafetensorError) as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(f"could not load Medusa heads from {folder}: {reason}") from error
        prefix = next((p for p in PREFIXES if f"{p}0.{BLOCK}" in weights), PREFIXES[0])
        self._heads: list[tuple[Linear, Linear]] = []
        self.vocab = target.shape.vocab
        shared = Linear(target.output.float())
        while f"{prefix}{len(self._heads)}.{BLOCK}" in weights:
            name = f"{prefix}{len(self._heads)}."
            if f"{name}1.linear.weight" in weights:
                raise ModelError(
                    f"could not load Medusa heads from {folder}: they have several blocks a head",
                    hint="heads of one residual block are read",
                )
            fits = {BLOCK: (target.width, target.width), BIAS: (target.width,), OUTPUT: target.output.shape}
            parts = {part: weights[name + part] for part in fits if name + part in weights}
            if any(value.shape != fits[part] for part, value in parts.items()):
                shapes = ", ".join(str(tuple(value.shape)) for value in parts.values())
                raise ModelError(
                    f"could not pair the Medusa heads {folder} with this target: their shapes are {shapes}, "
                    f"and it has {self.vocab} tokens and features of {target.width}",
                    hint="heads are trained for one target; take that one's",
                )
            layer = Linear(parts[OUTPUT]) if OUTPUT in parts else shared
            self._heads.append((Linear(parts[BLOCK], parts.get(BIAS)), layer))
        if not self._heads:
            raise ModelError(f"could not load Medusa heads from {folder}: there is no {MARKS[0]}")

    def __len__(self) -> int:
        return len(self._heads)

    def predict(self, features: Tensor, depth: int) -> Tensor:
        """[n, width] before each root -> [n, V] logits of the token `depth` places after the root, from 1.

        Deeper than there are heads, the last one is asked again: it is the best guess that there is.
        """
        block, output = self._heads[min(depth, len(self._heads)) - 1]
        return output(features + F.silu(block(features)))

    def unroll(self, whole: list[int], first: int, features: Tensor, depth: int) -> Iterator[Tensor]:
        roots = len(whole) - first
        for below in range(min(depth, roots)):
            yield self.predict(features[first - 1 :][: roots - below], below + 1)

    def grower(self, rows: int, length: int, nodes: int) -> MedusaGrower:
        return MedusaGrower(self, rows, length, nodes)

    @property
    def max_positions(self) -> int | None:
        return None


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
