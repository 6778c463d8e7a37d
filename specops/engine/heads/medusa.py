"""Medusa heads (arXiv 2401.10774): several tokens ahead are predicted at once, each by a head of its own.

Head d reads the target's feature before the root and predicts the token d + 1 places after the root, whatever
lies between: a residual block, then an output layer of its own or the target's. No node of a tree is run. So
a deeper tree costs nothing more, and all nodes of one depth have the same distribution below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Batch
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specops.checkpoints.draft_kind import HEAD_FORMS
from specops.engine.draft import Draft, FeatureGrower, Level, read_weights
from specops.engine.models.linear import Linear
from specops.engine.models.model import FeatureModel
from specops.engine.sequence import Sequence
from specops.errors import ModelError
from specops.hints import listing

BLOCK, BIAS, OUTPUT = "0.linear.weight", "0.linear.bias", "1.weight"

PREFIXES = tuple(mark.removesuffix(f"0.{BLOCK}") for mark in HEAD_FORMS["medusa"].marks)
"""Prefixes of the names of weights: in the authors' whole models, and in their separate files of heads."""


class Medusa(Draft):
    """The authors' form with one residual block a head: block {head}.0.linear, output layer {head}.1.

    Heads without an output layer of their own use the target's.
    """

    reads_features = True
    max_positions = None

    def __init__(self, folder: Path, target: FeatureModel) -> None:
        """Raises ModelError if the folder is damaged, or the heads belong to another target."""
        weights = read_weights(folder, "Medusa heads")
        prefix = next((p for p in PREFIXES if f"{p}0.{BLOCK}" in weights), PREFIXES[0])
        self._heads: list[tuple[Linear, Linear]] = []
        self.vocab = target.shape.vocab
        shared = Linear(target.output.float())
        while f"{prefix}{len(self._heads)}.{BLOCK}" in weights:
            name = f"{prefix}{len(self._heads)}."
            if f"{name}1.linear.weight" in weights:
                raise ModelError(
                    f"could not load Medusa heads from {folder}: expected one residual block a head, not "
                    "several",
                    hint=listing(folder),
                )
            fits = {BLOCK: (target.width, target.width), BIAS: (target.width,), OUTPUT: target.output.shape}
            parts = {part: weights[name + part] for part in fits if name + part in weights}
            if any(value.shape != fits[part] for part, value in parts.items()):
                shapes = ", ".join(str(tuple(value.shape)) for value in parts.values())
                raise ModelError(
                    f"could not pair the Medusa heads {folder} with this target: their shapes are {shapes}, "
                    f"and it has {self.vocab} tokens and features of {target.width}; "
                    "a head is trained for one target",
                    hint=listing(folder),
                )
            layer = Linear(parts[OUTPUT]) if OUTPUT in parts else shared
            self._heads.append((Linear(parts[BLOCK], parts.get(BIAS)), layer))
        if not self._heads:
            raise ModelError(f"could not load Medusa heads from {folder}: there is no {PREFIXES[0]}0.{BLOCK}")

    def __len__(self) -> int:
        return len(self._heads)

    def predict(self, features: Tensor, depth: int) -> Tensor:
        """[n, width] before each root -> [n, V] logits of the token `depth` places after the root, from 1.

        Deeper than there are heads, the last head's prediction is the best guess.
        """
        block, output = self._heads[min(depth, len(self._heads)) - 1]
        return output(features + F.silu(block(features)))

    def unroll(
        self, whole: list[int], first: int, features: Tensor, depth: int
    ) -> Iterator[tuple[int, Tensor]]:
        roots = len(whole) - 1 - first
        for below in range(min(depth, roots)):
            yield below + 1, self.predict(features[first - 1 :][: roots - below], below + 1)

    def grower(self, rows: int, length: int, nodes: int) -> MedusaGrower:
        return MedusaGrower(self, rows)


class MedusaGrower(FeatureGrower):
    """Grows trees whose nodes of one depth share a head's prediction."""

    def __init__(self, heads: Medusa, rows: int) -> None:
        super().__init__(rows, heads.vocab)
        self._heads = heads

    def first(self, ready: Batch[Sequence], features: list[Tensor]) -> Tensor:
        return self._heads.predict(torch.cat(features), 1)

    def grow(self, levels: Batch[Level]) -> Tensor:
        last_features = [self._feature[level.sequence.row] for level in levels]
        features = torch.cat([feature for feature in last_features if feature is not None])
        assert len({level.depth for level in levels}) == 1  # drafters grow all trees level by level
        logits = self._heads.predict(features, levels[0].depth + 1)
        counts = [len(level.tokens) for level in levels]
        return logits.repeat_interleave(torch.tensor(counts), 0) if max(counts) > 1 else logits
