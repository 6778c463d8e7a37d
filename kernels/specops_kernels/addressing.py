"""Addresses of slots in a slotted and in a paged cache: what every kernel that reads one asks."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def place(table, sequence, slots, inside, pages, kv_page, kv_slot, PAGE: tl.constexpr):
    """Elements from the beginning of a layer to `slots` of a sequence, int64.

    table: [B] rows if PAGE is 0, else [B, pages] pages of PAGE slots; read only where `inside`
    kv_page, kv_slot: elements from a row or page to the next, and from a slot to the next
    """
    if PAGE == 0:
        row = tl.load(table + sequence).to(tl.int64)
        return row * kv_page + slots.to(tl.int64) * kv_slot
    page = tl.load(table + sequence * pages + slots // PAGE, mask=inside, other=0).to(tl.int64)
    return page * kv_page + (slots % PAGE).to(tl.int64) * kv_slot
