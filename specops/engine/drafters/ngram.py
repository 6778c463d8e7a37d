"""N-gram drafts (prompt look-up): what followed the last few tokens when they occurred before.

A place that was found is copied from as long as it goes on as the sequence does; then the next is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence as Batch

from torch import Tensor

from specops.engine.drafters.copying import WORTH, Holding, alike
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology

LONGEST, SHORTEST = 4, 2  # tokens that are looked up


class _Place:
    """Where one sequence copies from."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}  # where each n-gram was last followed by something
        self._known = 0  # tokens that were looked at
        self._at = -1  # what is to be copied next; -1: there is nothing like the last few tokens
        self._length = 0  # of the match before it
        self._holding = Holding()

    def copy(self, sequence: Sequence, count: int) -> tuple[list[int], list[float]]:
        """Up to `count` tokens, and how likely each is to be accepted."""
        tokens = sequence.tokens
        self._follow(tokens, sequence.prompt_length)
        copied: list[int] = []
        odds: list[float] = []
        chance = 1.0
        while self._at >= 0 and len(copied) < count:
            chance *= self._holding.chance(self._length + len(copied))
            if chance < WORTH:
                break
            # A place that reaches the end of the tokens goes on with their copy: what repeats, repeats.
            source = self._at + len(copied)
            copied.append(tokens[source] if source < len(tokens) else copied[source - len(tokens)])
            odds.append(chance)
        return copied, odds

    def _follow(self, tokens: list[int], prompt_length: int) -> None:
        """The match ends, goes on or begins with each new token; a prompt only says what there is to copy."""
        for place in range(self._known, len(tokens)):
            if self._at >= 0:
                right = tokens[self._at] == tokens[place]
                self._holding.learn(self._length, right)
                self._at, self._length = (self._at + 1, self._length + 1) if right else (-1, 0)
            for size in range(SHORTEST, min(LONGEST, place) + 1):
                self._after[tuple(tokens[place - size : place])] = place
            if self._at < 0 and place >= prompt_length - 1:
                self._look_up(tokens, place + 1)
        self._known = len(tokens)

    def _look_up(self, tokens: list[int], stop: int) -> None:
        for size in range(min(LONGEST, stop), SHORTEST - 1, -1):
            found = self._after.get(tuple(tokens[stop - size : stop]))
            if found is not None:
                self._at, self._length = found, alike(tokens, found, tokens, stop)
                return


class NGram:
    draws = Draw.DETERMINISTIC
    reads_features = False

    def __init__(self, count: int) -> None:
        self.nodes = self.depth = count
        self._places: dict[int, _Place] = {}  # by sequence

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        return [self._chain(sequence) for sequence in sequences]

    def _chain(self, sequence: Sequence) -> TokenTree:
        if sequence.reading:
            return TokenTree.bare(sequence.tokens[-1])
        place = self._places.setdefault(sequence.id, _Place())
        tokens, odds = place.copy(sequence, min(self.nodes, sequence.depth_left))
        topology = Topology.expansion((1,) * len(tokens))
        return TokenTree(topology, [sequence.tokens[-1], *tokens], self.draws, odds=(1.0, *odds))

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None: ...

    def move(self, sequence: Sequence, row: int) -> None: ...

    def release(self, sequence: Sequence) -> None:
        self._places.pop(sequence.id, None)
