"""Distributions that stay logits: what a token's probability takes beside its logit is two numbers a row.

A softmax would write [rows, V] and read it again; here the logits are read once, in parallel over all rows
and tiles, and after that only where verification looks.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from specops_kernels.sampling_rows_kernel import combine, tile_sums
from specops_kernels.verify_tiles import tile_of, warps

TILE = 8192
"""Columns a program reads at once."""


class Rows(NamedTuple):
    """softmax(logits[r] / temperature[r]) = exp((logits[r] - peak[r]) / temperature[r]) / total[r]."""

    logits: Tensor  # [R, V], in any floating type; -inf where top-k or top-p cut
    stride: int  # of a row, in elements
    temperature: Tensor  # [R] float32, above 0
    peak: Tensor  # [R] float32
    total: Tensor  # [R] float32

    @staticmethod
    def of(logits: Tensor, temperature: Tensor, *, tile: int = TILE) -> Rows:
        """logits: [R, V], each row with at least one finite logit and none that is inf or NaN"""
        if logits.dim() != 2 or logits.stride(1) != 1:
            raise ValueError(f"logits {tuple(logits.shape)} are not [R, V] with contiguous rows")
        if temperature.shape != logits.shape[:1] or temperature.dtype != torch.float32:
            raise ValueError(f"the temperature must be [{len(logits)}] float32, one for each row")
        rows, vocab = logits.shape
        tile = tile_of(vocab, tile)
        tiles = cdiv(vocab, tile)
        peaks, sums = (logits.new_empty(rows, tiles, dtype=torch.float32) for _ in range(2))
        peak, total = (logits.new_empty(rows, dtype=torch.float32) for _ in range(2))
        if rows:  # a batch of bare roots has no draft
            tile_sums[(rows, tiles)](
                logits,
                logits.stride(0),
                temperature,
                peaks,
                sums,
                vocab,
                BLOCK=tile,
                num_warps=warps(tile),
            )
            combine[(rows,)](
                peaks, sums, temperature, peak, total, tiles, TILES=next_power_of_2(tiles), num_warps=1
            )
        return Rows(logits, logits.stride(0), temperature, peak, total)
