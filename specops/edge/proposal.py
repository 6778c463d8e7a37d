"""A draft on its way between two machines: tokens, parents and draw; no masks, no floats."""

from __future__ import annotations

from dataclasses import dataclass

from specops.engine.tree import Draw


@dataclass(frozen=True)
class Drawn:
    """What the children of a node were drawn from: tokens[i] with probability weights[i] / sum(weights).

    Whole numbers, so that both ends have the same distribution to the last bit.
    """

    node: int
    tokens: tuple[int, ...]  # ascending
    weights: tuple[int, ...]  # at least 1


@dataclass(frozen=True)
class Proposal:
    """A tree without its root, which is the session's last token."""

    tokens: tuple[int, ...]  # of nodes 1, 2, …
    parents: tuple[int, ...]  # of the same nodes
    draw: Draw = Draw.DETERMINISTIC
    drawn: tuple[Drawn, ...] = ()


@dataclass(frozen=True)
class Branch:
    """The tree of the next round, if that is how the one that is out ends."""

    end: int  # the node at which the accepted path ends; 0: the root
    bonus: int  # the token after it: the root of the tree
    proposal: Proposal
