"""Suffix drafts (SuffixDecoding, arXiv 2411.04975): a tree of what followed the last tokens before.

Before means: earlier in the sequence, its prompt included, or in any that the engine has observed of late.
The paper keeps suffix trees. Here the places that follow a pair of tokens are indexed by the pair, and a
look-up finds how far back each place is like the sequence: what a suffix tree would answer for matches of
two tokens or more, in constant time for a token, and from an index that can forget its oldest texts.

What may follow is weighed by how often it did, longer matches first: with the probability that a match of
the longest length goes on, it goes on as its places do; else as those of the next shorter length do.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Batch
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby

from torch import Tensor

from specops.engine.draft import Recipe
from specops.engine.drafters.ngram import LONGEST_MATCH, MatchLengths, alike
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology
from specops.trees import TreeSpec

WORTH = 0.2
"""Odds below which a node is not drafted: of a text that went on in two ways, both are worth a node."""

MOST_PLACES = 16
"""Number of places that a look-up uses, the newest first. Common pairs have thousands, and the newest
predict best."""

MOST_TOKENS = 262_144
"""Number of tokens of ended sequences above which the oldest sequence is forgotten; about 30 MB."""


@dataclass(frozen=True, slots=True)
class Match:
    """A place whose last `length` tokens are the sequence's."""

    text: list[int]
    next: int  # of the token that follows there; the end of the text where none does yet
    length: int

    def follow(self, token: int) -> Match | None:
        if self.next < len(self.text) and self.text[self.next] == token:
            return Match(self.text, self.next + 1, min(self.length + 1, LONGEST_MATCH))
        return None


class Texts:
    """The observed texts, by sequence. A sequence's list of tokens is stored as it is, without a copy."""

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        self._most_tokens = most_tokens
        self._texts: dict[int, list[int]] = {}  # the oldest first
        self._indexed: dict[int, int] = {}  # tokens of each that are indexed
        self._ended: dict[int, None] = {}  # the first that ended first
        self._ended_tokens = 0
        self._after: dict[tuple[int, int], list[tuple[int, int]]] = {}  # of a pair: (sequence, next token)

    def extend(self, id: int, tokens: list[int]) -> None:
        """`tokens` is the text so far, the same list each time."""
        self._texts[id] = tokens
        for place in range(max(self._indexed.get(id, 0), 2), len(tokens)):
            places = self._after.setdefault((tokens[place - 2], tokens[place - 1]), [])
            places.append((id, place))
            if len(places) > 2 * MOST_PLACES:
                del places[:-MOST_PLACES]
        self._indexed[id] = len(tokens)

    def end(self, id: int) -> None:
        """Record that nothing more comes of this text. The oldest ended ones are forgotten."""
        if id not in self._texts:
            return
        self._ended[id] = None
        self._ended_tokens += self._indexed[id]
        while self._ended_tokens > self._most_tokens:
            self._forget(next(iter(self._ended)))

    def matches(self, tokens: list[int]) -> list[Match]:
        """Places after the last two of the tokens, the newest first."""
        if len(tokens) < 2:
            return []
        places = self._after.get((tokens[-2], tokens[-1]), [])[-MOST_PLACES:]
        matches = []
        for id, place in reversed(places):
            text = self._texts[id]
            matches.append(Match(text, place, alike(text, place, tokens, len(tokens))))
        return matches

    def __len__(self) -> int:
        """Tokens that are indexed."""
        return sum(self._indexed.values())

    def _forget(self, id: int) -> None:
        tokens, indexed = self._texts.pop(id), self._indexed.pop(id)
        del self._ended[id]
        self._ended_tokens -= indexed
        for place in range(2, indexed):
            pair = tokens[place - 2], tokens[place - 1]
            left = [entry for entry in self._after.get(pair, ()) if entry[0] != id]
            if left:
                self._after[pair] = left
            else:
                self._after.pop(pair, None)


@dataclass(frozen=True)
class Branches:
    """A tree without its root's token."""

    parents: list[int]  # by node, the root's being -1
    tokens: list[int]  # of the nodes but the root
    odds: list[float]  # by node


