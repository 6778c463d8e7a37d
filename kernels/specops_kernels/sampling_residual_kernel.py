"""What rejections leave of the target's distribution, by one number for each draft distribution.

A rejection replaces p by max(0, w * p - c * q), normalised; c renormalises a q that was drawn from without
replacement, and w is the weight of traversal, 1 in multi-step sampling. Such steps fold, since no q is
negative: max(0, a * max(0, x) - q) = max(0, a * x - q). After any number of them p is

    max(0, p - sum over drafts of taken * q) / mass,        with   taken += c * mass / w   at each rejection

and mass, the sum of the numerator, is one pass over the vocabulary. A rejected token needs no memory: it is
rejected only where w * p <= c * q, so that it has nothing left and never gets anything again. That is why
without replacement nothing is cut out of q but in c. Tokens that were sure are cut out by name.

`taken` and `left` are in global memory, where one program writes and reads those of a sequence, with barriers
between.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

import triton
import triton.language as tl

from specops_kernels.sampling_rows_kernel import load_logits, probability


@triton.jit
def put(at, value):
    """Store a scalar that other threads of the program read; none of them reads the old one later."""
    tl.debug_barrier()
    tl.store(at, value)
    tl.debug_barrier()


@triton.jit
def unspent(nodes, drafts, node):
    """Nothing is taken at a node yet."""
    row = tl.load(nodes.rows + node)
    last = tl.load(nodes.rows + node + 1)
    while row < last:
        put(drafts.taken + row, 0.0)
        put(drafts.left + row, 1.0)
        row += 1


@triton.jit
def residual(target, draft, nodes, drafts, node, turn, columns, VOCAB: tl.constexpr):
    """The numerator, at columns or at one, once the node's turns before `turn` were rejected."""
    logits = load_logits(target, node, columns, VOCAB)
    spent = tl.zeros_like(logits)
    row = tl.load(nodes.rows + node)
    last = tl.load(nodes.rows + node + 1)
    while row < last:
        taken = tl.load(drafts.taken + row)
        if taken > 0:
            spent += taken * probability(draft, row, load_logits(draft, row, columns, VOCAB))
        row += 1
    rest = tl.maximum(probability(target, node, logits) - spent, 0.0)
    earlier = tl.load(nodes.turns + node)
    while earlier < turn:
        sure = tl.load(nodes.sources + earlier) < 0
        rest = tl.where(sure & (columns == tl.load(nodes.tokens + earlier)), 0.0, rest)
        earlier += 1
    return rest


@triton.jit
def drawn(draft, nodes, drafts, turn, VOCAB: tl.constexpr):
    """The probability with which a turn's token was drawn when it was its turn."""
    source = tl.load(nodes.sources + turn)
    chance = 1.0
    if source >= 0:
        logits = load_logits(draft, source, tl.load(nodes.tokens + turn), VOCAB)
        chance = probability(draft, source, logits) / tl.load(drafts.left + source)
    return chance


@triton.jit
def mass_of(target, draft, nodes, drafts, node, turn, VOCAB: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of `residual` over the vocabulary."""
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, VOCAB, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        sums += residual(target, draft, nodes, drafts, node, turn, columns, VOCAB)
    return tl.sum(sums, 0)


@triton.jit
def left_of(draft, nodes, source, first, turn, VOCAB: tl.constexpr, BLOCK: tl.constexpr):
    """The mass of a draft distribution without the tokens that turns [first, turn) drew from it.

    Added up and not 1 minus theirs, which would be nothing but rounding where the draft is nearly sure.
    """
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, VOCAB, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        q = probability(draft, source, load_logits(draft, source, columns, VOCAB))
        earlier = first
        while earlier < turn:
            same = tl.load(nodes.sources + earlier) == source
            q = tl.where(same & (columns == tl.load(nodes.tokens + earlier)), 0.0, q)
            earlier += 1
        sums += q
    return tl.sum(sums, 0)


@triton.jit
def reject(
    target,
    draft,
    nodes,
    drafts,
    node,
    turn,
    mass,
    weight,
    VOCAB: tl.constexpr,
    REPLACE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The child of a turn was rejected, at a node that may claim `weight` of p > 0: the mass that is left.

    Where it is 0, p equals q to the last bit, and nothing is taken.
    """
    source = tl.load(nodes.sources + turn)
    before = 0.0
    if source >= 0:
        before = tl.load(drafts.taken + source)
        put(drafts.taken + source, before + mass / (weight * tl.load(drafts.left + source)))
    rest = mass_of(target, draft, nodes, drafts, node, turn + 1, VOCAB, BLOCK)
    if source >= 0:
        if rest <= 0:
            put(drafts.taken + source, before)
        if not REPLACE:
            follows = turn + 1 < tl.load(nodes.turns + node + 1)
            if tl.load(nodes.sources + turn + 1, mask=follows, other=-1) == source:
                first = tl.load(nodes.turns + node)
                put(drafts.left + source, left_of(draft, nodes, source, first, turn + 1, VOCAB, BLOCK))
    return rest


@triton.jit
def sample(target, draft, nodes, drafts, node, turn, mass, uniform, VOCAB: tl.constexpr, BLOCK: tl.constexpr):
    """A token in proportion to `residual`: the first whose cumulated weight is above uniform * mass.

    Between tiles in float64, within one in float32 counted from its beginning, so that a token far out in the
    tail is not lost between two steps.
    """
    wanted = uniform * mass
    before = tl.cast(0.0, tl.float64)
    chosen, last, start = -1, 0, 0
    while (chosen < 0) & (start < VOCAB):
        columns = start + tl.arange(0, BLOCK)
        weights = residual(target, draft, nodes, drafts, node, turn, columns, VOCAB)
        within = tl.sum(weights, 0)
        positive = weights > 0
        if within > 0:
            last = tl.max(tl.where(positive, columns, 0), 0)  # for what was rounded up
        if before + within > wanted:
            short = (wanted - before).to(tl.float32)
            above = positive & (tl.cumsum(weights, 0) > short)
            chosen = tl.minimum(tl.min(tl.where(above, columns, VOCAB), 0), last)
        before += within
        start += BLOCK
    return tl.where(chosen < 0, last, chosen)
