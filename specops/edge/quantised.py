"""Draft distributions in whole numbers: what children are drawn from here is to the last bit what the server
takes them to be drawn from, so that the residual after a rejection is exact.

Truncation costs acceptance, never correctness: a verifier is lossless for whatever q the children came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specops.edge.proposal import Drawn
from specops.engine.chance import Chance

WHOLE = 1 << 14
"""What weights add up to. A power of two, so that weight / WHOLE is exact in float32; and this one, since
weights below it take two bytes on the wire."""


@dataclass(frozen=True)
class Quantised:
    """A distribution over few tokens: tokens[i] with the probability weights[i] / WHOLE."""

    tokens: tuple[int, ...]  # ascending
    weights: tuple[int, ...]  # at least 1, WHOLE in all

    def draw(self, chance: Chance, count: int) -> list[int]:
        """Up to `count` of its tokens, without replacement, in the order drawn."""
        places = chance.draw(torch.tensor(self.weights, dtype=torch.float64), count, replace=False)
        return [self.tokens[place] for place in places]

    def of(self, node: int) -> Drawn:
        """As it goes over the wire, of a node of the proposal."""
        return Drawn(node, self.tokens, self.weights)


def quantise(q: Tensor, support: int) -> list[Quantised]:
    """[n, V] probabilities -> the `support` likeliest tokens of each row, but for those that round to 0."""
    best = q.topk(min(support, q.shape[-1]), -1)
    values = best.values.double()
    weights = (values / values.sum(-1, keepdim=True) * WHOLE).long()
    weights[:, 0] += WHOLE - weights.sum(-1)  # what rounding down left over; the likeliest is never without
    return [
        _ascending(tokens, row) for tokens, row in zip(best.indices.tolist(), weights.tolist(), strict=True)
    ]


def _ascending(tokens: list[int], weights: list[int]) -> Quantised:
    kept = sorted((token, weight) for token, weight in zip(tokens, weights, strict=True) if weight > 0)
    return Quantised(tuple(token for token, _ in kept), tuple(weight for _, weight in kept))


class Told:
    """By node of a tree, what its children were drawn from, as a client says.

    Vocabularies are long and paths short: a distribution is laid out when its node is asked for.
    """

    def __init__(self, drawn: Sequence[Drawn], vocabulary: int) -> None:
        self._drawn = {each.node: each for each in drawn}
        self._vocabulary = vocabulary

    def __getitem__(self, node: int) -> tuple[Tensor, ...]:
        drawn = self._drawn.get(node)
        return () if drawn is None else (laid_out(drawn, self._vocabulary),)


def laid_out(drawn: Drawn, vocabulary: int) -> Tensor:
    """[V] float32."""
    q, weights = torch.zeros(vocabulary), np.array(drawn.weights, dtype=np.float64)
    q.numpy()[np.array(drawn.tokens)] = weights / sum(drawn.weights)  # for so few, faster than tensors
    return q
