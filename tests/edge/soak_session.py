"""One session of a soak's client: what it knows, and what of the server's answers is wrong."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from specops.edge import verification_pb2 as pb

MOST_NODES = 8
"""Of a round."""


class Wrong(Exception):
    """What the server did and must not have done."""


@dataclass
class Session:
    number: int
    key: bytes
    prompt: list[int]
    expected: list[int]
    output: list[int] = field(default_factory=list)
    due: int = 0
    ended: bool = False
    tree: tuple[list[int], list[int]] | None = None  # tokens and parents of the round that is out
    inbox: asyncio.Queue[pb.Response | None] = field(default_factory=asyncio.Queue)

    def take(self, tokens: list[int], ended: bool) -> None:
        place = len(self.output)
        if tokens != self.expected[place : place + len(tokens)]:
            raise Wrong(f"token {place} and on: {tokens}, not {self.expected[place : place + len(tokens)]}")
        self.output += tokens
        self.ended = ended
        if ended != (len(self.output) == len(self.expected)):
            raise Wrong(f"ended after {len(self.output)} of {len(self.expected)} tokens")

    def verdict(self, said: pb.Verdict) -> None:
        if said.number != self.due:
            raise Wrong(f"verdict {said.number} where {self.due} is due")
        before = len(self.output)
        path, tokens = list(said.path), list(said.tokens)
        if not tokens:
            raise Wrong("a verdict without a token")
        if self.tree is not None:
            best = self._accepted(before)
            if path != best:
                raise Wrong(f"accepted {path}, where greedy accepts {best} of {self.tree}")
        elif path:
            raise Wrong(f"accepted {path} of nothing")
        self.take(tokens, said.ended)
        self.tree = None
        self.due = said.number + 1

    def turn(self, said: pb.Turn) -> None:
        self.take(list(said.tokens), said.ended)
        self.tree = None
        self.due = said.number

    def _accepted(self, place: int) -> list[int]:
        """The nodes that greedy verification accepts: the longest path of right tokens."""
        assert self.tree is not None
        path, at = [], 0
        while place + len(path) < len(self.expected):
            wanted = self.expected[place + len(path)]
            following = [
                node
                for node, (token, parent) in enumerate(zip(*self.tree, strict=True), start=1)
                if parent == at and token == wanted
            ]
            if not following:
                break
            at = following[0]
            path.append(at)
        return path

    def grow(self, chance: random.Random, vocabulary: int) -> pb.Round:
        """A random tree: a right path, cut off or not, with wrong tokens beside and below it."""
        tokens: list[int] = []
        parents: list[int] = []
        depths = [0]
        right = 0  # the node at the end of the right path
        deepest = max(len(self.expected) - len(self.output) - 1, 1)  # the last token is the server's own
        for _ in range(chance.randint(1, MOST_NODES)):
            token, parent = chance.randrange(vocabulary), chance.randint(0, len(tokens))
            if goes_on := depths[right] < deepest and chance.random() < 0.6:
                token, parent = self.expected[len(self.output) + depths[right]], right
            if depths[parent] == deepest or (token, parent) in zip(tokens, parents, strict=True):
                continue
            tokens.append(token)
            parents.append(parent)
            depths.append(depths[parent] + 1)
            right = len(tokens) if goes_on else right
        self.tree = tokens, parents
        return pb.Round(number=self.due, tokens=tokens, parents=parents)
