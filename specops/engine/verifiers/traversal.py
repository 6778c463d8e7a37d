"""Traversal verification (arXiv 2505.12398): from the leaves to the root, so that a subtree is tried whole.

Multi-step sampling decides at each node and never returns to it. Here a node on the way down has only a
weight: the share of the target's probability that its path may still claim. It is accepted on the way back
up, after everything below it was rejected. On a chain this is block verification (arXiv 2403.10444), on a
tree of one level multi-step sampling. After a rejection the next siblings meet the residual and its weight;
without replacement, they also meet the draft's distribution without the rejected token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from specops.engine.rng import Chance
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers.verifier import Proposals, Target, Verified, mass

Trial = tuple[int, float]
"""A child, and the weight that its path may claim."""


@dataclass
class Claim:
    """A node on the path: the share of the target's probability that it may still claim, and the distribution
    left."""

    node: int
    weight: float
    p: Tensor
    """The rest of the target's distribution, [V]."""

    def keep(self, rest: Tensor) -> None:
        """Set weight and distribution to what rejected children left of weight * p, `rest`, [V]."""
        left = mass(rest)
        if left > 0:
            self.p, self.weight = rest / left, left / (left + (1 - self.weight))
        elif self.weight < 1:  # at 1, p equals q to the last bit, and a child was accepted almost surely
            self.weight = 0.0


class Traversal:
    """Verify from the leaves to the root."""

    name = "traversal"
    lossless_for = frozenset({Draw.IID, Draw.WITHOUT_REPLACEMENT})
    prefers = Draw.WITHOUT_REPLACEMENT

    def trials(self, claim: Claim, children: Proposals) -> Iterator[Trial]:
        """The children of a node in turn, with their weights. Going on to the next one means that this one
        was rejected."""
        while children.next():
            yield children.child, children.accepted(claim.p, claim.weight)
            claim.keep(children.reject(claim.p, claim.weight))

    def verify(self, tree: TokenTree, p: Target, chance: Chance) -> Verified:
        def visit(node: int, weight: float) -> tuple[Claim, Iterator[Trial]]:
            claim = Claim(node, weight, p[node])
            return claim, self.trials(claim, Proposals(tree, node))

        path = [visit(0, 1.0)]
        while True:
            claim, trials = path[-1]
            child, weight = next(trials, (0, 0.0))
            if child:
                if weight > 0:
                    path.append(visit(child, weight))
            elif chance.accept(claim.weight):
                return Verified([below.node for below, _ in path[1:]], chance.sample(claim.p))
            else:
                path.pop()

    def expected(self, tree: TokenTree, p: Target) -> float:
        def visit(node: int, weight: float) -> tuple[float, float]:
            """The probability that the node is accepted, and the mean number of nodes below it that are."""
            claim, left, expected = Claim(node, weight, p[node]), 1.0, 0.0
            for child, claimed in self.trials(claim, Proposals(tree, node)):
                accepted, further = visit(child, claimed) if claimed > 0 else (0.0, 0.0)
                expected += left * (accepted + further)
                left *= 1 - accepted
            return 1 - left * (1 - claim.weight), expected

        return visit(0, 1.0)[1]


VERIFIER = Traversal()
