"""Token trees of a batch, packed as the verification kernels read them, and what verification returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from specops_kernels.transfer import to_device

Turns = Sequence[tuple[int, int | None]]
"""What is tried at a node, in this order: a child, and which of the node's draft distributions it was drawn
from, counted from 0; None where it is sure, as if drawn from a one-hot distribution."""


class Tree(Protocol):
    """A token tree on the host, node 0 its root; the engine's `TokenTree` is one."""

    @property
    def tokens(self) -> Sequence[int]: ...

    def turns(self, node: int, /) -> Turns: ...


class Nodes(NamedTuple):
    """B trees of N nodes and T turns: nodes are counted through all trees, and so are turns and draft rows.

    All int32, on the device.
    """

    first: Tensor  # [B + 1] tree b has the nodes first[b]:first[b + 1], its root before the others
    parents: Tensor  # [N] a root's is -1
    turns: Tensor  # [N + 1] what is tried at node n is turns[n]:turns[n + 1]
    rows: Tensor  # [N + 1] the draft distributions of node n are rows[n]:rows[n + 1]
    children: Tensor  # [T] the node that a turn is about
    tokens: Tensor  # [T] its token
    sources: Tensor  # [T] the draft row that it was drawn from; -1: it is sure


@dataclass(frozen=True)
class PackedTrees:
    nodes: Nodes
    count: int  # N
    draft_rows: int
    depth: int  # of the deepest tree
    widest: int  # turns of one node, at most
    longest: int  # turns of one tree, at most

    @staticmethod
    def of(trees: Sequence[Tree], device: torch.device | str = "cpu") -> PackedTrees:
        """One copy to the device. The draft's rows are in the order of nodes and, at a node, of sources."""
        first, parents, turns, rows = [0], [], [0], [0]
        children: list[int] = []
        tokens: list[int] = []
        sources: list[int] = []
        deepest = 0
        for tree in trees:
            root, count = first[-1], len(tree.tokens)
            above, depth = [-1] * count, [0] * count
            for node in range(count):
                tried = tree.turns(node)
                drawn = _sources(tried, node)
                for child, source in tried:
                    if not node < child < count or above[child] not in (-1, root + node):
                        raise ValueError(f"node {node} of {count} cannot have the child {child}")
                    above[child], depth[child] = root + node, depth[node] + 1
                    children.append(root + child)
                    tokens.append(tree.tokens[child])
                    sources.append(-1 if source is None else rows[-1] + source)
                rows.append(rows[-1] + drawn)
                turns.append(len(children))
            first.append(root + count)
            parents += above
            deepest = max(deepest, *depth)
        return PackedTrees(
            Nodes(*to_device(device, first, parents, turns, rows, children, tokens, sources)),
            first[-1],
            rows[-1],
            deepest,
            widest=max(stop - start for start, stop in pairwise(turns)),
            longest=max(turns[stop] - turns[start] for start, stop in pairwise(first)),
        )

    @property
    def sequences(self) -> int:
        return len(self.nodes.first) - 1


def _sources(turns: Turns, node: int) -> int:
    """Return how many draft distributions a node has. The turns of one must follow each other, first one
    first."""
    found = -1
    for _, source in turns:
        if source is not None and source not in (found, found + 1):
            raise ValueError(f"the draws of node {node} are not in the order of their distributions: {turns}")
        found = found if source is None else source
    return found + 1


class Verified(NamedTuple):
    """The engine's `Verified`, for B sequences."""

    path: Tensor
    """[B, depth] int32: accepted nodes from below the root downward, numbered within their tree; then -1."""

    length: Tensor  # [B] int32: how many
    bonus: Tensor  # [B] int32: the token that the target puts after them

    @staticmethod
    def empty(trees: PackedTrees) -> Verified:
        many, device = trees.sequences, trees.nodes.first.device
        shapes = [(many, trees.depth), (many,), (many,)]
        return Verified(*(torch.empty(shape, dtype=torch.int32, device=device) for shape in shapes))
