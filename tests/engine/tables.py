"""Models that are tables: a distribution for every prefix, in float64, behind the engine's own interface.

The model computes through the engine's real attention: each token writes a one-hot "token t at position i"
into the cache and attends uniformly, so that what it reads back is the set of tokens it sees. A wrong mask,
slot, position or compaction does not make the model a little wrong; it is found out at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from specops.engine.attention import KVCache, Layout, Span, attend
from specops.engine.models.model import Shape

Prefix = tuple[int, ...]
Table = Callable[[Prefix], Tensor]  # prefix -> [V] probabilities, float64
VOCABULARY = 3


@cache
def random_table(seed: int, *, support: int = VOCABULARY) -> Table:
    """Independent random distributions; `support` of the tokens have a positive probability.

    Whoever asks for it again gets the same, so that what is drawn from it can be kept.
    """

    @cache
    def probabilities(prefix: Prefix) -> Tensor:
        rng = random.Random(f"{seed} {prefix}")
        weights = [rng.expovariate(1.0) ** 2 + 1e-3 for _ in range(VOCABULARY)]
        for token in rng.sample(range(VOCABULARY), VOCABULARY - support):
            weights[token] = 0.0
        values = torch.tensor(weights, dtype=torch.float64)
        return values / values.sum()

    return probabilities


class TableModel:
    def __init__(self, table: Table, max_positions: int = 12) -> None:
        self.table = table
        self._positions = max_positions
        self.shape = Shape(
            layers=1,
            heads=1,
            kv_heads=1,
            head_dim=max_positions * VOCABULARY,
            vocab=VOCABULARY,
            max_positions=max_positions,
            dtype=torch.float64,
        )

    @property
    def width(self) -> int:
        return self._positions * VOCABULARY

    def forward(self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None) -> Tensor:
        return self.with_features(tokens, layout, wanted)[0]

    def with_features(
        self, tokens: Tensor, layout: Layout, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """A token's features are its whole prefix, one-hot by position."""
        n = len(tokens)
        values = torch.zeros(n, self._positions, VOCABULARY, dtype=torch.float64)
        values[torch.arange(n), layout.positions, tokens] = 1.0
        values = values.flatten(1)
        kv = torch.stack((torch.zeros_like(values), values), dim=1)  # [n, keys and values, dim]
        mean = attend(layout, 0, torch.zeros(n, 1, values.shape[1], dtype=torch.float64), kv)
        seen = mean.view(n, self._positions, VOCABULARY) * (layout.positions + 1)[:, None, None]
        features = seen.flatten(1)
        return self.logits(features if wanted is None else features[wanted]), features

    def logits(self, features: Tensor) -> Tensor:
        if not len(features):
            return torch.empty(0, VOCABULARY, dtype=torch.float64)
        seen = features.view(len(features), -1, VOCABULARY)
        prefixes = [_prefix(row, int(row.sum().round()) - 1) for row in seen]
        return torch.stack([self.table(prefix) for prefix in prefixes]).log()


class TableHead(TableModel):
    """A draft head: the feature before a token and the token make the feature, and the table reads it."""

    def draft(
        self, tokens: list[int], features: Tensor, spans: list[Span], cache: KVCache, wanted: list[int]
    ) -> tuple[Tensor, Tensor]:
        n, layout = len(tokens), Layout(spans, cache, self.shape.tile)
        zeros = torch.zeros(n, 2, self.shape.head_dim, dtype=torch.float64)
        attend(layout, 0, zeros[:, :1], zeros)  # the slots are written as a head's are
        after = features.view(n, -1, VOCABULARY).clone()
        # The slot of a token beside the feature at i is i; the token itself stands at i + 1.
        after[torch.arange(n), layout.positions + 1, tokens] = 1.0
        guessed = after.flatten(1)[wanted]
        return guessed, self.logits(guessed)

    def chains(self, count: int) -> bool:
        """It takes several calls, as one that is not quantised."""
        return False


class TableRecurrent(TableModel):
    """A recurrent head whose state is the prefix: a token makes the next, and the table reads it."""

    vocab = VOCABULARY

    def draft(self, states: Tensor, tokens: list[int]) -> tuple[Tensor, Tensor]:
        after = states.view(len(tokens), -1, VOCABULARY).clone()
        after[torch.arange(len(tokens)), after.sum((1, 2)).round().long(), tokens] = 1.0
        return after.flatten(1), self.logits(after.flatten(1))


class TableMedusa(TableModel):
    """Medusa heads: of each depth a distribution that knows the prefix before the root and nothing below."""

    vocab = VOCABULARY

    def predict(self, features: Tensor, depth: int) -> Tensor:
        prefixes = [
            _prefix(row, int(row.sum().round()) - 1) for row in features.view(len(features), -1, VOCABULARY)
        ]
        return torch.stack([self.table((*prefix, *[-1] * depth)) for prefix in prefixes]).log()


def _prefix(seen: Tensor, position: int) -> Prefix:
    """seen: [positions, V], which must be one token at each position up to the own one."""
    rows = seen.tolist()
    prefix = []
    for place, row in enumerate(rows):
        tokens = [token for token, value in enumerate(row) if abs(value - 1) < 1e-8]
        others = [value for value in row if abs(value) < 1e-8]
        if len(tokens) != (place <= position) or len(tokens) + len(others) != len(row):
            raise AssertionError(f"the token at position {position} sees {rows}")
        prefix += tokens
    return tuple(prefix)
