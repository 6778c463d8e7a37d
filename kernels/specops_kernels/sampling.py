"""Verification for sampled output: multi-step speculative sampling and traversal, over logits.

Both are lossless for children that were drawn independently, drawn without replacement, or that are sure (a
deterministic tree), as each turn says. No probabilities are written: the kernels keep a few numbers for each
node. Uniforms are inputs, so that a reference decides the same, and a batch can be replayed.

What is read: a rejection reads a row of the target and those of the node's drafts that were tried, and the
draft's once more if another child was drawn from it without replacement; the token at the end reads at most
as much, and accepting a child two numbers. One program does this for a sequence, row after row.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from specops_kernels.sampling_multi_step_kernel import multi_step as multi_step_kernel
from specops_kernels.sampling_rows import Rows
from specops_kernels.sampling_traversal_kernel import traversal as traversal_kernel
from specops_kernels.verify_tiles import tile_of, warps
from specops_kernels.verify_trees import PackedTrees, Verified

TILE = 4096
"""Columns a program reads at once, of the target's row and of a draft's."""

WARPS = 16
"""A program has a multiprocessor nearly to itself, since there are as many of them as sequences."""


class Drafts(NamedTuple):
    """The part that was taken of each draft distribution: scratch of the kernels, [R] float32 each."""

    taken: Tensor  # how much of it the target's residual is without
    left: Tensor  # its mass without the tokens that were drawn from it and rejected


class Open(NamedTuple):
    """Nodes that a traversal comes back to: scratch, [N] each."""

    turn: Tensor  # int32
    weight: Tensor  # float32: the share of the target's probability that the path may still claim
    mass: Tensor  # float32: of the residual


def questions(trees: PackedTrees) -> int:
    """Uniforms a sequence that suffice: one a turn, one for the root and one for the token that follows."""
    return trees.longest + 2


def multi_step(
    target: Rows, draft: Rows, trees: PackedTrees, uniforms: Tensor, *, replace: bool, tile: int = TILE
) -> Verified:
    """Multi-step speculative sampling (SpecInfer, arXiv 2305.09781, VerifyStochastic).

    target: a row for each of the N nodes
    draft: trees.draft_rows rows, at the temperature and with the cuts that were drawn with
    uniforms: [B, questions(trees)] float64 in [0, 1), taken in the order in which they are needed
    replace: draws were independent; else they were without replacement. No matter where all turns are sure.
    """
    verified, width = _begin(target, draft, trees, uniforms, tile)
    multi_step_kernel[(trees.sequences,)](
        target,
        draft,
        trees.nodes,
        _drafts(draft),
        uniforms,
        uniforms.stride(0),
        verified.path,
        trees.depth,
        verified.length,
        verified.bonus,
        VOCAB=target.logits.shape[1],
        REPLACE=replace,
        BLOCK=width,
        num_warps=warps(width, WARPS),
    )
    return verified


def traversal(
    target: Rows, draft: Rows, trees: PackedTrees, uniforms: Tensor, *, replace: bool, tile: int = TILE
) -> Verified:
    """Traversal verification (arXiv 2505.12398). Arguments as of `multi_step`."""
    verified, width = _begin(target, draft, trees, uniforms, tile)
    peak = target.peak
    opened = Open(torch.empty_like(peak, dtype=torch.int32), torch.empty_like(peak), torch.empty_like(peak))
    traversal_kernel[(trees.sequences,)](
        target,
        draft,
        trees.nodes,
        _drafts(draft),
        opened,
        uniforms,
        uniforms.stride(0),
        verified.path,
        trees.depth,
        verified.length,
        verified.bonus,
        VOCAB=target.logits.shape[1],
        REPLACE=replace,
        BLOCK=width,
        num_warps=warps(width, WARPS),
    )
    return verified


def _drafts(draft: Rows) -> Drafts:
    return Drafts(torch.empty_like(draft.peak), torch.empty_like(draft.peak))


def _begin(
    target: Rows, draft: Rows, trees: PackedTrees, uniforms: Tensor, tile: int
) -> tuple[Verified, int]:
    """Where the output goes, and the tile."""
    vocab = target.logits.shape[1]
    for name, rows, wanted in (("target", target, trees.count), ("draft", draft, trees.draft_rows)):
        if rows.logits.shape != (wanted, vocab):
            raise ValueError(f"the {name} has rows {tuple(rows.logits.shape)}, not ({wanted}, {vocab})")
    least = questions(trees)
    if uniforms.dtype != torch.float64 or uniforms.dim() != 2 or uniforms.stride(1) != 1:
        raise ValueError("uniforms must be [B, questions] float64 with contiguous rows")
    if uniforms.shape[0] != trees.sequences or uniforms.shape[1] < least:
        raise ValueError(f"uniforms {tuple(uniforms.shape)} are fewer than ({trees.sequences}, {least})")
    return Verified.empty(trees), tile_of(vocab, tile)
