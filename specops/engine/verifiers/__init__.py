"""Verifiers, and their registry: which of a tree's nodes the target accepts, and the token that follows them.

A verifier is one file and one entry in VERIFIERS. It names the draws for which its output has exactly the
target's distribution, and refuses any other tree.
"""

from __future__ import annotations

from specops.engine.rng import Chance
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers.multi_step import MultiStep
from specops.engine.verifiers.naive import Naive
from specops.engine.verifiers.ranked import Ranked
from specops.engine.verifiers.traversal import Traversal
from specops.engine.verifiers.verifier import Target, Verified, Verifier
from specops.errors import UsageError

VERIFIERS: tuple[Verifier, ...] = (Traversal(), Ranked(), MultiStep(), Naive())
"""The registry; of several that are lossless for a draw, the first is the default.

Ranked accepts more than traversal, but sorts the vocabulary at every node. That pays where the target's pass
is long (`specops bench verifiers`), so it is used on request only.
"""

ALSO_CALLED = {"block": "traversal"}
"""On a chain, traversal is block verification (arXiv 2403.10444): one rule with two names."""


def make_verifier(name: str) -> Verifier:
    """The verifier called `name`. Raises UsageError for an unknown name."""
    for verifier in VERIFIERS:
        if verifier.name == ALSO_CALLED.get(name, name):
            return verifier
    names = ", ".join([*(verifier.name for verifier in VERIFIERS), *ALSO_CALLED])
    raise UsageError(f"there is no verifier {name!r}", hint=f"choose one of: {names}")


def best_verifier(draw: Draw) -> Verifier:
    """The default for a draw: the first in the registry that is lossless for it."""
    return next(verifier for verifier in VERIFIERS if draw in verifier.lossless_for)


class ByDraw:
    """Verifies each tree by a verifier for its draw, where trees come from several drafters."""

    name = "by draw"
    lossless_for = frozenset(Draw)

    def __init__(self, preferred: Verifier | None = None) -> None:
        """preferred: verifies the trees for which it is lossless. The best verifier for the draw verifies the
        others."""
        self.prefers = preferred.prefers if preferred is not None else Draw.WITHOUT_REPLACEMENT
        self._verifiers = {draw: best_verifier(draw) for draw in Draw}
        if preferred is not None:
            self._verifiers |= dict.fromkeys(preferred.lossless_for, preferred)

    def verify(self, tree: TokenTree, p: Target, chance: Chance) -> Verified:
        return self._verifiers[tree.draw].verify(tree, p, chance)
