"""Multi-step speculative sampling (SpecInfer, arXiv 2305.09781, VerifyStochastic, theorems 4.2 and 4.3).

Children are tried in the order they were drawn, each against what the target's distribution has left after
the rejections before it. Drawn without replacement, a child's q is what was left of the draft's (Sequoia,
arXiv 2402.12374); in any other order, or with duplicates dropped, the output would be wrong.
"""

from __future__ import annotations

from torch import Tensor

from specops.engine.chance import Chance
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers import Target, Verified


class MultiStep:
    name = "mss"
    lossless_for = frozenset({Draw.IID, Draw.WITHOUT_REPLACEMENT})
    prefers = Draw.WITHOUT_REPLACEMENT

    def verify(self, tree: TokenTree, p: Target, chance: Chance) -> Verified:
        node = 0
        path: list[int] = []
        while True:
            children = tree.topology.children[node]
            if not children:
                return Verified(path, chance.sample(p[node]))
            accepted, left = _try(tree, node, children, p[node], chance)
            if accepted is None:
                return Verified(path, chance.sample(left))
            node = accepted
            path.append(node)


def _try(
    tree: TokenTree, node: int, children: tuple[int, ...], p: Tensor, chance: Chance
) -> tuple[int | None, Tensor]:
    """The accepted child, or None and the residual that the next token is to be sampled from."""
    q = _q(tree, node)
    for place, child in enumerate(children):
        token = tree.tokens[child]
        drawn, wanted = float(q[token]), float(p[token])
        if chance.accept(min(1.0, wanted / drawn)):
            return child, p
        residual = (p - q).clamp_(min=0)
        total = float(residual.sum())
        if total <= 0:  # p equals q to the last bit, where a rejection has probability zero
            return child, p
        p = residual / total
        if tree.draw is Draw.WITHOUT_REPLACEMENT and place + 1 < len(children):
            q = q.clone()
            q[token] = 0
            q = q / q.sum()
    return None, p


def _q(tree: TokenTree, node: int) -> Tensor:
    q = tree.q[node] if tree.q is not None else None
    if q is None:
        raise ValueError(f"a tree drawn {tree.draw.value} has no draft distribution at node {node}")
    return q
