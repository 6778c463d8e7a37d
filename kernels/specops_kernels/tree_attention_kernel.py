"""Tree attention on the device: every token of a ragged batch of trees over its sequence's KV cache.

The query heads that share a KV head and the tokens of a sequence are packed as the rows of one matrix, so
that a key is read once for all of them. Slots of the prefix need no mask; the tree's slots, and what is left
of the prefix beside them, take a mask of one 64-bit word a row. A sequence may be split among several
programs, whose partial results `combine` adds up (flash-decoding).
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

import triton
import triton.language as tl

from specops_kernels.addressing import place


@triton.jit
def visible_of(ancestors, rows, valid, words, first):
    """[rows] uint64: bit c is set where a row sees slot `first + c`, counted from its start.

    `first` is above -64; slots before the start are visible.
    """
    after = tl.maximum(first, 0)
    index, shift = after // 64, (after % 64).to(tl.uint64)
    at = ancestors + rows * words + index
    has_low, has_high = tl.where(index < words, valid, False), tl.where(index + 1 < words, valid, False)
    low = tl.load(at, mask=has_low, other=0).to(tl.uint64, bitcast=True)
    high = tl.load(at + 1, mask=has_high, other=0).to(tl.uint64, bitcast=True)
    word = (low >> shift) | ((high << 1) << (63 - shift))  # twice, since a shift by 64 is undefined
    before = tl.maximum(-first, 0).to(tl.uint64)
    return (word << before) | ((tl.full([1], 1, tl.uint64) << before) - 1)


@triton.jit
def fold(top, total, acc, scores, value, PRECISION: tl.constexpr):
    """Online softmax: the scores of one more tile, and its values, into what was accumulated so far."""
    higher = tl.maximum(top, tl.max(scores, 1))
    # Nothing accumulated yet: -inf - -inf would be NaN.
    pivot = tl.where(higher == float("-inf"), 0.0, higher)
    shrink = tl.exp2(top - pivot)
    weights = tl.exp2(scores - pivot[:, None])
    total = total * shrink + tl.sum(weights, 1)
    acc = tl.dot(weights.to(value.dtype), value, acc * shrink[:, None], input_precision=PRECISION)
    return higher, total, acc


# Not compiled anew when one of these happens to be 1 or a multiple of 16: a server would wait for it.
@triton.jit(do_not_specialize=["tokens", "pages", "words", "tiles_m"])
def attend(
    q,  # [n, heads, DIM]
    kv,  # [rows or pages, slots, 2 * kv_heads, DIM], keys before values
    out,  # [n, heads, DIM]; if PARTIAL [splits, n, heads, DIM] float32
    lse,  # if PARTIAL [splits, n, heads] float32: log2 of the sum of exponentials
    table,
    offsets,
    starts,
    stops,
    ancestors,
    scale,  # of the scores, times log2(e)
    tokens,  # n
    pages,  # of the table, a sequence
    words,
    tiles_m,  # of a sequence
    q_token,
    q_head,
    kv_page,
    kv_slot,
    kv_head,
    GROUP: tl.constexpr,  # query heads of a KV head
    DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,  # a power of two, at least DIM
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,  # at most 64: a tile's mask is one word a row
    PAGE: tl.constexpr,
    PARTIAL: tl.constexpr,
    PRODUCT: tl.constexpr,  # type in which matrices are multiplied
    PRECISION: tl.constexpr,  # "ieee" or "tf32", of float32
):
    # Tiles of one sequence and head run side by side: all but the first find its keys in the L2 cache.
    sequence, tile_m = tl.program_id(0) // tiles_m, tl.program_id(0) % tiles_m
    kv_of, kv_heads = tl.program_id(1), tl.num_programs(1)
    split, splits = tl.program_id(2), tl.num_programs(2)
    first_token = tl.load(offsets + sequence)
    count = tl.load(offsets + sequence + 1) - first_token
    if tile_m * BLOCK_M >= count * GROUP:
        return
    start, stop = tl.load(starts + sequence), tl.load(stops + sequence)

    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    valid = m < count * GROUP
    token = (first_token + m // GROUP).to(tl.int64)
    head = kv_of * GROUP + m % GROUP
    d = tl.arange(0, BLOCK_D)
    in_dim = d < DIM
    query = tl.load(
        q + token[:, None] * q_token + head[:, None] * q_head + d[None, :],
        mask=valid[:, None] & in_dim[None, :],
        other=0.0,
    ).to(PRODUCT)

    keys = kv + kv_of * kv_head + d[None, :]
    values = kv + (kv_heads + kv_of) * kv_head + d[None, :]
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)

    unmasked = start // BLOCK_N  # tiles that lie in the prefix as a whole
    each = tl.cdiv(tl.cdiv(stop, BLOCK_N), splits)
    low = split * each
    high = tl.minimum(low + each, tl.cdiv(stop, BLOCK_N))

    for tile in range(low, tl.minimum(high, unmasked)):
        slots = tile * BLOCK_N + tl.arange(0, BLOCK_N)
        at = place(table, sequence, slots, slots < stop, pages, kv_page, kv_slot, PAGE)[:, None]
        if BLOCK_D == DIM:
            key, value = tl.load(keys + at), tl.load(values + at)
        else:
            key = tl.load(keys + at, mask=in_dim[None, :], other=0.0)
            value = tl.load(values + at, mask=in_dim[None, :], other=0.0)
        scores = tl.dot(query, tl.trans(key.to(PRODUCT)), input_precision=PRECISION) * scale
        top, total, acc = fold(top, total, acc, scores, value.to(PRODUCT), PRECISION)

    for tile in tl.range(tl.maximum(low, unmasked), high, num_stages=1):
        slots = tile * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = slots < stop
        at = place(table, sequence, slots, inside, pages, kv_page, kv_slot, PAGE)[:, None]
        # Slots after the last hold anything, NaN included, which no weight of 0 would remove.
        present = inside[:, None] & in_dim[None, :]
        key = tl.load(keys + at, mask=present, other=0.0)
        value = tl.load(values + at, mask=present, other=0.0)
        visible = visible_of(ancestors, token, valid, words, tile * BLOCK_N - start)
        column = tl.arange(0, BLOCK_N)
        # In 32 bits from here on: 64 of them for each score would not fit the registers.
        low_half, high_half = visible.to(tl.uint32), (visible >> 32).to(tl.uint32)
        half = tl.where((column < 32)[None, :], low_half[:, None], high_half[:, None])
        bits = (half >> (column % 32).to(tl.uint32)[None, :]) & 1
        scores = tl.dot(query, tl.trans(key.to(PRODUCT)), input_precision=PRECISION) * scale
        scores = tl.where(bits != 0, scores, float("-inf"))
        top, total, acc = fold(top, total, acc, scores, value.to(PRODUCT), PRECISION)

    some = total > 0  # a split may have had nothing to show to some rows
    total = tl.where(some, total, 1.0)
    acc = acc / total[:, None]
    heads = kv_heads * GROUP
    row = token * heads + head
    if PARTIAL:
        row += split.to(tl.int64) * tokens * heads
        tl.store(lse + row, tl.where(some, top + tl.log2(total), float("-inf")), mask=valid)
    at_out = out + row[:, None] * DIM + d[None, :]
    tl.store(at_out, acc.to(out.dtype.element_ty), mask=valid[:, None] & in_dim[None, :])


@triton.jit(do_not_specialize=["rows", "splits"])
def combine(
    partial,  # [splits, rows, DIM] float32, a row for each token and head
    lse,  # [splits, rows]
    out,  # [rows, DIM]
    rows,
    splits,
    SPLITS: tl.constexpr,  # a power of two, at least splits
    DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Means of the splits' results, weighted by how much each of them saw."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLITS)
    d = tl.arange(0, BLOCK_D)
    size = tl.load(lse + split * rows + row, mask=split < splits, other=float("-inf"))
    top = tl.max(size, 0)
    weight = tl.exp2(size - tl.where(top == float("-inf"), 0.0, top))
    total = tl.sum(weight, 0)
    parts = tl.load(
        partial + (split[:, None] * rows + row) * DIM + d[None, :],
        mask=(split < splits)[:, None] & (d < DIM)[None, :],
        other=0.0,
    )
    mean = tl.sum(parts * weight[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(out + row * DIM + d, mean.to(out.dtype.element_ty), mask=d < DIM)
