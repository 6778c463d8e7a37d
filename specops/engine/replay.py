"""How many steps a tree would have taken for a text that the target wrote. Pure.

A step begins at a root and goes as far down as its tree's nodes were right, then one token further. So where
the next root lies follows from what would have been accepted, and the expected number of steps follows
from the probability of each position to be a root, from the first on. That is exact, draft by draft,
where rates by depth would have to take steps for independent: easy stretches of a text come together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specops.engine.drafters.ngram import NGram
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence as Decoded

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """What the target wrote after a prompt, and how a draft would have fared on it."""

    prompt: tuple[int, ...]
    written: tuple[int, ...]  # n tokens
    hits: Floats
    """[depths, n, ranks]: the probability that a written token, being at this depth of a tree whose nodes
    above it were accepted, is the accepted child of this rank. The last depth stands for deeper ones."""

    opens_bare: bool
    """Whether the step that reads the end of the prompt has no draft."""

    def accepted(self, widths: Sequence[int]) -> Floats:
        """[n, depth]: from a root before each token, the probability that the expansion <widths> is accepted
        to each depth. Nothing after the last token is."""
        n, depths = len(self.written), len(self.hits)
        found = np.zeros((n, len(widths)))
        chance = np.ones(n)
        for depth, width in enumerate(widths):
            at = np.zeros(n)
            at[: max(n - depth, 0)] = self.hits[min(depth, depths - 1), depth:, :width].sum(-1)
            chance = chance * at
            found[:, depth] = chance
        return found

    def steps(self, widths: Sequence[int]) -> float:
        """Expected, with the expansion <widths>, the step that reads the prompt included."""
        n, depth = len(self.written), len(widths)
        reached = np.concatenate((np.ones((n, 1)), self.accepted(widths), np.zeros((n, 1))), axis=1)
        ends = -np.diff(reached)  # [n, depth + 1]: after 0, 1, … accepted tokens
        root = np.zeros(n + depth + 2)
        root[0] = 1.0
        for place in range(n):
            if place == 0 and self.opens_bare:
                root[1] = 1.0
            else:
                root[place + 1 : place + depth + 2] += root[place] * ends[place]
        return float(root[:n].sum())


@dataclass(frozen=True)
class Table:
    """Acceptance by depth and rank, over the roots of some traces, along each tree's first choices."""

    parents: Floats
    """[depths]: how many nodes were accepted, by their first choices from the root, whose children count."""

    accepted: Floats
    """[depths, ranks]: how many of their children of each rank were."""

    @property
    def rates(self) -> Floats:
        """[depths, ranks]; 0 where there was no parent."""
        rates: Floats = self.accepted / np.where(self.parents > 0, self.parents, 1)[:, None]
        return rates


def table(traces: Sequence[Trace], depth: int) -> Table:
    """Every position is a root. `depth` levels."""
    ranks = max(trace.hits.shape[-1] for trace in traces)
    parents, accepted = np.zeros(depth), np.zeros((depth, ranks))
    for trace in traces:
        n, roots = len(trace.written), int(trace.opens_bare)
        weight = np.zeros(n)
        weight[roots:] = 1.0
        for below in range(min(depth, n)):
            hits = trace.hits[min(below, len(trace.hits) - 1), below:]  # of roots 0 to n - below
            weight = weight[: n - below]
            parents[below] += weight.sum()
            accepted[below, : hits.shape[-1]] += weight @ hits
            weight = weight * hits[:, 0]
    return Table(parents, accepted)


def copied(trace: Trace, count: int) -> list[int]:
    """With n-gram drafts of up to `count` tokens: how many were drafted at each step, the first included.

    By the drafter itself, which looks at the tokens alone. A copied token is right or it is not, greedily
    and under naive verification, which is lossless for it.
    """
    drafter = NGram(count)
    prompt, whole = list(trace.prompt), [*trace.prompt, *trace.written]
    sequence = Decoded(
        0,
        prompt,
        Sampling(max_tokens=len(trace.written)),
        room=len(whole),
        chunk=len(whole),
        eos=frozenset(),
        tokenizer=None,
    )
    drafted = []
    while len(sequence.tokens) < len(whole):
        draft = drafter.draft([sequence])[0].tokens[1:]
        place = len(sequence.tokens)
        right = 0
        while right < len(draft) and draft[right] == whole[place + right]:
            right += 1
        sequence.tokens += whole[place : place + right + 1]
        drafted.append(len(draft))
    return drafted
