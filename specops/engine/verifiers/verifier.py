"""The interface of verifiers, and the children of a node in the order in which verifiers try them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from specops.engine.rng import Chance
from specops.engine.tree import Draw, TokenTree
from specops.errors import LosslessError, NotFinite
from specops.hints import with_options


class Target(Protocol):
    """The target's distributions, by node."""

    def __getitem__(self, node: int, /) -> Tensor:
        """The target's distribution after a node, [V]. A tensor [n, V] is a Target."""


@dataclass(frozen=True)
class Verified:
    """The verdict on a tree."""

    path: list[int]  # accepted nodes (their numbers in the tree) from below the root downward
    bonus: int  # the token that the target puts after them


class Verifier(Protocol):
    """Decides which nodes of a tree are accepted, so that the output has the target's distribution."""

    name: str
    lossless_for: frozenset[Draw]
    prefers: Draw  # what a drafter that can choose should draw

    def verify(self, tree: TokenTree, p: Target, chance: Chance) -> Verified:
        """Verify a tree. p[node] is the target's distribution after the node. Call `check` first.

        Raises NotFinite if a distribution that it reads, the target's or the draft's, is not finite.
        """


class CountedVerifier(Verifier, Protocol):
    """A verifier whose mean can be computed."""

    def expected(self, tree: TokenTree, p: Target) -> float:
        """Return the mean number of nodes of `tree` that are accepted, over all that chance may do."""


def check(verifier: Verifier, draw: Draw) -> None:
    """Raises LosslessError if the verifier would change the output's distribution for trees drawn so."""
    if draw not in verifier.lossless_for:
        able = " or ".join(sorted(d.value for d in verifier.lossless_for))
        raise LosslessError(
            f"the {verifier.name} verifier would change the output's distribution for a tree drawn "
            f"{draw.value}: it is lossless only for {able}; "
            "the naive verifier is lossless for every tree",
            hint=with_options({"--verifier": "naive"}),
        )


class Proposals:
    """The children of a node in the order in which they are tried, each with the distribution it was drawn
    from.

    A certain child, such as a draft's most likely token or a copied token, counts as drawn from a one-hot
    distribution. The distribution without replacement changes with each rejection.
    """

    def __init__(self, tree: TokenTree, node: int) -> None:
        self.draw = tree.draw
        self._tokens = tree.tokens
        self._left = deque(tree.turns(node))
        self._q = list(tree.q[node]) if tree.q is not None else []
        self.child = -1
        self.token = -1
        self._source: int | None = None

    def next(self) -> bool:
        """Go to the next child, which `child` and `token` then are. Returns whether there is one."""
        if not self._left:
            return False
        self.child, self._source = self._left.popleft()
        self.token = self._tokens[self.child]
        if self._source is not None and self._source >= len(self._q):
            raise ValueError(f"a tree drawn {self.draw.value} has no draft distribution at a node")
        return True

    def siblings(self, most: int | None = None) -> list[tuple[int, int]]:
        """The current child and those behind it that were drawn from the same distribution, as (child,
        token), `most` in all. A certain child is alone."""
        siblings = [(self.child, self.token)]
        for child, source in self._left:
            if self._source is None or source != self._source or len(siblings) == most:
                break
            siblings.append((child, self._tokens[child]))
        return siblings

    def skip(self, count: int) -> None:
        """Leave out the next `count` children, which were tried already."""
        for _ in range(count):
            self._left.popleft()

    @property
    def q(self) -> Tensor:
        """The distribution that the current child was drawn from, [V]."""
        if self._source is not None:
            return self._q[self._source]
        raise ValueError("a certain child was not drawn")

    def accepted(self, p: Tensor, weight: float = 1.0) -> float:
        """min(1, weight * p / q) of the current child's token; q is what the child was drawn from."""
        drawn = 1.0 if self._source is None else float(self.q[self.token])
        aimed = weight * float(p[self.token])
        if not (0 < drawn < math.inf and 0 <= aimed < math.inf):
            raise NotFinite(f"could not verify a token drawn with {drawn}, of the target's {aimed}")
        return min(1.0, aimed / drawn)

    def reject(self, p: Tensor, weight: float = 1.0) -> Tensor:
        """Reject the current child and return max(0, weight * p - q), [V]; q is what the child was drawn
        from."""
        if self._source is None:
            rest = weight * p
            rest[self.token] = 0  # of a one-hot q
            return rest
        rest = (weight * p - self.q).clamp_(min=0)
        self.forget([self.token])
        return rest

    def forget(self, tokens: list[int]) -> None:
        """Take rejected tokens out of the current child's distribution, for draws without replacement that
        follow."""
        if self._left and self._source is not None and self.draw is Draw.WITHOUT_REPLACEMENT:
            self._q[self._source] = _without(self.q, tokens)


def mass(rest: Tensor) -> float:
    """The sum of what rejections left of a distribution, [V]."""
    total = float(rest.sum())
    if not math.isfinite(total):
        raise NotFinite(f"could not verify a tree: a distribution's rest has the sum {total}")
    return total


def _without(q: Tensor, tokens: list[int]) -> Tensor:
    q = q.clone()
    q[tokens] = 0
    total = q.sum()
    return q / total if total > 0 else q
