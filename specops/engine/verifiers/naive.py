"""Naive sampling (SpecInfer's baseline): sample the target's token, go on where a child equals it.

The tokens are the target's whatever the tree, so this is lossless for every draw; for a deterministic tree
it is also the best there is, since a child's draft distribution is then one-hot.
"""

from __future__ import annotations

from collections.abc import Sequence

from specops.engine.rng import Chance
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers.verifier import Target, Verified


def verify_greedy(tree: TokenTree, choices: Sequence[int]) -> Verified:
    """`choices`: the target's most likely token after each of the n nodes. Exact for any tree."""
    node, path = 0, []
    while True:
        wanted = choices[node]
        for child in tree.topology.children[node]:
            if tree.tokens[child] == wanted:
                node = child
                path.append(child)
                break
        else:
            return Verified(path, wanted)


class Naive:
    name = "naive"
    lossless_for = frozenset(Draw)
    prefers = Draw.DETERMINISTIC

    def verify(self, tree: TokenTree, p: Target, chance: Chance) -> Verified:
        node, path = 0, []
        while True:
            token = chance.sample(p[node])
            for child in tree.topology.children[node]:
                if tree.tokens[child] == token:
                    node = child
                    path.append(child)
                    break
            else:
                return Verified(path, token)
