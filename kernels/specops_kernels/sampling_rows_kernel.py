"""Distributions that stay logits: the greatest of each row and the sum of its exponentials."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_sums(
    logits,  # [rows, vocab]
    stride,  # of a row
    temperature,  # [rows] float32
    peaks,  # [rows, tiles] float32
    sums,  # [rows, tiles] float32
    vocab,
    BLOCK: tl.constexpr,
):
    """Of every tile the greatest logit, and the sum of exponentials beside it. Grid (rows, tiles)."""
    row, tile = tl.program_id(0), tl.program_id(1)
    columns = tile * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(
        logits + row.to(tl.int64) * stride + columns, mask=columns < vocab, other=float("-inf")
    ).to(tl.float32)
    peak = tl.max(values, 0)
    pivot = tl.where(peak == float("-inf"), 0.0, peak)  # a tile that is cut away: -inf - -inf would be NaN
    at = row * tl.num_programs(1) + tile
    tl.store(peaks + at, peak)
    tl.store(sums + at, tl.sum(tl.exp((values - pivot) * (1 / tl.load(temperature + row))), 0))


@triton.jit
def combine(peaks, sums, temperature, peak, total, tiles, TILES: tl.constexpr):
    """The tiles of a row as one. Grid (rows,); TILES is a power of two."""
    row = tl.program_id(0)
    tile = tl.arange(0, TILES)
    tops = tl.load(peaks + row * tiles + tile, mask=tile < tiles, other=float("-inf"))
    parts = tl.load(sums + row * tiles + tile, mask=tile < tiles, other=0.0)
    top = tl.max(tops, 0)
    tl.store(peak + row, top)
    tl.store(total + row, tl.sum(parts * tl.exp((tops - top) * (1 / tl.load(temperature + row))), 0))


@triton.jit
def load_logits(rows, row, columns, vocab):
    """float32; -inf beyond the vocabulary. `rows`: Rows."""
    at = rows.logits + tl.cast(row, tl.int64) * rows.stride + columns
    return tl.load(at, mask=columns < vocab, other=float("-inf")).to(tl.float32)


@triton.jit
def probability(rows, row, logits):
    """What a row gives to the tokens with these of its logits."""
    sharpness = 1 / tl.load(rows.temperature + row)
    return tl.exp((logits - tl.load(rows.peak + row)) * sharpness) * (1 / tl.load(rows.total + row))
