"""Verifiers: which of a tree's nodes the target accepts, and the token that follows them.

A verifier is one file and one line here. It names the draws for which its output has exactly the target's
distribution; for any other tree it refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from specops.engine.chance import Chance
from specops.engine.tree import Draw, TokenTree
from specops.errors import LosslessError, UsageError


class Target(Protocol):
    def __getitem__(self, node: int, /) -> Tensor:
        """[V], the target's distribution after a node. A tensor [n, V] is one."""


@dataclass(frozen=True)
class Verified:
    path: list[int]  # accepted nodes (their numbers in the tree) from below the root downward
    bonus: int  # the token that the target puts after them


class Verifier(Protocol):
    name: str
    lossless_for: frozenset[Draw]
    prefers: Draw  # what a drafter that can choose should draw

    def verify(self, tree: TokenTree, p: Target, chance: Chance) -> Verified:
        """p[node]: the target's distribution after the node. Call `check` first."""


def check(verifier: Verifier, draw: Draw) -> None:
    if draw not in verifier.lossless_for:
        able = " or ".join(sorted(d.value for d in verifier.lossless_for))
        raise LosslessError(
            f"the {verifier.name} verifier would change the output's distribution for a tree drawn "
            f"{draw.value}: it is lossless only for {able}",
            hint="use the naive verifier, which is lossless for every tree, or a drafter that samples",
        )


def make_verifier(name: str) -> Verifier:
    for verifier in _registry():
        if verifier.name == name:
            return verifier
    names = ", ".join(verifier.name for verifier in _registry())
    raise UsageError(f"there is no verifier {name!r}", hint=f"choose one of: {names}")


def best_verifier(draw: Draw) -> Verifier:
    """The one that accepts most, of those that are lossless for the draw."""
    return next(verifier for verifier in _registry() if draw in verifier.lossless_for)


def _registry() -> list[Verifier]:
    """Best first."""
    from specops.engine.verifiers.mss import MultiStep
    from specops.engine.verifiers.naive import Naive

    return [MultiStep(), Naive()]
