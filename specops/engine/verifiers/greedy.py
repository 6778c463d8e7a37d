"""Greedy verification (SpecInfer, arXiv 2305.09781, VerifyGreedy): walk along the target's own choices."""

from __future__ import annotations

from collections.abc import Sequence

from specops.engine.tree import TokenTree
from specops.engine.verifiers import Verified


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
