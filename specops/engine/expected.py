"""How many nodes of a given tree a verifier accepts on average: computed from the distributions, not counted.

Given the tree, everything a verifier may come to is known; only its answers are chance. So one walk over the
tree gives the exact mean, where counting would need thousands of verifications of the same tree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from specops.engine.tree import TokenTree
from specops.engine.verifiers import Proposals, Target
from specops.engine.verifiers.ranked import Ranked
from specops.engine.verifiers.traversal import Claim, Traversal

Expected = Callable[[TokenTree, Target], float]


def naive(tree: TokenTree, p: Target) -> float:
    """A node is accepted where the target samples its path. Children with one token are one."""

    def below(node: int) -> float:
        first = {tree.tokens[child]: child for child in reversed(tree.topology.children[node])}
        if not first:
            return 0.0
        here = p[node]
        return sum(float(here[token]) * (1 + below(child)) for token, child in first.items())

    return below(0)


def multi_step(tree: TokenTree, p: Target) -> float:
    def below(node: int) -> float:
        children, left, expected, rest = Proposals(tree, node), 1.0, 0.0, p[node]
        while left > 0 and children.next():
            accepted = min(1.0, float(rest[children.token]) / children.chance)
            if accepted > 0:
                expected += left * accepted * (1 + below(children.child))
            left *= 1 - accepted
            residual = children.reject(rest)
            total = float(residual.sum())
            if total <= 0:
                break
            rest = residual / total
        return expected

    return below(0)


def leaf_to_root(rule: Traversal, tree: TokenTree, p: Target) -> float:
    def visit(node: int, weight: float) -> tuple[float, float]:
        """The probability that the node is accepted, and the mean number of nodes below it that are."""
        claim, left, expected = Claim(node, weight, p[node]), 1.0, 0.0
        for child, claimed in rule.trials(claim, Proposals(tree, node)):
            accepted, further = visit(child, claimed) if claimed > 0 else (0.0, 0.0)
            expected += left * (accepted + further)
            left *= 1 - accepted
        return 1 - left * (1 - claim.weight), expected

    return visit(0, 1.0)[1]


RULES: dict[str, Expected] = {
    "naive": naive,
    "mss": multi_step,
    "traversal": partial(leaf_to_root, Traversal()),
    "ranked": partial(leaf_to_root, Ranked()),
}
"""By the verifier's name, from the plainest on."""
