"""Draft heads' passes over few tokens as one compiled call each, or one for all of a chain: what
compiled.py is handed."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specops.engine import compiled
from specops.engine.compiled import Scratch
from specops.engine.layouts import ROWS

SMALL = 2**23
"""Weights."""


class Quantised:
    """The matrices of a pass that is one call: an int8 a weight, a float32 a row.

    Their time is that of reading them, and a draft may be a little off.
    """

    def __init__(self, *matrices: Tensor) -> None:
        """[out, in] each."""
        self.shapes = [tuple(matrix.shape) for matrix in matrices]
        scales = [matrix.abs().amax(1) / 127 for matrix in matrices]
        scales = [torch.where(scale > 0, scale, 1.0).float() for scale in scales]
        rounded = [(m / scale[:, None]).round() for m, scale in zip(matrices, scales, strict=True)]
        self._kept = [(_in_pairs(m.to(torch.int8)), scale) for m, scale in zip(rounded, scales, strict=True)]
        self.addresses = torch.tensor([[m.data_ptr(), scale.data_ptr()] for m, scale in self._kept])
        """[matrices, 2]: of the weights, and of the rows' scales."""
        self.short = torch.empty(max(count for _, count in self.shapes) + 1, dtype=torch.int16)
        """Room for what they are multiplied with."""
        self.scratch = Scratch()

    @classmethod
    def of_small(cls, *matrices: Tensor) -> Quantised | None:
        """None where products take so long that calls between them do not count, and threads would."""
        return cls(*matrices) if sum(matrix.numel() for matrix in matrices) <= SMALL else None


def _in_pairs(matrix: Tensor) -> Tensor:
    """[out, in] -> [blocks, pairs, ROWS, 2], filled up with zeros: as compiled.py reads it."""
    out, count = matrix.shape
    filled = F.pad(matrix, (0, count % 2, 0, -out % ROWS))
    return filled.view(len(filled) // ROWS, ROWS, -1, 2).transpose(1, 2).contiguous()


def recurrent(state: Tensor, token: Tensor, of: Quantised) -> tuple[Tensor, Tensor]:
    """A recurrent head's pass over one token (heads/) -> the next state [1, width], [1, V] logits.

    state [1, width]; token [1, width + 2 * inter], what the head makes of it. `of`: R, D, the output layer.
    """
    (width, inter), (vocab, _) = of.shapes[1:]
    after, logits = state.new_empty(1, width), state.new_empty(1, vocab)
    scratch = of.scratch.address(ROWS + width + 3 * inter)
    compiled.recurrent(
        *(state.data_ptr(), token.data_ptr(), of.addresses.data_ptr(), scratch),
        of.short.data_ptr(),
        *(after.data_ptr(), logits.data_ptr(), width, inter, vocab),
    )
    return after, logits


@dataclass(frozen=True)
class Fed:
    """n tokens of one sequence, as an EAGLE head reads them."""

    entered: Tensor  # [n, width + queries + keys + values], what the head makes of them; overwritten
    features: Tensor  # [n, width] of the positions before them
    positions: Tensor  # [n]
    cache: Tensor  # [capacity, 2 * kv_heads, dim], of the sequence
    start: int  # the slot that the first of them goes to; the others follow
    sees: Tensor  # [n, last] bool, of the last slots


class EaglePasses:
    """What an EAGLE head (heads/) makes of the last of the tokens that it is fed; of those before it keys
    and values alone are made."""

    def __init__(
        self,
        of: Quantised,
        norm: Tensor,
        eps: float,
        rope: Tensor,
        kv_heads: int,
        head_dim: int,
        table: Tensor | None,
    ) -> None:
        """`of`: what it makes of features, keys and values apart, its output projection, gate and up, down,
        and the output layer. rope: [positions, 1, head_dim / 2] complex. table: [V, width + queries + keys
        + values], what it makes of every token; None where there is no such table."""
        (self._width, queries), (_, self._inter), (self._vocab, _) = of.shapes[2], of.shapes[4], of.shapes[5]
        self._of, self._norm, self._eps, self._rope, self._table = of, norm, eps, rope, table
        self._tile = queries // head_dim // kv_heads
        entered = self._width + queries + 2 * kv_heads * head_dim
        self._scratch = ROWS + entered + 2 * queries + self._width + 3 * self._inter
        self._call = compiled.eagle_of(queries // head_dim, kv_heads, head_dim)

    @property
    def draws(self) -> bool:
        """Whether there is a `chain`."""
        return self._table is not None

    def guess(self, fed: Fed) -> tuple[Tensor, Tensor]:
        """The guess, [1, width], and [1, V] logits."""
        return self._run(fed, 1, (0, None, 0, 0.0, 0.0, None, None, None))

    def chain(
        self, fed: Fed, dice: list[float], *, temperature: float, worth: float
    ) -> tuple[list[int], Tensor]:
        """A token drawn by the first of the `dice`, [0, 1), after a pass; another by the next, after a pass
        over that token beside the guess; and so on -> the tokens, and [those, V], what each was drawn from.

        temperature: 0 is greedy, and leaves the second empty. worth: when the odds that all so far are
        accepted (adaptive.py) are below it, nothing follows; 0 draws all.
        """
        assert self._table is not None
        most = len(dice)
        q, drawn = fed.features.new_empty(most, self._vocab), (ctypes.c_int64 * (1 + most))()
        chances, final = (ctypes.c_double * most)(*dice), len(self._rope) - 1
        table, into = self._table.data_ptr(), q.data_ptr()
        self._run(fed, most, (most, table, final, temperature, worth, chances, into, drawn))
        return drawn[1 : 1 + drawn[0]], q[: drawn[0]]

    def _run(self, fed: Fed, passes: int, drawing: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        of, features = self._of, fed.features
        n, last = fed.sees.shape
        guess, logits = features.new_empty(1, self._width), features.new_empty(1, self._vocab)
        scratch = of.scratch.address(self._scratch + (self._tile + 1) * (fed.start + n + passes - 1))
        self._call(
            *(fed.entered.data_ptr(), features.data_ptr(), of.addresses.data_ptr()),
            *(self._norm.data_ptr(), self._eps, self._rope.data_ptr(), fed.positions.data_ptr()),
            *(fed.cache.data_ptr(), fed.sees.data_ptr(), scratch, of.short.data_ptr()),
            *(guess.data_ptr(), logits.data_ptr(), fed.start, n, last),
            *(self._width, self._inter, self._vocab, *drawing),
        )
        return guess, logits
