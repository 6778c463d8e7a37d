"""Verifiers: which of a tree's nodes the target accepts, and the token that follows them.

A verifier is one module here and its name in `specops.trees.VERIFIERS`, which settings read without torch.
The module's `VERIFIER` names the draws for which its output has exactly the target's distribution. It refuses
any other tree.
"""

from __future__ import annotations

from importlib import import_module

from specops import trees
from specops.engine.rng import Chance
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers.verifier import CountedVerifier, Target, Verified, Verifier


def _loaded(name: str) -> CountedVerifier:
    verifier: CountedVerifier = import_module(f"{__name__}.{name}").VERIFIER
    return verifier


VERIFIERS: dict[str, CountedVerifier] = {name: _loaded(name) for name in trees.VERIFIERS}
"""By name, from the plainest on."""

DEFAULTS = ("traversal", "naive")
"""The first that is lossless for a draw is its default.

Ranked accepts more than traversal, but sorts the vocabulary at every node. That pays where the target's pass
is long (`benchmarks/verifiers.py`), so it is used on request only.
"""


def make_verifier(name: str) -> CountedVerifier:
    """Return the verifier called `name`. Raises UsageError for an unknown name."""
    return VERIFIERS[trees.known_verifier(name)]


def best_verifier(draw: Draw) -> Verifier:
    """Return the default for a draw."""
    return next(VERIFIERS[name] for name in DEFAULTS if draw in VERIFIERS[name].lossless_for)


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
