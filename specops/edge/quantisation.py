"""Draft distributions in integers: the client draws from exactly the distribution that the server assumes, so
that the residual after a rejection is exact.

Truncation costs acceptance, never correctness: a verifier is lossless for any q that the children were drawn
from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specops.edge.link import TOKEN, WEIGHT, DrawDistributions
from specops.engine.rng import Chance

Tokens: TypeAlias = NDArray[np.uint32]
Weights: TypeAlias = NDArray[np.uint16]

WHOLE = 1 << 14
"""Sum of the weights. A power of two, so that weight / WHOLE is exact in float32; 16 bits hold it."""


@dataclass(frozen=True)
class Quantised:
    """A distribution over few tokens: tokens[i] with the probability weights[i] / WHOLE."""

    tokens: tuple[int, ...]  # ascending
    weights: tuple[int, ...]  # at least 1, WHOLE in all

    def draw(self, chance: Chance, count: int) -> list[int]:
        """Draw up to `count` of its tokens, without replacement, and return them in the order drawn."""
        places = chance.draw(torch.tensor(self.weights, dtype=torch.float64), count, replace=False)
        return [self.tokens[place] for place in places]


def quantise(q: Tensor, support: int) -> list[Quantised]:
    """The `support` likeliest tokens of each row of q, [n, V], without those whose weight rounds to 0."""
    best = q.topk(min(support, q.shape[-1]), -1)
    values = best.values.double()
    weights = (values / values.sum(-1, keepdim=True) * WHOLE).long()
    weights[:, 0] += WHOLE - weights.sum(-1)  # what rounding down left over; the likeliest is never without
    return [
        _ascending(tokens, row) for tokens, row in zip(best.indices.tolist(), weights.tolist(), strict=True)
    ]


def _ascending(tokens: list[int], weights: list[int]) -> Quantised:
    retained = sorted((token, weight) for token, weight in zip(tokens, weights, strict=True) if weight > 0)
    return Quantised(tuple(token for token, _ in retained), tuple(weight for _, weight in retained))


def joined(by_node: Mapping[int, Quantised]) -> DrawDistributions:
    """The distributions, by node of the proposal, in the form of the protocol."""
    distributions = by_node.values()
    tokens = np.array([token for q in distributions for token in q.tokens], TOKEN)
    weights = np.array([weight for q in distributions for weight in q.weights], WEIGHT)
    return DrawDistributions(
        tuple(by_node), tuple(len(q.tokens) for q in distributions), tokens.tobytes(), weights.tobytes()
    )


class ClientDistributions:
    """The distributions that a client's children were drawn from, by node of a tree.

    Vocabularies are long and paths short, so a dense distribution is made when its node is requested.
    """

    def __init__(self, drawn: DrawDistributions, vocabulary: int) -> None:
        self._tokens, self._weights = np.frombuffer(drawn.tokens, TOKEN), np.frombuffer(drawn.weights, WEIGHT)
        self._places = dict(zip(drawn.nodes, pairwise(accumulate(drawn.sizes, initial=0)), strict=True))
        self._vocabulary = vocabulary

    def __getitem__(self, node: int) -> tuple[Tensor, ...]:
        if node not in self._places:
            return ()
        place = slice(*self._places[node])
        return (laid_out(self._tokens[place], self._weights[place], self._vocabulary),)


def laid_out(tokens: Tokens, weights: Weights, vocabulary: int) -> Tensor:
    """The dense distribution, [V] float32."""
    q = torch.zeros(vocabulary)
    q.numpy()[tokens] = weights / weights.sum(dtype=np.float64)  # for so few, faster than tensors
    return q
