"""What a matrix makes of each token: looked up where a table of all tokens is small, else multiplied."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from specops.engine.linear import Linear

LARGEST = 2**28
"""Bytes of a table."""


class TokenTable:
    def __init__(self, vectors: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
        """vectors [vocab, width], float32; weight [out, width]; bias [out]."""
        self._multiply = None
        self._rows = vectors
        if len(vectors) * len(weight) * vectors.element_size() <= LARGEST:
            self._rows = vectors @ weight.t() if bias is None else vectors @ weight.t() + bias
        else:
            self._multiply = Linear(weight, bias)

    @property
    def rows(self) -> Tensor | None:
        """[vocab, out], where it is looked up."""
        return self._rows if self._multiply is None else None

    def __call__(self, tokens: Tensor) -> Tensor:
        """[n] -> [n, out]"""
        rows = F.embedding(tokens, self._rows)
        return rows if self._multiply is None else self._multiply(rows)
