"""Drafting at the client without a model: what followed the last few tokens before."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Batch

from specops.edge.proposal import Branch, Proposal
from specops.engine.drafters.ngram import NGram
from specops.engine.sequence import Sequence


class Copied:
    """A copy costs nothing to look up, so that there is nothing to be gained by doing so ahead."""

    kv_usage = 0.0

    def __init__(self, nodes: int) -> None:
        self._ngram = NGram(nodes)

    def begin(self, sequence: Sequence) -> None: ...

    def end(self, sequence: Sequence) -> None:
        self._ngram.release(sequence)

    def work(self, here: Batch[Sequence], away: Batch[Sequence]) -> list[Sequence]:
        return []

    def promise(self, sequence: Sequence) -> float:
        return 0.0

    def levels(self, sequence: Sequence) -> int:
        return 0

    def propose(self, sequence: Sequence) -> tuple[Proposal, float]:
        sequence.cached = len(sequence.tokens) - 1
        (tree,) = self._ngram.draft([sequence])
        odds = tree.odds or (1.0,)
        return Proposal(tuple(tree.tokens[1:]), tree.topology.parents[1:]), sum(odds[1:])

    def ahead(
        self, sequence: Sequence, count: int, worth: Callable[[int, float], bool]
    ) -> list[tuple[Branch, float]]:
        return []

    def withdraw(self, sequence: Sequence) -> None: ...

    def follow(self, sequence: Sequence, path: list[int], tokens: list[int], version: int = 0) -> bool:
        return False

    def walk(self, sequence: Sequence, tokens: list[int]) -> bool:
        return False
