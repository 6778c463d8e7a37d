"""Greedy verification (SpecInfer, arXiv 2305.09781, VerifyGreedy) and the commit of the KV cache, fused.

Two launches: one reads the logits, and one walks and moves. The floor of the first is the logits' bytes; that
of the second, twice the moved slots' bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from specops_kernels.verify_greedy_kernel import tile_argmax, verify_and_compact
from specops_kernels.verify_tiles import tile_of, warps
from specops_kernels.verify_trees import PackedTrees, Verified

TILE = 8192
"""Columns a program reads at once: 32 values a thread, so that enough of them are on their way."""

MOVED = 2048
"""Elements of a slot that a program moves."""


@dataclass(frozen=True)
class Commit:
    """The destinations of the accepted nodes' keys and values: behind the root's, without gaps."""

    kv: Tensor  # [layers, rows, capacity, 2 * kv_heads, head_dim], the engine's cache; a slot is contiguous
    rows: Tensor  # [B] int32: which row each sequence has; no two the same
    starts: Tensor  # [B] int32: the slot of its root; node i lies i slots further


def verify_greedy(
    logits: Tensor, trees: PackedTrees, commit: Commit | None = None, *, tile: int = TILE
) -> Verified:
    """Walk from each root along the target's most likely tokens; of equal ones the first.

    logits: [N, V] of all trees' nodes, in any floating type; a NaN is never the greatest
    commit: moves the accepted nodes' slots in place; None leaves the cache to the caller
    """
    _check(logits, trees, commit)
    vocab = logits.shape[1]
    tile = tile_of(vocab, tile)
    tiles = cdiv(vocab, tile)
    best = logits.new_empty(trees.count, tiles, dtype=torch.float32)
    index = logits.new_empty(trees.count, tiles, dtype=torch.int32)
    tile_argmax[(trees.count, tiles)](
        logits, logits.stride(0), best, index, vocab, BLOCK=tile, num_warps=warps(tile)
    )
    verified = Verified.empty(trees)
    slot = 0 if commit is None else commit.kv.shape[3] * commit.kv.shape[4]
    block = min(MOVED, next_power_of_2(max(slot, 1)))
    parts = max(1, cdiv(slot, block))
    layers = 1 if commit is None else commit.kv.shape[0]
    strides = (0, 0, 0) if commit is None else commit.kv.stride()[:3]
    verify_and_compact[(trees.sequences, layers * parts)](
        best,
        index,
        tiles,
        trees.nodes,
        verified.path,
        trees.depth,
        verified.length,
        verified.bonus,
        best if commit is None else commit.kv,
        index if commit is None else commit.rows,
        index if commit is None else commit.starts,
        *strides,
        parts,
        TILES=next_power_of_2(tiles),
        WIDTH=max(8, next_power_of_2(trees.widest)),
        SLOT=slot,
        BLOCK=block,
        num_warps=4,
    )
    return verified


def _check(logits: Tensor, trees: PackedTrees, commit: Commit | None) -> None:
    if logits.dim() != 2 or len(logits) != trees.count or logits.stride(1) != 1:
        raise ValueError(
            f"logits {tuple(logits.shape)} are not [{trees.count}, V], contiguous, one row a node"
        )
    if commit is None:
        return
    if commit.kv.dim() != 5 or commit.kv.stride(4) != 1 or commit.kv.stride(3) != commit.kv.shape[4]:
        raise ValueError(
            f"a cache {tuple(commit.kv.shape)} is not [layers, rows, capacity, 2 * kv_heads, head_dim]"
            " with contiguous slots"
        )
    for name, numbers in (("rows", commit.rows), ("starts", commit.starts)):
        if numbers.shape != (trees.sequences,) or numbers.dtype != torch.int32:
            raise ValueError(f"{name} must be [{trees.sequences}] int32")
