"""The choice of a tree: the one with the most tokens a second, by measured costs and acceptance. Pure.

The engine grows expansions <k1..km> (SpecInfer, arXiv 2305.09781; a chain is <1,..,1>). All of them up to a
given size are evaluated, so that the best is found without a search. `ceiling` shows what the regular form of
an expansion costs: Sequoia's dynamic programme (arXiv 2402.12374) finds the best tree of any shape.

Acceptance is a table: rates[d][r] is the probability that the child of rank r of a node at depth d is
accepted, if the node is. Children are tried in the order of their ranks, and at most one is accepted, so that
a row adds up to at most 1. A missing row ends the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Protocol

from specops.engine.tree import Topology

Rates = Sequence[Sequence[float]]
Widths = tuple[int, ...]


class StepCosts(Protocol):
    def step(self, levels: Sequence[int], batch: int = 1) -> float:
        """Seconds of a step of `batch` sequences, each with a tree of so many nodes on each level below the
        root; without levels it is one of autoregressive decoding."""


@dataclass(frozen=True)
class TreeOption:
    """One way to decode, and its predicted speed."""

    tree: str
    """The tree as specops.trees reads it."""

    tokens_per_step: float
    """Expected tokens per step of each sequence."""

    seconds_per_step: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second of each sequence."""
        return self.tokens_per_step / self.seconds_per_step


@dataclass(frozen=True)
class Goal:
    """The goal: tokens a second, or with a limit, tokens a second of requests within the limit.

    At one batch size all sequences are in the same steps. So a limit on the time of a token never changes the
    choice, since the fastest option meets it if any does. A limit on the gap between two outputs, a step, can
    change it.
    """

    gap: float | None = None
    """Limit on the time of a step, in seconds; None for no limit."""

    token: float | None = None
    """Limit on the mean time of a token, in seconds; None for no limit."""

    def met(self, option: TreeOption) -> bool:
        slow_step = self.gap is not None and option.seconds_per_step > self.gap
        slow_token = self.token is not None and option.tokens_per_second * self.token < 1
        return not slow_step and not slow_token

    def worth(self, option: TreeOption) -> tuple[bool, float]:
        """Key to order options by, the best with the largest: an option within the limits first, then the
        fastest."""
        return self.met(option), option.tokens_per_second

    def beats(self, option: TreeOption, alternative: TreeOption, margin: float) -> bool:
        """Return whether `option` is worth more by a share of `margin`, or meets limits that the other does
        not."""
        if self.met(option) != self.met(alternative):
            return self.met(option)
        return option.tokens_per_second > (1 + margin) * alternative.tokens_per_second


def choose(rates: Rates, costs: StepCosts, *, batch: int = 1, most_nodes: int = 32) -> TreeOption:
    """The tree of the highest predicted tokens a second; `none` where nothing is faster than no draft."""
    return ranked(rates, costs, batch=batch, most_nodes=most_nodes)[0]


def ranked(rates: Rates, costs: StepCosts, *, batch: int = 1, most_nodes: int = 32) -> list[TreeOption]:
    """Every expansion of up to `most_nodes` nodes that the rates reach, and `none`; the fastest first, and
    among equals the smallest."""
    every = [(), *expansions(most_nodes, len(rates), max(map(len, rates), default=0))]
    options = [option(widths, rates, costs, batch=batch) for widths in every]
    options.sort(key=lambda option: -option.tokens_per_second)  # stable: the smallest came first
    return options


def option(widths: Widths, rates: Rates, costs: StepCosts, *, batch: int = 1) -> TreeOption:
    """The prediction for the expansion <widths>; () stands for no draft."""
    return TreeOption(spec(widths), expected_tokens(rates, widths), costs.step(levels(widths), batch))


@lru_cache(maxsize=16)
def expansions(most_nodes: int, depth: int, width: int) -> tuple[Widths, ...]:
    """Every <k1..km> of up to `most_nodes` nodes, `depth` levels and `width` children a node; by size."""

    def enumerate_widths(nodes: int, left: int) -> Iterator[Widths]:
        for first in range(1, min(width, nodes) + 1 if left else 1):
            yield (first,)
            for rest in enumerate_widths(nodes // first - 1, left - 1):
                yield (first, *rest)

    return tuple(
        sorted(enumerate_widths(most_nodes, depth), key=lambda widths: (sum(levels(widths)), len(widths)))
    )


@lru_cache(maxsize=4096)
def levels(widths: Widths) -> Widths:
    """Number of nodes of an expansion on each level below the root."""
    return tuple(accumulate(widths, lambda nodes, width: nodes * width))


@lru_cache(maxsize=4096)
def spec(widths: Widths) -> str:
    """Return the tree as specops.trees reads it."""
    if not widths:
        return "none"
    if set(widths) == {1}:
        return f"chain:{len(widths)}"
    return "expand:" + ",".join(map(str, widths))


def expected_tokens(rates: Rates, widths: Widths) -> float:
    """Expected tokens of a step: the accepted nodes, and the target's own token after them."""
    reached, total = 1.0, 1.0
    for row, width in zip(rates, widths, strict=False):
        reached *= sum(row[:width])
        total += reached
    return total


def break_even(rates: Rates, widths: Widths, tokens: float) -> float | None:
    """The rate of a root's first child at which <widths> would give `tokens` a step, if all rates rose or
    fell in the same proportion and no row above 1; None where not even certain acceptance would."""
    if not rates or not rates[0] or rates[0][0] <= 0 or tokens > 1 + len(widths):
        return None

    def scaled(by: float) -> list[list[float]]:
        return [[rate * min(by, 1 / max(sum(row), 1e-12)) for rate in row] for row in rates]

    low, high = 0.0, 1 / rates[0][0]
    if expected_tokens(scaled(high), widths) < tokens:
        return None
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if expected_tokens(scaled(middle), widths) >= tokens else (middle, high)
    return scaled(high)[0][0]


def ceiling(rates: Rates, nodes: int) -> float:
    """The most tokens that a step can be expected to give with a tree of up to `nodes` nodes of any shape,
    no deeper than the rates reach.

    Sequoia's programme, with acceptance by depth as well as by rank: the best subtree of m nodes below a
    node at depth d is the best split of m between the child of rank 0, the child of rank 1, and so on.
    """
    below = [1.0] * (nodes + 1)  # by nodes, for a node one level deeper: itself, and what follows it
    for row in reversed(rates):
        best = [0.0] * (nodes + 1)  # by nodes, for children from some rank on
        for rate in reversed(row):
            best = [
                max((rate * below[m - 1 - rest] + best[rest] for rest in range(m)), default=0.0)
                for m in range(nodes + 1)
            ]
            best = list(accumulate(best, max))
        below = [1.0 + value for value in best]
    return below[nodes]


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
    return Topology.from_parents(tuple(parents))


def shape_spec(tree: Topology) -> str:
    """Return the shape as specops.trees reads it."""
    return "shape:" + ",".join(map(str, tree.parents[1:])) if len(tree) > 1 else "none"


Children = tuple["Children", ...]
"""The subtree below a node: a tuple with one entry for each child, its subtree. Equal subtrees are shared
objects."""


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
        child, later = below[spent - 1 - rest], siblings[rest]
        tokens = rate * child.tokens + later.tokens
        if tokens > best.tokens:
            best = _Best(tokens, (child.children, *later.children))
    return best
