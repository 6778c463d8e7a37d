"""The accepted slots of every sequence, in every layer, moved to where they belong: one launch."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

import triton
import triton.language as tl

from specops_kernels.addressing import place


@triton.jit(do_not_specialize=["pages"])
def gather(
    cache,  # [layers, rows or pages, slots, width]
    table,
    starts,  # [B] first slot to move to
    offsets,  # [B + 1] of each sequence in `sources`
    sources,  # slots to move, ascending, none before where it goes
    pages,
    layer_stride,
    kv_page,
    kv_slot,
    width,  # elements of a slot
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program moves its elements of one sequence's slots in one layer, one slot after the other.

    In place: slot i goes to start + i <= sources[i] < sources[i + 1], so that no slot is written before it
    was read, and no other program touches these elements.
    """
    sequence = tl.program_id(0)
    element = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = element < width
    at = cache + tl.program_id(1).to(tl.int64) * layer_stride + element
    target = tl.load(starts + sequence)
    for index in range(tl.load(offsets + sequence), tl.load(offsets + sequence + 1)):
        source = tl.load(sources + index)
        moved = tl.load(at + place(table, sequence, source, True, pages, kv_page, kv_slot, PAGE), mask=inside)
        tl.store(at + place(table, sequence, target, True, pages, kv_page, kv_slot, PAGE), moved, mask=inside)
        target += 1
