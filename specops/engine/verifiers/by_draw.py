"""A verifier for each draw: where trees come from several hands, each says for itself how it was drawn."""

from __future__ import annotations

from specops.engine.chance import Chance
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers import Target, Verified, Verifier, best_verifier


class ByDraw:
    name = "by draw"
    lossless_for = frozenset(Draw)

    def __init__(self, asked: Verifier | None = None) -> None:
        """`asked` verifies the trees for which it is lossless; all others, the best verifier that is."""
        self.prefers = asked.prefers if asked is not None else Draw.WITHOUT_REPLACEMENT
        self._verifiers = {
            draw: asked if asked is not None and draw in asked.lossless_for else best_verifier(draw)
            for draw in Draw
        }

    def verify(self, tree: TokenTree, p: Target, chance: Chance) -> Verified:
        return self._verifiers[tree.draw].verify(tree, p, chance)
