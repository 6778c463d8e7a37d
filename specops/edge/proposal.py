"""A draft on its way between two machines: tokens, parents and draw; no masks, no floats."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from specops.engine.tree import Draw

TOKEN, WEIGHT = np.dtype("<u4"), np.dtype("<u2")
"""How they lie in what is drawn."""


class Drawn(Struct, frozen=True, array_like=True):
    """What the children of nodes were drawn from: of one, tokens[i] with probability weights[i] / their sum.

    Whole numbers, so that both ends have the same distribution to the last bit. Those of all nodes one after
    the other, as they go over the wire: of one tree they may be thousands.
    """

    nodes: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()  # of the same nodes: how many tokens
    tokens: bytes = b""  # TOKEN each, of one node ascending
    weights: bytes = b""  # WEIGHT each, at least 1


class Proposal(Struct, frozen=True, array_like=True):
    """A tree without its root, which is the session's last token."""

    tokens: tuple[int, ...]  # of nodes 1, 2, …
    parents: tuple[int, ...]  # of the same nodes
    draw: Draw = Draw.DETERMINISTIC
    drawn: Drawn = Drawn()


class Branch(Struct, frozen=True, array_like=True):
    """The tree of the next round, if that is how the one that is out ends."""

    end: int  # the node at which the accepted path ends; 0: the root
    bonus: int  # the token after it: the root of the tree
    proposal: Proposal