def likeliest(matches: list[Match], holding: MatchLengths, count: int, depth: int) -> Branches:
    """The `count` likeliest nodes of up to `depth` tokens that continue the matches.

    Likelier nodes come first, and so each node after its parent; of equal ones the one that was found first.
    """
    branches = Branches([-1], [], [1.0])
    depths = [0]  # depth by node
    # What may be added: (-odds, when it was found, parent, token, the matches that go on with it)
    waiting: list[tuple[float, int, int, int, list[Match]]] = []
    when = 0
    node, continued = 0, matches
    while True:
        if depths[node] < depth:
            for token, chance, further in continuations(continued, holding):
                if branches.odds[node] * chance >= WORTH:
                    heappush(waiting, (-branches.odds[node] * chance, when, node, token, further))
                    when += 1
        if not waiting or len(branches.tokens) == count:
            return branches
        less_odds, _, parent, token, continued = heappop(waiting)
        node = len(branches.parents)
        branches.parents.append(parent)
        branches.tokens.append(token)
        branches.odds.append(-less_odds)
        depths.append(depths[parent] + 1)


def continuations(matches: list[Match], holding: MatchLengths) -> Iterator[tuple[int, float, list[Match]]]:
    """The possible next tokens, each once: (token, probability, matches that go on with it)."""
    going_on = [match for match in matches if match.next < len(match.text)]
    if len(going_on) == 1:  # most places of a text occurred once before
        match = going_on[0]
        token = match.text[match.next]
        yield token, holding.chance(match.length), [Match(match.text, match.next + 1, match.length + 1)]
        return
    by_length = sorted(going_on, key=lambda match: -match.length)
    counts: dict[int, int] = {}
    chances: dict[int, float] = {}
    left, observed = 1.0, 0
    for length, group in groupby(by_length, key=lambda match: match.length):
        for match in group:
            token = match.text[match.next]
            counts[token] = counts.get(token, 0) + 1
            observed += 1
        goes_on = holding.chance(length)
        for token, times in counts.items():
            chances[token] = chances.get(token, 0.0) + left * goes_on * times / observed
        left *= 1 - goes_on
    for token, chance in chances.items():
        yield token, chance, [further for match in going_on if (further := match.follow(token)) is not None]


class Suffix:
    draws = Draw.DETERMINISTIC
    reads_features = False
    caches = ()

    def __init__(self, count: int) -> None:
        self.nodes = self.depth = count
        self._texts = Texts()
        self._followed: dict[int, Followed] = {}  # by sequence

    @classmethod
    def from_spec(cls, spec: TreeSpec, recipe: Recipe) -> Suffix:
        return cls(spec.nodes)

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        return [self._tree(sequence) for sequence in sequences]

    def _tree(self, sequence: Sequence) -> TokenTree:
        tokens = sequence.tokens
        if sequence.reading or sequence.depth_left <= 0:
            return TokenTree.bare(tokens[-1])
        followed = self._followed.setdefault(sequence.id, Followed(len(tokens)))
        followed.learn(tokens)
        self._texts.extend(sequence.id, tokens)
        followed.matches = self._texts.matches(tokens)
        branches = likeliest(followed.matches, followed.holding, self.nodes, sequence.depth_left)
        topology = Topology.from_parents(tuple(branches.parents))
        return TokenTree(topology, [tokens[-1], *branches.tokens], self.draws, odds=tuple(branches.odds))

    def commit(self, sequence: Sequence, path: list[int], features: Tensor | None) -> None: ...

    def move(self, sequence: Sequence, row: int) -> None: ...

    def release(self, sequence: Sequence) -> None:
        self._followed.pop(sequence.id, None)
        self._texts.extend(sequence.id, sequence.tokens)
        self._texts.end(sequence.id)


class Followed:
    """The matches of one sequence's last look-up, and which went on."""

    def __init__(self, learned: int) -> None:
        self.holding = MatchLengths()
        self.matches: list[Match] = []
        self._learned = learned

    def learn(self, tokens: list[int]) -> None:
        for token in tokens[self._learned :]:
            self.matches = [match for match in self.matches if match.next < len(match.text)]
            further = [match.follow(token) for match in self.matches]
            for length in sorted({match.length for match in self.matches}, reverse=True):
                right = any(
                    after is not None and match.length >= length
                    for match, after in zip(self.matches, further, strict=True)
                )
                self.holding.learn(length, right)
                if right:  # shorter matches would not have been tried
                    break
            self.matches = [match for match in further if match is not None]
        self._learned = len(tokens)
