"""What starting a server anew, and the machine's drift, add to the error of a speed-up. Pure.

All prompts of a start share it, so they are no independent evidence on it. It shows in three places: between
the two turns of a standard, which are two starts and the drift in between; between the two turns of a setting
that was measured twice in a rung; and between the rungs of a setting, each of which has starts of its own.
Each exceeds what the scatter of requests explains by a known multiple of the variance that one start adds to
the logarithm of a latency. That variance is pooled over all settings, since it is the machine's and not a
setting's: one setting's two rungs would say next to nothing. A one-way random-effects estimate by moments, as
`stats.start_effect`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from specops.stats import MIN_PAIRS, Starts

Taken = tuple[float, float]
"""What the standard took and what the setting did."""


@dataclass(frozen=True)
class Turns:
    """What one setting took at its first start in a rung, and at its second."""

    rung: int
    machine: str
    taken: Mapping[str, Taken]


@dataclass(frozen=True)
class Block:
    """A setting in one rung, with the standard that it is compared with."""

    taken: Mapping[str, Taken]
    share: float | None
    """Of the way between the standard's two turns, whose mean by time it is compared with; None: one turn."""

    own: int = 1
    """Starts of the setting itself that `taken` is the mean of."""

    @property
    def starts(self) -> float:
        """How many times one start's variance the ratio's logarithm has: its own, and the standard's."""
        standard = 1.0 if self.share is None else self.share**2 + (1 - self.share) ** 2
        return 1 / self.own + standard

    @property
    def shared(self) -> float:
        """The part of it that is the standard's, which the settings of a rung have in common."""
        return 1 - 1 / (self.own * self.starts)

    @property
    def weight(self) -> float:
        return sum(ours for ours, _ in self.taken.values())


@dataclass(frozen=True)
class OneStart:
    variance: float
    """That one start adds to the logarithm of a latency."""

    freedom: float

    def over(self, blocks: Sequence[Block]) -> Starts | None:
        """What it adds to a ratio over all of `blocks`, which weigh what they take."""
        whole = sum(block.weight for block in blocks)
        if not whole or not self.variance:
            return None
        shares = sum((block.weight / whole) ** 2 * block.starts for block in blocks)
        return Starts(self.variance * shares, self.freedom)


def one_start(turns: Sequence[Turns], repeated: Mapping[str, Sequence[Block]]) -> OneStart | None:
    """From all settings' turns and each setting's blocks; None with neither two turns nor two rungs."""
    squares = noise = expected = freedom = 0.0
    for turn in turns:
        if len(turn.taken) >= 2:
            before, after = _columns([turn.taken], list(turn.taken))
            squares += float(_log_ratios(before, after)[0] ** 2)
            noise += float(_scatter(before, after)[0])
            expected += 2.0
            freedom += 1
    rungs = [[block for block in blocks if len(block.taken) >= MIN_PAIRS] for blocks in repeated.values()]
    rungs = [known for known in rungs if len(known) >= 2]
    shared = fmean(block.shared for known in rungs for block in known) if rungs else 0.0
    # Settings of the same rungs vary together with their standard: so many are worth fewer.
    worth = 1 / (1 + max(0, len(rungs) - 1) * shared**2)
    for known in rungs:
        if known:
            logs, scatter = _between([block.taken for block in known])
            squares += float(((logs - logs.mean()) ** 2).sum())
            noise += scatter
            expected += sum(block.starts for block in known) * (1 - 1 / len(known))
            freedom += worth * (len(known) - 1)
    if not freedom:
        return None
    excess = max(0.0, squares - noise)
    return OneStart(excess / expected, freedom * (excess / squares) ** 2 if squares else float(freedom))


def _between(taken: Sequence[Mapping[str, Taken]]) -> tuple[NDArray[np.float64], float]:
    """The logarithm of each block's ratio, and the sum of squares that its requests' scatter explains.

    Over prompts that all blocks have, where there are enough: what is a prompt's own cancels between them.
    """
    common = sorted(set.intersection(*(set(block) for block in taken)))
    if len(common) >= MIN_PAIRS:
        before, after = _columns(taken, common)
        pulls = _pulls(before, after)
        scatter = float(((pulls - pulls.mean(axis=0)) ** 2).sum()) / (len(common) * (len(common) - 1))
        return _log_ratios(before, after), scatter
    columns = [_columns([block], sorted(block)) for block in taken]
    logs = np.array([_log_ratios(*both)[0] for both in columns])
    scatters = [float(_scatter(*both)[0]) for both in columns]
    return logs, sum(scatters) * (1 - 1 / len(scatters))


def _columns(
    taken: Sequence[Mapping[str, Taken]], prompts: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What both took, [blocks, prompts] each."""
    both = np.array([[block[prompt] for prompt in prompts] for block in taken], dtype=np.float64)
    return both[:, :, 0], both[:, :, 1]


def _log_ratios(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    ratios: NDArray[np.float64] = np.log(before.mean(axis=1) / after.mean(axis=1))
    return ratios


def _pulls(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each prompt does to the logarithm of its block's ratio, [blocks, prompts]; divided by n."""
    pulls: NDArray[np.float64] = before / before.mean(axis=1, keepdims=True) - after / after.mean(
        axis=1, keepdims=True
    )
    return pulls


def _scatter(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    """The variance of each block's ratio that its own prompts explain, [blocks]."""
    n = before.shape[1]
    explained: NDArray[np.float64] = (_pulls(before, after) ** 2).sum(axis=1) / (n * (n - 1))
    return explained
