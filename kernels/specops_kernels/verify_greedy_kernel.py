"""Greedy verification on the device: the most likely token of every tile of every row, then the walk.

The walk is a handful of loads, so that every program of a sequence does it by itself, and moves its own part
of the accepted nodes' keys and values on the way. Nothing waits for anything.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_argmax(
    logits,  # [rows, vocab]
    stride,  # of a row
    best,  # [rows, tiles] float32
    index,  # [rows, tiles] int32
    vocab,
    BLOCK: tl.constexpr,
):
    """Of every tile the greatest logit, and the first column that has it. Grid (rows, tiles)."""
    row, tile = tl.program_id(0), tl.program_id(1)
    columns = tile * BLOCK + tl.arange(0, BLOCK)
    inside = columns < vocab
    values = tl.load(logits + row.to(tl.int64) * stride + columns, mask=inside, other=float("-inf"))
    values = values.to(tl.float32)
    values = tl.where(values == values, values, float("-inf"))  # a NaN must not name a token that is none
    top = tl.max(values, 0)
    at = row * tl.num_programs(1) + tile
    tl.store(best + at, top)
    tl.store(index + at, tl.min(tl.where(inside & (values == top), columns, vocab), 0))


@triton.jit(do_not_specialize=["depth"])
def verify_and_compact(
    best,
    index,
    tiles,
    nodes,  # Nodes
    path,  # [B, depth] int32
    depth,
    length,  # [B] int32
    bonus,  # [B] int32
    kv,  # [layers, rows, capacity, SLOT]
    kv_rows,  # [B] int32: the cache row of a sequence
    starts,  # [B] int32: the slot of its root
    kv_layer,
    kv_row,
    kv_slot,
    parts,  # of a slot in one layer
    TILES: tl.constexpr,  # power of two
    WIDTH: tl.constexpr,  # power of two; turns of a node
    SLOT: tl.constexpr,  # elements; 0: there is no cache
    BLOCK: tl.constexpr,
):
    """Walk along the target's own choices. Grid (B, layers * parts), or (B, 1) without a cache."""
    sequence, part = tl.program_id(0), tl.program_id(1)
    root = tl.load(nodes.first + sequence)
    if SLOT > 0:
        within = (part % parts) * BLOCK + tl.arange(0, BLOCK)
        layer, row = (part // parts).to(tl.int64), tl.load(kv_rows + sequence).to(tl.int64)
        slots = kv + layer * kv_layer + row * kv_row + within
        start = tl.load(starts + sequence)
    tile, lane = tl.arange(0, TILES), tl.arange(0, WIDTH)
    node, accepted, wanted = root, 0, -1
    walking = True
    while walking:
        values = tl.load(best + node * tiles + tile, mask=tile < tiles, other=float("-inf"))
        columns = tl.load(index + node * tiles + tile, mask=tile < tiles, other=0x7FFFFFFF)
        wanted = tl.min(tl.where(values == tl.max(values, 0), columns, 0x7FFFFFFF), 0)
        turns = tl.load(nodes.turns + node) + lane
        inside = turns < tl.load(nodes.turns + node + 1)
        tokens = tl.load(nodes.tokens + turns, mask=inside, other=-1)
        children = tl.load(nodes.children + turns, mask=inside, other=0x7FFFFFFF)
        child = tl.min(tl.where(tokens == wanted, children, 0x7FFFFFFF), 0)
        walking = child < 0x7FFFFFFF
        if walking:
            node = child
            if part == 0:
                tl.store(path + sequence * depth + accepted, node - root)
            accepted += 1
            if SLOT > 0:
                # In place and upward: a slot is written at or below the one that is read, which lies below
                # those that are still to be read.
                source, goal = (start + node - root).to(tl.int64), (start + accepted).to(tl.int64)
                if source != goal:
                    moved = tl.load(slots + source * kv_slot, mask=within < SLOT)
                    tl.store(slots + goal * kv_slot, moved, mask=within < SLOT)
    if part == 0:
        tl.store(length + sequence, accepted)
        tl.store(bonus + sequence, wanted)
        while accepted < depth:
            tl.store(path + sequence * depth + accepted, -1)
            accepted += 1
