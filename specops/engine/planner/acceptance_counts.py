"""Counts of accepted tokens in which older observations weigh less. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from specops.engine.tree import Topology

MEMORY = 256
"""Observations after which one weighs 1/e of a new one. A traffic that changes is followed within a few
hundred verifications, and a rate of 0.7 is known to about 0.04."""

SELDOM = 32
"""`MEMORY` for rare observations, between which the traffic may change."""

PRIOR = (0.6, 0.3, 0.2, 0.15)
"""Acceptance rates by rank, if the ranks before it were rejected: about those of small drafts
(`benchmarks/acceptance.py`)."""

PRIOR_WEIGHT = 8.0
"""Number of observations that the prior counts for, and at each depth the rate of the depth above."""

_HEAVY = 1e12


class _Fading:
    """Weights of observations. Instead of all counts shrinking at each observation, each new one weighs
    more."""

    def __init__(self) -> None:
        self.weight = 1.0

    def next(self, memory: int, *tables: list[list[float]]) -> float:
        self.weight *= 1 + 1 / memory
        if self.weight > _HEAVY:
            for table in tables:
                for row in table:
                    row[:] = [value / self.weight for value in row]
            self.weight = 1.0
        return self.weight


class TreeAcceptance:
    """Acceptance of trees that a draft grew: how often the child of each rank was accepted, if its parent
    was and its siblings before it were not. So rarely tried ranks do not distort the others."""

    def __init__(self, depth: int, ranks: int = len(PRIOR)) -> None:
        self._tried = [[0.0] * ranks for _ in range(depth)]
        self._accepted = [[0.0] * ranks for _ in range(depth)]
        self._fading = _Fading()

    def see(self, topology: Topology, path: Sequence[int], memory: int = MEMORY) -> None:
        """A tree was verified and the nodes on `path`, from below the root on, were accepted."""
        weight = self._fading.next(memory, self._tried, self._accepted)
        for depth, node in enumerate((0, *path)):
            children = topology.children[node]
            if not children or depth == len(self._tried):
                return
            right = topology.rank[path[depth]] if depth < len(path) else len(children)
            tried = self._tried[depth]
            for rank in range(min(len(children), right + 1, len(tried))):
                tried[rank] += weight
            if right < len(children) and right < len(tried):
                self._accepted[depth][right] += weight

    @property
    def observations(self) -> list[list[float]]:
        """Number of trials, [depth][rank]; old ones count for less."""
        return [[value / self._fading.weight for value in row] for row in self._tried]

    @property
    def rates(self) -> list[list[float]]:
        """rates[d][r] as tree_choice.py wants them. What was seldom tried is near what it is one level above,
        and the first level near the prior."""
        above, rows = list(PRIOR[: len(self._tried[0])]), []
        weight = PRIOR_WEIGHT * self._fading.weight
        for tried, accepted in zip(self._tried, self._accepted, strict=True):
            above = [
                (yes + weight * before) / (trials + weight)
                for yes, trials, before in zip(accepted, tried, above, strict=True)
            ]
            row, left = [], 1.0
            for rate in above:
                row.append(left * rate)
                left -= row[-1]
            rows.append(row)
        return rows


class CopyAcceptance:
    """Acceptance of copies (n-grams): how far a look-up goes, and how much of it is right."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._looks = [[0.0]]
        self._offered = [[0.0] * most]
        self._right = [[0.0] * most]
        self._fading = _Fading()

    def see(self, count: int, right: int) -> None:
        """A look-up gave `count` tokens, of which the first `right` are what was written."""
        weight = self._fading.next(MEMORY, self._looks, self._offered, self._right)
        self._looks[0][0] += weight
        for depth in range(min(count, self.most)):
            self._offered[0][depth] += weight
        for depth in range(min(right, self.most)):
            self._right[0][depth] += weight

    @property
    def observations(self) -> float:
        return self._looks[0][0] / self._fading.weight

    def expected(self, count: int) -> tuple[float, float]:
        """Expected (tokens a step, tokens drafted a step) with copies of up to `count` tokens; (1, 0)
        before the first look-up that found any."""
        looks = self._looks[0][0] + PRIOR_WEIGHT * self._fading.weight
        return 1 + sum(self._right[0][:count]) / looks, sum(self._offered[0][:count]) / looks

    def lengths(self, count: int) -> list[float]:
        """Shares of look-ups that give 0, 1, …, `count` tokens, with copies of up to `count` tokens."""
        looks = self._looks[0][0] + PRIOR_WEIGHT * self._fading.weight
        reached = [1.0, *(offered / looks for offered in self._offered[0][:count]), 0.0]
        return [share - further for share, further in pairwise(reached)]


@dataclass(frozen=True)
class Lengths:
    """Mean lengths of the last sequences that ended, in tokens."""

    prompt: float = 0.0
    written: float = 1.0


class FinishedLengths:
    """Lengths of sequences that have ended. A draft has to read their prompts."""

    def __init__(self) -> None:
        self._prompt, self._written, self._ended = [[0.0]], [[0.0]], [[0.0]]
        self._fading = _Fading()
        self.lengths = Lengths()
        """The means; a prompt of 0 tokens until a sequence has ended."""

    def see(self, prompt: int, written: int) -> None:
        if written == 0:
            return
        weight = self._fading.next(SELDOM, self._prompt, self._written, self._ended)
        self._prompt[0][0] += weight * prompt
        self._written[0][0] += weight * written
        self._ended[0][0] += weight
        ended = self._ended[0][0]
        self.lengths = Lengths(self._prompt[0][0] / ended, self._written[0][0] / ended)
