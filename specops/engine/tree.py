"""Token trees: what a drafter proposes, and how it was drawn.

Node 0 is the root: the last committed token, whose successors are speculated. Nodes follow their parents, so
that index order is a topological order. The children of a node are in the order in which they were drawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache
from typing import Protocol

import torch
from torch import Tensor

from specops.engine.attention import Mask


class Draw(Enum):
    """The way in which the children of a node were chosen. It decides which verifier is lossless for the
    tree."""

    IID = "i.i.d."
    """Independent draws from q. A duplicate is a separate child."""
    WITHOUT_REPLACEMENT = "without replacement"
    """Successive draws from q, each without the tokens drawn before, renormalised."""
    DETERMINISTIC = "deterministic"
    """A function of the context, such as the top k or a look-up. Only a one-hot q describes it."""


@dataclass(frozen=True)
class Topology:
    """The shape of a tree without its tokens. `parents[0]` is -1; `parents[i] < i`."""

    parents: tuple[int, ...]

    @staticmethod
    @lru_cache(maxsize=256)
    def from_parents(parents: tuple[int, ...]) -> Topology:
        """The one object of a shape, so that its masks are built once, and rows that share it are batched."""
        return Topology(parents)

    @staticmethod
    def expansion(widths: tuple[int, ...]) -> Topology:
        """SpecInfer's <k1..km> (arXiv 2305.09781): every node of depth i-1 has k_i children, numbered level
        by level."""
        parents, level = [-1], [0]
        for width in widths:
            start = len(parents)
            parents += [parent for parent in level for _ in range(width)]
            level = list(range(start, len(parents)))
        return Topology.from_parents(tuple(parents))

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def level_order(self) -> Topology:
        """The same shape with its nodes numbered level by level; siblings keep their order."""
        order = [0]
        for node in order:
            order += self.children[node]
        return self._only(order)

    def without(self, nodes: Iterable[int]) -> Topology:
        """The shape without `nodes` and everything below them; the others keep their order."""
        cut = set(nodes)
        for node, parent in enumerate(self.parents):
            if parent in cut:
                cut.add(node)
        return self._only([node for node in range(len(self)) if node not in cut])

    def _only(self, nodes: list[int]) -> Topology:
        number = {node: place for place, node in enumerate(nodes)}
        return Topology.from_parents((-1, *(number[self.parents[node]] for node in nodes[1:])))

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of each node."""
        children: list[list[int]] = [[] for _ in self.parents]
        for node, parent in enumerate(self.parents[1:], start=1):
            children[parent].append(node)
        return tuple(tuple(nodes) for nodes in children)

    @cached_property
    def depth(self) -> tuple[int, ...]:
        """The depth of each node; the root's is 0."""
        depth = [0]
        for parent in self.parents[1:]:
            depth.append(depth[parent] + 1)
        return tuple(depth)

    @cached_property
    def rank(self) -> tuple[int, ...]:
        """The place of each node among its siblings, from 0."""
        rank = [0] * len(self)
        for nodes in self.children:
            for place, node in enumerate(nodes):
                rank[node] = place
        return tuple(rank)

    @cached_property
    def depths(self) -> Tensor:
        """`depth` as a tensor, [n] int64."""
        return torch.tensor(self.depth)  # [n]

    @cached_property
    def sees(self) -> Tensor:
        """[n, n] bool: row i is True at i and at its ancestors."""
        sees = torch.eye(len(self), dtype=torch.bool)
        for node, parent in enumerate(self.parents[1:], start=1):
            sees[node] |= sees[parent]
        return sees

    @cached_property
    def ancestors(self) -> Tensor:
        """`sees` in words, [n, ceil(n / 64)] int64: bit j of word w stands for node 64 * w + j."""
        n = len(self)
        words = torch.zeros(n, (n + 63) // 64, dtype=torch.int64)
        for node in range(n):
            for visible in self.sees[node].nonzero().flatten().tolist():
                bit = 1 << (visible % 64)
                words[node, visible // 64] |= bit - (1 << 64) if bit >> 63 else bit
        return words

    @cached_property
    def mask(self) -> Mask:
        """Return which of the tree's own slots each node sees."""
        return Mask(self.sees)

    @cached_property
    def _level_masks(self) -> dict[tuple[int, int], Mask]:
        return {}

    def level_mask(self, start: int, stop: int) -> Mask:
        """Return which of the slots of nodes [1, stop) the nodes [start, stop) see, for growing a tree by
        levels."""
        if (start, stop) not in self._level_masks:
            self._level_masks[start, stop] = Mask(self.sees[start:stop, 1:stop])
        return self._level_masks[start, stop]


Turns = tuple[tuple[int, int | None], ...]
"""The order in which a verifier tries a node's children: (child, index of the distribution that it was drawn
from).

The index is None for a child that was not drawn but is certain. A token that several drafts proposed is one
child with several turns, since each draft's draw counts, even if the token can no longer be accepted.
"""


class Sources(Protocol):
    """The distributions that a tree was drawn from, by node."""

    def __getitem__(self, node: int, /) -> tuple[Tensor, ...]:
        """The distributions of a node's children, [V] each: one for each draft that drew any."""


@dataclass(frozen=True)
class TokenTree:
    """A draft for one sequence: n nodes, the root included."""

    topology: Topology
    tokens: list[int]  # n
    draw: Draw
    """Draw of its drawn children; in a merged tree other children may be certain."""

    q: Sources | None = None
    """The distributions that each node's children were drawn from; None for a deterministic tree."""

    merged: tuple[Turns, ...] | None = None
    """The turns of each node in a union of several drafts. None for one draft: each child has one turn, in
    order."""

    odds: tuple[float, ...] | None = None
    """The drafter's estimate of the probability that each node is accepted, 1 at the root; None without an
    estimate."""

    finite: bool = True
    """False: the draft's logits are not finite, and the tree must not be verified."""

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.topology):
            raise ValueError(f"{len(self.tokens)} tokens for a tree of {len(self.topology)} nodes")

    def __len__(self) -> int:
        return len(self.tokens)

    @staticmethod
    def bare(root: int) -> TokenTree:
        """A root without a draft: its verification is one autoregressive step."""
        return TokenTree(Topology.from_parents((-1,)), [root], Draw.DETERMINISTIC)

    @staticmethod
    def not_finite(root: int) -> TokenTree:
        """What a draft gives whose logits are not finite."""
        return replace(TokenTree.bare(root), finite=False)

    def turns(self, node: int) -> Turns:
        """The turns of a node."""
        if self.merged is not None:
            return self.merged[node]
        source = None if self.draw is Draw.DETERMINISTIC else 0
        return tuple((child, source) for child in self.topology.children[node])

    def path_to(self, node: int) -> list[int]:
        """Nodes from below the root down to `node`."""
        path = []
        while node > 0:
            path.append(node)
            node = self.topology.parents[node]
        return path[::-1]
