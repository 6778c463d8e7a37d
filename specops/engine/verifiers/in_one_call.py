"""A rule over a small tree as one compiled call, where all that it reads lies on a CPU.

A verification asks for a number here and a row there, which takes ten times as long as what is computed with
them. Everything is decided as the rule's own file decides it, by the same random numbers in the same order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specops.engine import compiled
from specops.engine.chance import Chance, Dice, Distributions
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers import Target, Verified


def in_one_call(rule: compiled.Rule, tree: TokenTree, p: Target, chance: Chance) -> Verified | None:
    """None where it cannot be one."""
    if not isinstance(chance, Dice) or not isinstance(p, Distributions) or tree.merged is not None:
        return None
    rows = p.all
    if rows is None or not _plain(rows):
        return None
    q_at = [0] * len(tree)
    if tree.draw is not Draw.DETERMINISTIC:
        for node, children in enumerate(tree.topology.children):
            if children:
                if tree.q is None or not tree.q[node] or not _plain(tree.q[node][0]):
                    return None
                q_at[node] = tree.q[node][0].data_ptr()
    dice, renewed = chance.several(2 * len(tree)), tree.draw is Draw.WITHOUT_REPLACEMENT
    path, bonus = compiled.verify(rule, rows, q_at, tree.tokens, tree.topology.family, dice, renewed=renewed)
    return Verified(path, bonus)


def _plain(values: Tensor) -> bool:
    return values.is_cpu and values.dtype == torch.float32 and values.is_contiguous()
