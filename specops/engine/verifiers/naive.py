"""Walks along the target's own tokens: its most likely ones (SpecInfer, arXiv 2305.09781, VerifyGreedy), or
sampled ones (SpecInfer's naive sampling).

The tokens are the target's for any tree, so both are lossless for every draw. For a deterministic tree naive
sampling is also optimal, since a child's draft distribution is then one-hot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specops.engine.rng import Chance
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers.verifier import Target, Verified


def verify_greedy(tree: TokenTree, choices: Sequence[int]) -> Verified:
    """Verify a tree at temperature 0. choices: [n], the target's most likely token after each node."""
    return _walk(tree, choices.__getitem__)


class Naive:
    """Sample the target's token at each node, and go on while a child has it."""

    name = "naive"
    lossless_for = frozenset(Draw)
    prefers = Draw.DETERMINISTIC

    def verify(self, tree: TokenTree, p: Target, chance: Chance) -> Verified:
        return _walk(tree, lambda node: chance.sample(p[node]))

    def expected(self, tree: TokenTree, p: Target) -> float:
        """A node is accepted where the target samples its path. Children with one token are one."""

        def below(node: int) -> float:
            first = {tree.tokens[child]: child for child in reversed(tree.topology.children[node])}
            if not first:
                return 0.0
            probabilities = p[node]
            return sum(float(probabilities[token]) * (1 + below(child)) for token, child in first.items())

        return below(0)


VERIFIER = Naive()


def _walk(tree: TokenTree, token_after: Callable[[int], int]) -> Verified:
    """Walk from the root to the child that has the target's token after a node, while there is one."""
    node, path = 0, []
    while True:
        token = token_after(node)
        for child in tree.topology.children[node]:
            if tree.tokens[child] == token:
                node = child
                path.append(child)
                break
        else:
            return Verified(path, token)
