"""The verification kernels as they are compiled ahead of time."""

from __future__ import annotations

from collections.abc import Iterator

from specops_kernels import sampling, sampling_rows, verify_greedy
from specops_kernels.aot import Subject
from specops_kernels.sampling_multi_step_kernel import multi_step
from specops_kernels.sampling_rows_kernel import combine, tile_sums
from specops_kernels.sampling_traversal_kernel import traversal
from specops_kernels.verify_greedy_kernel import tile_argmax, verify_and_compact
from specops_kernels.verify_tiles import warps
from specops_kernels.verify_trees import Nodes

VOCABULARY = 128256
SLOT = 2048
"""Elements: 8 KV heads of 128 dimensions, keys and values."""


def verification() -> Iterator[Subject]:
    """Return the subjects of verification, with logits and a cache in bfloat16; the same on every target."""
    yield Subject(
        name="greatest logits bf16",
        kernel=tile_argmax,
        types={"logits": "*bf16", "stride": "i32", "best": "*fp32", "index": "*i32", "vocab": "i32"},
        constants={"BLOCK": verify_greedy.TILE},
        divisible=frozenset(("stride", "vocab")),
        warps=warps(verify_greedy.TILE),
    )
    yield Subject(
        name="greedy walk and commit bf16",
        kernel=verify_and_compact,
        types={
            "best": "*fp32",
            "index": "*i32",
            "nodes": Nodes._make(["*i32"] * 7),
            "kv": "*bf16",
            **dict.fromkeys(("path", "length", "bonus", "kv_rows", "starts"), "*i32"),
            **dict.fromkeys(("tiles", "depth", "kv_layer", "kv_row", "kv_slot", "parts"), "i32"),
        },
        constants={"TILES": 16, "WIDTH": 8, "SLOT": SLOT, "BLOCK": verify_greedy.MOVED},
        divisible=frozenset(("kv_layer", "kv_row", "kv_slot")),
    )
    yield Subject(
        name="sums of exponentials bf16",
        kernel=tile_sums,
        types={
            "logits": "*bf16",
            **dict.fromkeys(("stride", "vocab"), "i32"),
            **dict.fromkeys(("temperature", "peaks", "sums"), "*fp32"),
        },
        constants={"BLOCK": sampling_rows.TILE},
        divisible=frozenset(("stride", "vocab")),
        warps=warps(sampling_rows.TILE),
    )
    yield Subject(
        name="sums of rows",
        kernel=combine,
        types={**dict.fromkeys(("peaks", "sums", "temperature", "peak", "total"), "*fp32"), "tiles": "i32"},
        constants={"TILES": 16},
        warps=1,
    )
    rows = sampling_rows.Rows._make(["*bf16", "i32", "*fp32", "*fp32", "*fp32"])
    common = {
        "target": rows,
        "draft": rows,
        "nodes": Nodes._make(["*i32"] * 7),
        "drafts": sampling.Drafts._make(["*fp32"] * 2),
        "uniforms": "*fp64",
        **dict.fromkeys(("path", "length", "bonus"), "*i32"),
        **dict.fromkeys(("questions", "depth"), "i32"),
    }
    opened = sampling.Open._make(["*i32", "*fp32", "*fp32"])
    for name, kernel, types in (
        ("multi-step sampling bf16", multi_step, common),
        ("traversal bf16", traversal, {**common, "open_nodes": opened}),
    ):
        yield Subject(
            name=name,
            kernel=kernel,
            types=types,
            constants={"VOCAB": VOCABULARY, "REPLACE": False, "BLOCK": sampling.TILE},
            divisible=frozenset(("target.stride", "draft.stride")),
            warps=warps(sampling.TILE, sampling.WARPS),
        )
