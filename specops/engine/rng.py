"""The engine's randomness: one source for each sequence.

Drafters and verifiers use only `Chance`. So a test can replace it by a source that enumerates every possible
answer with its weight, and compute the distribution of the output exactly.
"""

from __future__ import annotations

import math
import random
from typing import Protocol

import torch
from torch import Tensor

from specops.engine.cpu import ops
from specops.engine.request import Sampling
from specops.errors import NotFinite


def all_finite(values: Tensor) -> bool:
    """Return whether no value is a NaN or an infinity."""
    if values.is_cpu and values.dtype == torch.float32 and values.is_contiguous():
        return ops.all_finite(values)
    # One sum shows it, at a fifth of the time of a test of each value; but a sum may overflow.
    return math.isfinite(values.sum().item()) or bool(values.isfinite().all())


def are_distributions(logits: Tensor) -> bool:
    """Return whether softmax is defined for each row of [n, V] logits. A draft may give a token the
    probability 0, which is the logit -inf."""
    if logits.is_cpu and logits.dtype == torch.float32 and logits.is_contiguous():
        return ops.are_distributions(logits)
    return bool(logits.amax(-1).isfinite().all())


class Chance(Protocol):
    """A source of random decisions. Each raises NotFinite for what is not a probability or a distribution:
    comparisons would let a NaN pass."""

    def accept(self, probability: float) -> bool:
        """True with the given probability."""

    def sample(self, weights: Tensor) -> int:
        """An index of [V], in proportion to its weight; at least one weight is positive."""

    def draw(self, q: Tensor, count: int, *, replace: bool) -> list[int]:
        """`count` successive draws from q, [V]. Without replacement there are fewer if q has fewer tokens."""


class Dice:
    """A source of pseudo-random numbers, reproducible by its seed."""

    def __init__(self, seed: int | None) -> None:
        """seed: None for fresh entropy."""
        self._random = random.Random(seed)

    def accept(self, probability: float) -> bool:
        if not probability >= 0:
            raise NotFinite(f"could not accept with the probability {probability}")
        return self._random.random() < probability

    def several(self, count: int) -> list[float]:
        """`count` random numbers in [0, 1): those that as many calls of `accept` or `sample` would use."""
        return [self._random.random() for _ in range(count)]

    def sample(self, weights: Tensor) -> int:
        # By the inverse of the cumulated weights: one random number, where a race of all tokens takes V of
        # them and six times as long. In float64, or a token far out in the tail would fall between two steps.
        if weights.is_cpu and weights.dtype == torch.float32 and weights.is_contiguous():
            return ops.sample(weights, self._random.random())
        cumulated = weights.cumsum(0, dtype=torch.float64)
        total = float(cumulated[-1])
        if not 0 < total < math.inf:
            raise NotFinite(f"could not sample from weights with the sum {total}")
        aimed = self._random.random() * total
        index = int(torch.searchsorted(cumulated, aimed, right=True))
        return index if index < len(weights) else int(weights.nonzero()[-1])  # the product was rounded up

    def draw(self, q: Tensor, count: int, *, replace: bool) -> list[int]:
        if replace or count == 1:
            return [self.sample(q) for _ in range(count)]
        left, drawn = q.clone(), []
        for _ in range(min(count, int(q.count_nonzero()))):
            token = self.sample(left)
            drawn.append(token)
            left[token] = 0.0
        return drawn


class Distributions:
    """The target's distribution after each node of a tree, computed when it is needed.

    In a large tree, verification walks one path, so that softmax and the sort of top-p of other nodes would
    be wasted. In a small one it needs most nodes, and one call for all takes less time than two.
    """

    def __init__(self, logits: Tensor, sampling: Sampling) -> None:
        """logits: [n, V], after each of n nodes."""
        self._logits = logits  # [n, V]
        self._sampling = sampling
        self._all = distribution(logits, sampling) if len(logits) <= FEW else None
        """[n, V], of few nodes."""

    def __getitem__(self, node: int) -> Tensor:
        """The distribution after `node`, [V]."""
        if self._all is not None:
            return self._all[node]
        return distribution(self._logits[node : node + 1], self._sampling)[0]


FEW = 8


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities [n, V] of logits [n, V], after temperature, top-k and top-p. The temperature must be
    above 0."""
    if sampling.temperature != 1:
        logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        least = logits.topk(sampling.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    probabilities = logits.softmax(-1)
    if sampling.top_p < 1.0:
        ordered, order = probabilities.sort(dim=-1, descending=True)
        # Retained while the mass before a token is short of top_p; the most likely one always stays.
        dropped = ordered.cumsum(-1) - ordered >= sampling.top_p
        dropped[..., 0] = False
        probabilities = probabilities.masked_fill(dropped.scatter(-1, order, dropped), 0.0)
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    return probabilities
