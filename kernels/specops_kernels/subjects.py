"""The kernels as they are compiled ahead of time: launches whose registers and shared memory have budgets.

Each is what the wrappers choose for its target, so that a budget is of what runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton.language as tl

from specops_kernels.aot import Subject
from specops_kernels.configuration import padded, tiles
from specops_kernels.device import Family
from specops_kernels.gather import BLOCK
from specops_kernels.gather_kernel import gather
from specops_kernels.tree_attention_kernel import attend, combine
from specops_kernels.verify_subjects import verification

FAMILY: dict[str, Family] = {"sm_80": "ampere", "sm_90": "hopper", "sm_100": "hopper", "gfx942": "cdna"}

TYPES: dict[torch.dtype, tuple[str, Any]] = {
    torch.bfloat16: ("bf16", tl.bfloat16),
    torch.float16: ("fp16", tl.float16),
    torch.float32: ("fp32", tl.float32),
}

INTEGER = "i32"


def subjects(target: str) -> Iterator[Subject]:
    """Every launch with a budget on a target of `aot.TARGETS`."""
    for rows in (16, 32, 64, 128):
        yield tree_attention(target, torch.bfloat16, 128, rows)
    yield tree_attention(target, torch.bfloat16, 128, 64, page=16, partial=True)
    yield tree_attention(target, torch.float16, 128, 128)
    yield tree_attention(target, torch.bfloat16, 64, 128)
    yield tree_attention(target, torch.bfloat16, 256, 64)
    yield tree_attention(target, torch.float32, 128, 16)
    yield combination()
    yield compaction()
    yield from verification()


def tree_attention(
    target: str, dtype: torch.dtype, head_dim: int, rows: int, page: int = 0, partial: bool = False
) -> Subject:
    """Four query heads a KV head. rows: tokens of the longest tree times four."""
    chosen = tiles(dtype, head_dim, rows, FAMILY[target])
    short, product = TYPES[dtype]
    result = "*fp32" if partial else f"*{short}"
    kind = ", paged" * bool(page) + ", split" * partial
    return Subject(
        name=f"tree attention {short}, heads of {head_dim}, {rows} rows{kind}",
        kernel=attend,
        types={
            "q": f"*{short}",
            "kv": f"*{short}",
            "out": result,
            "lse": result,
            **dict.fromkeys(("table", "offsets", "starts", "stops"), "*i32"),
            "ancestors": "*i64",
            "scale": "fp32",
            **dict.fromkeys(("tokens", "pages", "words", "tiles_m"), INTEGER),
            **dict.fromkeys(("q_token", "q_head", "kv_page", "kv_slot", "kv_head"), INTEGER),
        },
        constants={
            "GROUP": 4,
            "DIM": head_dim,
            "BLOCK_D": padded(head_dim),
            "BLOCK_M": chosen.block_m,
            "BLOCK_N": chosen.block_n,
            "PAGE": page,
            "PARTIAL": partial,
            "PRODUCT": product,
            "PRECISION": "ieee",
        },
        divisible=frozenset(("q_token", "q_head", "kv_page", "kv_slot", "kv_head")),
        warps=chosen.warps,
        stages=chosen.stages,
    )


def combination() -> Subject:
    return Subject(
        name="combination of 8 splits bf16, heads of 128",
        kernel=combine,
        types={"partial": "*fp32", "lse": "*fp32", "out": "*bf16", "rows": INTEGER, "splits": INTEGER},
        constants={"SPLITS": 8, "DIM": 128, "BLOCK_D": 128},
        warps=1,
    )


def compaction() -> Subject:
    return Subject(
        name="KV gather bf16",
        kernel=gather,
        types={
            "cache": "*bf16",
            **dict.fromkeys(("table", "starts", "offsets", "sources"), "*i32"),
            **dict.fromkeys(("pages", "layer_stride", "kv_page", "kv_slot", "width"), INTEGER),
        },
        constants={"PAGE": 0, "BLOCK": BLOCK},
        divisible=frozenset(("layer_stride", "kv_page", "kv_slot", "width")),
    )
