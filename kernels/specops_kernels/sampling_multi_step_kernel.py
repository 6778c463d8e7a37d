"""Multi-step speculative sampling on the device: one program walks one tree."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

import triton
import triton.language as tl

from specops_kernels.sampling_residual_kernel import drawn, reject, residual, sample, unspent


@triton.jit(do_not_specialize=["questions", "depth"])
def multi_step(
    target,  # Rows, one for each node
    draft,  # Rows
    nodes,  # Nodes
    drafts,  # Drafts
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
    """At every node the children in turn, each against what those before it left. Grid (B,)."""
    sequence = tl.program_id(0)
    root = tl.load(nodes.first + sequence)
    uniforms += sequence * questions
    node, length_, turn = root, 0, 0
    mass = tl.cast(1.0, tl.float32)
    walking = True
    while walking:
        unspent(nodes, drafts, node)
        turn = tl.load(nodes.turns + node)
        stop = tl.load(nodes.turns + node + 1)
        mass = tl.cast(1.0, tl.float32)
        accepted = -1
        while (accepted < 0) & (turn < stop):
            child, token = tl.load(nodes.children + turn), tl.load(nodes.tokens + turn)
            claimed = residual(target, draft, nodes, drafts, node, turn, token, VOCAB) / mass
            if tl.load(uniforms) * drawn(draft, nodes, drafts, turn, VOCAB) < claimed:
                accepted = child
            else:
                rest = reject(target, draft, nodes, drafts, node, turn, mass, 1.0, VOCAB, REPLACE, BLOCK)
                if rest > 0:
                    mass = rest
                else:  # p equals q, where a rejection has probability zero
                    accepted = child
            uniforms += 1
            turn += 1
        walking = accepted >= 0
        if walking:
            node = accepted
            tl.store(path + sequence * depth + length_, node - root)
            length_ += 1
    token = sample(target, draft, nodes, drafts, node, turn, mass, tl.load(uniforms), VOCAB, BLOCK)
    tl.store(length + sequence, length_)
    tl.store(bonus + sequence, token)
    while length_ < depth:
        tl.store(path + sequence * depth + length_, -1)
        length_ += 1
