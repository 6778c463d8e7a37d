"""A chain that ends where its draft is unsure (AdaEDL, arXiv 2410.18351; SpecDec++, arXiv 2405.19715).

Another token is worth a pass of the draft as long as those before it are likely to be accepted. How likely
that is, the draft's own distributions say well enough. When to end follows from the tokens that were drawn
and what they were drawn from, not from what would be drawn next: whatever is drawn keeps its draw.
"""

from __future__ import annotations

from math import sqrt

from torch import Tensor

from specops.engine.drafters.expansion import Expansion, Growing
from specops.engine.drafters.grower import Draft
from specops.engine.tree import Draw, Topology


class Adaptive(Expansion):
    worth_a_pass = 0.3
    """Measured on the shipped pair, where a chain of the EAGLE head is one call: 0.2 and 0.3 are within 1% of
    each other, greedily and not, and 0.4 is 2% slower greedily."""

    def __init__(self, most: int, draw: Draw, draft: Draft, rows: int, length: int) -> None:
        super().__init__(Topology.expansion((1,) * most), draw, draft, rows, length)

    def branch(self, trees: list[Growing], depth: int, logits: Tensor) -> None:
        super().branch(trees, depth, logits)
        if depth + 1 == self.depth:
            return
        for tree, row in zip(trees, logits, strict=True):  # a chain's levels have one node each
            tree.odds *= self._acceptance(tree, depth, row)
            if tree.odds < self.worth_a_pass:
                tree.plan = tree.plan.to_depth(depth + 1)

    def _acceptance(self, tree: Growing, depth: int, logits: Tensor) -> float:
        """How likely the token after node `depth` is accepted once the node is, by its draft alone.

        Of drawn tokens that is what both distributions share, which on the shipped pair is half of the way
        from the chance that two draws from the draft agree up to 1: where the draft is flat, they still
        share half. Greedily the target agrees with a top token more often than its probability says.
        """
        if not tree.sequence.greedy and self.draws is not Draw.DETERMINISTIC:
            (q,) = tree.q[depth]
            return (1 + float(q.dot(q))) / 2
        top = float(logits.softmax(-1).amax())
        return sqrt(top) if tree.sequence.greedy else top
