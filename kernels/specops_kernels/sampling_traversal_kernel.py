"""Traversal verification on the device: one program walks one tree, down to its leaves and up again."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

import triton
import triton.language as tl

from specops_kernels.sampling_residual_kernel import drawn, put, reject, residual, sample, unspent


@triton.jit(do_not_specialize=["questions", "depth"])
def traversal(
    target,  # Rows, one for each node
    draft,  # Rows
    nodes,  # Nodes
    drafts,  # Drafts
    open_nodes,  # Open
    uniforms,  # [B, questions] float64
    questions,
    path,  # [B, depth] int32
    depth,
    length,  # [B] int32
    bonus,  # [B] int32
    VOCAB: tl.constexpr,
    REPLACE: tl.constexpr,  # draws are independent
    BLOCK: tl.constexpr,
):
    """Down, a node gets the weight that its path may claim; on the way up it is tried. Grid (B,)."""
    sequence = tl.program_id(0)
    root = tl.load(nodes.first + sequence)
    uniforms += sequence * questions
    node, length_ = root, 0
    turn = tl.load(nodes.turns + root)
    weight, mass = tl.cast(1.0, tl.float32), tl.cast(1.0, tl.float32)
    unspent(nodes, drafts, root)
    walking = True
    while walking:
        rejected = False
        if (turn < tl.load(nodes.turns + node + 1)) & (weight > 0):
            token = tl.load(nodes.tokens + turn)
            claimed = weight * residual(target, draft, nodes, drafts, node, turn, token, VOCAB) / mass
            chance = drawn(draft, nodes, drafts, turn, VOCAB)
            if claimed > 0:
                put(open_nodes.turn + node, turn)
                put(open_nodes.weight + node, weight)
                put(open_nodes.mass + node, mass)
                node = tl.load(nodes.children + turn)
                length_ += 1
                turn = tl.load(nodes.turns + node)
                weight = tl.where(claimed < chance, claimed / chance, 1.0)
                mass = tl.cast(1.0, tl.float32)
                unspent(nodes, drafts, node)
            else:
                rejected = True
        else:
            # The root keeps all of its weight, so that the walk ends there at the latest.
            walking = (tl.load(uniforms) >= weight) & (node != root)
            uniforms += 1
            if walking:
                node = tl.load(nodes.parents + node)
                length_ -= 1
                turn = tl.load(open_nodes.turn + node)
                weight = tl.load(open_nodes.weight + node)
                mass = tl.load(open_nodes.mass + node)
                rejected = True
        if rejected:
            rest = reject(target, draft, nodes, drafts, node, turn, mass, weight, VOCAB, REPLACE, BLOCK)
            if rest > 0:
                claim = weight * rest / mass
                weight = claim / (claim + (1 - weight))
                mass = rest
            elif weight < 1:  # at 1, p equals q to the last bit, and the child was accepted almost surely
                weight = 0.0
            turn += 1
    token = sample(target, draft, nodes, drafts, node, turn, mass, tl.load(uniforms), VOCAB, BLOCK)
    at = length_
    while at > 0:
        at -= 1
        tl.store(path + sequence * depth + at, node - root)
        node = tl.load(nodes.parents + node)
    tl.store(length + sequence, length_)
    tl.store(bonus + sequence, token)
    while length_ < depth:
        tl.store(path + sequence * depth + length_, -1)
        length_ += 1
