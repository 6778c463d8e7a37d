"""Multi-step speculative sampling (SpecInfer, arXiv 2305.09781, VerifyStochastic, theorems 4.2 and 4.3).

Children are tried in the order in which they were drawn, each against what is left of the target's
distribution after the rejections before it. Without replacement, a child's q is what was left of the draft's
(Sequoia, arXiv 2402.12374). In another order, or without duplicates, the output would be wrong.
"""

from __future__ import annotations

from torch import Tensor

from specops.engine.rng import Chance
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers.verifier import Proposals, Target, Verified, mass


class MultiStep:
    """Accept or reject at each node, from the root down."""

    name = "mss"
    lossless_for = frozenset({Draw.IID, Draw.WITHOUT_REPLACEMENT})
    prefers = Draw.WITHOUT_REPLACEMENT

    def verify(self, tree: TokenTree, p: Target, chance: Chance) -> Verified:
        node = 0
        path: list[int] = []
        while True:
            accepted, left = _try(Proposals(tree, node), p[node], chance)
            if accepted is None:
                return Verified(path, chance.sample(left))
            node = accepted
            path.append(node)

    def expected(self, tree: TokenTree, p: Target) -> float:
        def below(node: int) -> float:
            children, left, expected, rest = Proposals(tree, node), 1.0, 0.0, p[node]
            while left > 0 and children.next():
                accepted = children.accepted(rest)
                if accepted > 0:
                    expected += left * accepted * (1 + below(children.child))
                left *= 1 - accepted
                residual = children.reject(rest)
                total = mass(residual)
                if total <= 0:
                    break
                rest = residual / total
            return expected

        return below(0)


VERIFIER = MultiStep()


def _try(children: Proposals, p: Tensor, chance: Chance) -> tuple[int | None, Tensor]:
    """The accepted child, or None, and the distribution, [V], that the next token is then sampled from."""
    while children.next():
        if chance.accept(children.accepted(p)):
            return children.child, p
        residual = children.reject(p)
        total = mass(residual)
        if total <= 0:  # p equals q to the last bit, where a rejection has probability zero
            return children.child, p
        p = residual / total
    return None, p
