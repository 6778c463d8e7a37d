"""Exact acceptance of copied drafts along a written answer, from its tokens alone.

Copies follow from the tokens before them, and a greedy answer is accepted exactly where the copy agrees with
it. The drafters themselves draft: nothing of them is written a second time.

n-grams: what a drafter learned at a place does not depend on how its steps lay, and a draft of k tokens is
the beginning of any longer one. So one pass drafts once at each token, and every k is a walk over that.

Suffix trees learn from their own steps. Sizes whose steps lay at the same places have the same state, and
then the smaller tree is the beginning of the larger one. So sizes share the work until their steps differ.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from specops.engine.drafters.ngram import Place
from specops.engine.drafters.suffix import Branches, Followed, Texts, likeliest
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence as Decoded
from specops.serving import PlaceDrafts, Steps


def decoded(prompt: Sequence[int], limit: int) -> Decoded:
    """A sequence that may generate up to `limit` tokens, as the engine holds it."""
    room = len(prompt) + limit
    return Decoded(
        0,
        list(prompt),
        Sampling(max_tokens=limit),
        room=room,
        chunk=max(room, 1),
        eos=frozenset(),
        tokenizer=None,
    )


def ngram_drafts(prompt: Sequence[int], written: Sequence[int], most: int, limit: int) -> PlaceDrafts:
    """Drafts of up to `most` n-gram tokens before each token of `written`. `limit`: the most tokens that the
    answer could have had, at least those that it has."""
    sequence, place = decoded(prompt, limit), Place()
    drafted, accepted = [], []
    for index, token in enumerate(written):
        draft, _ = place.copy(sequence, min(most, sequence.depth_left))
        matching, left = 0, len(written) - index
        while matching < min(len(draft), left) and draft[matching] == written[index + matching]:
            matching += 1
        drafted.append(len(draft))
        accepted.append(matching)
        sequence.tokens.append(token)
    return PlaceDrafts(drafted, accepted)


@dataclass
class _Walk:
    """Sizes of trees whose steps lay at the same places of the current answer so far."""

    sizes: list[int]
    followed: Followed
    next: int = 0
    """Tokens of the answer before the next step."""


class SuffixDrafts:
    """Suffix trees of several sizes over answers in the order in which one server would serve them, one at a
    time. Later answers copy from earlier ones."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sorted(set(sizes))
        self._texts = Texts()
        self._answers = 0

    def steps(self, prompt: Sequence[int], written: Sequence[int], limit: int) -> dict[int, Steps]:
        """The steps of the next answer, by size; `limit` as for `ngram_drafts`."""
        self._answers += 1
        sequence, number = decoded(prompt, limit), self._answers
        tokens = sequence.tokens
        steps: dict[int, Steps] = {size: [] for size in self._sizes}
        walks = [_Walk(list(self._sizes), Followed(len(tokens)))]
        for index, token in enumerate(written):
            stepping = [walk for walk in walks if walk.next == index]
            if stepping and sequence.depth_left > 0:
                self._texts.extend(number, tokens)
                matches = self._texts.matches(tokens)
                for walk in stepping:
                    walk.followed.learn(tokens)
                    walk.followed.matches = matches
                    branches = likeliest(matches, walk.followed.holding, walk.sizes[-1], sequence.depth_left)
                    path = _accepted_path(branches, written, index)
                    by_accepted: dict[int, list[int]] = {}
                    for size in walk.sizes:
                        accepted = sum(node <= size for node in path)
                        steps[size].append((min(size, len(branches.tokens)), accepted))
                        by_accepted.setdefault(accepted, []).append(size)
                    (accepted, walk.sizes), *differing = by_accepted.items()
                    walk.next = index + accepted + 1
                    for accepted, sizes in differing:
                        followed = copy.copy(walk.followed)
                        followed.holding = copy.deepcopy(walk.followed.holding)
                        walks.append(_Walk(sizes, followed, index + accepted + 1))
            else:
                for walk in stepping:
                    for size in walk.sizes:
                        steps[size].append((0, 0))
                    walk.next = index + 1
            tokens.append(token)
        self._texts.extend(number, tokens)
        self._texts.end(number)
        return steps


def _accepted_path(branches: Branches, written: Sequence[int], index: int) -> list[int]:
    """The nodes of the tree, from below its root, that are the tokens of `written` from `index` on."""
    path: list[int] = []
    parent, end = 0, len(written)
    for node, token in enumerate(branches.tokens, start=1):  # a node comes after its parent
        place = index + len(path)
        if place < end and branches.parents[node] == parent and token == written[place]:
            path.append(node)
            parent = node
    return path
