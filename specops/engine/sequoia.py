"""The best tree of any shape for known acceptance: Sequoia's dynamic programme (arXiv 2402.12374). Pure.

Acceptance is a table, rates[d][r]: the probability that the child of rank r of a node at depth d is accepted,
where the node was. A tree yields on average one token, and for each node the product of the rates on its
path. So the best tree of m nodes below a node is the best split of m between its child of rank 0, with what
is below that, the child of rank 1, and so on; the programme tries every split. Sequoia's own table has one
row, for all depths; with one for each depth the programme is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specops.engine.tree import Topology

Rates = Sequence[Sequence[float]]


def best_tree(rates: Rates, nodes: int) -> Topology:
    """The tree of at most `nodes` nodes beside the root, no deeper than there are rows and no wider than they
    are long, of the most expected tokens; its nodes are numbered level by level.

    Takes depth x ranks x nodes^2 / 2 additions.
    """
    below = [_Best(1.0, ())] * (nodes + 1)  # by nodes to spend, for a node one level deeper
    for row in reversed(rates):
        siblings = [_Best(0.0, ())] * (nodes + 1)  # by nodes to spend, for children from some rank on
        for rate in reversed(row):
            siblings = [_split(rate, below, siblings, spent) for spent in range(nodes + 1)]
        below = [_Best(1.0 + best.tokens, best.children) for best in siblings]
    parents = [-1]
    level = [below[nodes].children]
    start = 0
    while any(level):
        for node, children in enumerate(level, start=start):
            parents += [node] * len(children)
        start += len(level)
        level = [child for children in level for child in children]
    return Topology.of(tuple(parents))


def expected_tokens(rates: Rates, tree: Topology) -> float:
    """Of a step with a tree of this shape, the target's own token included. Children beyond a row of the
    rates, and nodes below the last one, are never accepted."""
    reached = [1.0]
    for node, parent in enumerate(tree.parents[1:], start=1):
        depth, rank = tree.depth[parent], tree.rank[node]
        known = depth < len(rates) and rank < len(rates[depth])
        reached.append(reached[parent] * rates[depth][rank] if known else 0.0)
    return sum(reached)


def spec(tree: Topology) -> str:
    """As specops.trees reads it."""
    return "shape:" + ",".join(map(str, tree.parents[1:])) if len(tree) > 1 else "none"


Children = tuple["Children", ...]
"""Below a node: each child is what is below it in turn. What the programme keeps is shared, not copied."""


@dataclass(frozen=True)
class _Best:
    tokens: float
    children: Children


def _split(rate: float, below: list[_Best], siblings: list[_Best], spent: int) -> _Best:
    """The best use of `spent` nodes for the child with this rate, what is below it, and the ranks after it.

    Where a child is not worth having the ranks after it are not tried: children are drafted in order.
    """
    best = _Best(0.0, ())
    for rest in range(spent):
        child, others = below[spent - 1 - rest], siblings[rest]
        tokens = rate * child.tokens + others.tokens
        if tokens > best.tokens:
            best = _Best(tokens, (child.children, *others.children))
    return best
