"""The cost of a step of speculation, the tokens that it must bring, and the cost of tokens where edges draft.
Pure.

A step verifies one draft: the target's pass over the draft and the last token yields the accepted tokens and
one token more. With k drafted tokens a step takes `step(k)` milliseconds; step(0) is a step of one token.
Speculation pays in decoding if the tokens of a step rise by more than its time:

    tokens a step > step(k) / step(0)

Leviathan, Kalman and Matias (ICML 2023, arXiv 2211.17192) write it as

    (1 - alpha^(k+1)) / (1 - alpha) > 1 + k c,     c = time of one drafted token / time of a target's pass

That assumes that every position is accepted with the same probability alpha, independently of the others,
that the target's pass over k + 1 tokens takes as long as over one, and that nothing else takes time. A
measured step(k) includes the real passes, the scheduler, sampling and the batch's other streams. Only alpha
remains an assumption, and `break_even_rate` does without it. The prompt is not counted.

Where a server verifies and edges draft, tokens cost

    money = server's price * server's seconds + edge's price * the sum of the edges' seconds

SpecEdge (arXiv 2505.17052) gives the inverse, thousands of tokens for a unit of money, as cost efficiency.
The caller decides which of a server's seconds count: all of them, if it serves nobody else, or the busy ones,
if others use the rest. For an edge, all seconds count in which somebody uses it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

HOUR_S = 3600.0


def tokens_a_step_iid(alpha: float, k: int) -> float:
    """Return where each of k positions is accepted with probability `alpha`, given that the one before
    was."""
    return math.fsum(alpha**i for i in range(k + 1))


def step_ms(tpot_ms: float, tokens: float) -> float:
    """Return what a step takes, by the mean time of a token of one stream and the mean tokens of a step."""
    return tpot_ms * tokens


@dataclass(frozen=True)
class StepCost:
    """step(k) = target_ms + draft_ms * k, the least-squares line over the k that were measured."""

    target_ms: float
    draft_ms: float
    """Milliseconds of one token more: to draft it, and to verify it."""

    residual: float | None
    """The root mean square of what the line misses, as a share of target_ms; None with two points, through
    which every line goes."""

    measured: tuple[int, ...]

    def step_ms(self, k: int) -> float:
        return self.target_ms + self.draft_ms * k


def fit_steps(steps: Mapping[int, float]) -> StepCost | None:
    """Fit the costs of steps to milliseconds a step by k. Returns None with fewer than two k, or where the
    line gives the target no time.

    A line is what k passes of a draft model cost. A head that drafts all its tokens in one pass, or a lookup,
    costs a step's overhead whatever k is, and the residual says so.
    """
    if len(steps) < 2:
        return None
    ks = np.array(sorted(steps), dtype=np.float64)
    step_ms = np.array([steps[int(k)] for k in ks])
    slope, intercept = (float(x) for x in np.polyfit(ks, step_ms, 1))
    if intercept <= 0:
        return None
    missed = step_ms - (intercept + slope * ks)
    residual = math.sqrt(float((missed**2).sum()) / (len(ks) - 2)) / intercept if len(ks) > 2 else None
    return StepCost(intercept, slope, residual, tuple(int(k) for k in ks))


def break_even_rate(drafted: float, ratio: float) -> float | None:
    """The share of drafted tokens that must be accepted for a step to pay: (ratio - 1) / drafted.

    `drafted` tokens a step on average, `ratio` = step(k) / step(0). This is the rate that a server's counters
    give, accepted over drafted tokens, so that an alert can watch it; a step yields 1 + drafted * rate tokens
    whatever the positions have to do with each other. 0 where a step costs no more than a plain one; None
    where even full acceptance would not pay.
    """
    if drafted <= 0 or ratio <= 0:
        raise ValueError(f"a step drafts tokens and takes time, not {drafted} and {ratio} times a plain one")
    rate = (ratio - 1) / drafted
    return None if rate > 1 else max(rate, 0.0)


def break_even_alpha(k: int, ratio: float) -> float | None:
    """Leviathan's alpha at which a step of k drafted tokens, `ratio` times as long, pays; by bisection.

    Between 0 and 1; 0 where a step costs no more than a plain one, None where even alpha = 1 would not pay.
    """
    if k < 1 or ratio <= 0:
        raise ValueError(f"a step drafts tokens and takes time, not {k} and {ratio} times a plain one")
    if ratio > k + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_a_step_iid(middle, k) < ratio else (low, middle)
    return high if ratio > 1 else 0.0


@dataclass(frozen=True)
class Position:
    """A place in a draft, and whether it earns its keep."""

    k: int
    """Number of tokens from 1: the draft cut after it has k tokens."""

    accepted: float
    """Share of all drafts accepted this far (unconditional)."""

    token_ms: float
    """What a token takes, by the line of step times, with the draft cut here."""

    pays: bool
    """Whether it brings more than it costs: accepted * (ms a token with the draft cut before it) >
    draft_ms."""


def positions(curve: Sequence[float], cost: StepCost) -> list[Position]:
    """Return every position of `curve`, unconditional acceptance from the first, with its marginal worth.

    One position more saves the time of the tokens it brings at the pace without it, and costs `draft_ms`:
    t(k) = step(k) / (1 + curve[0] + … + curve[k-1]) falls exactly where that saving is larger.
    """
    curve_positions = []
    before, tokens = cost.step_ms(0), 1.0
    for k, accepted in enumerate(curve, start=1):
        pays = accepted * before > cost.draft_ms
        tokens += accepted
        before = cost.step_ms(k) / tokens
        curve_positions.append(Position(k, accepted, before, pays))
    return curve_positions


def cut(positions: Sequence[Position]) -> int:
    """The last k before the first position that does not pay; 0 where none does.

    The curve falls and ms a token with it, so what does not pay ends what does.
    """
    for position in positions:
        if not position.pays:
            return position.k - 1
    return len(positions)


@dataclass(frozen=True)
class Prices:
    """Prices of one machine of each kind per hour, in any currency."""

    server_per_hour: float
    edge_per_hour: float
    """Price of an edge machine; 0 if its user owns it and would not use it otherwise."""

    def __post_init__(self) -> None:
        if self.server_per_hour <= 0 or self.edge_per_hour < 0:
            raise ValueError(f"invalid prices {self}: expected a server above 0 and an edge of at least 0")


@dataclass(frozen=True)
class TokenTime:
    """Tokens and the seconds of machines that they took."""

    tokens: int
    server_s: float
    edge_s: float
    """Seconds of all edges together; 0 if none drafts."""

    def money(self, prices: Prices) -> float:
        return (prices.server_per_hour * self.server_s + prices.edge_per_hour * self.edge_s) / HOUR_S

    def per_million(self, prices: Prices) -> float | None:
        """Money for a million tokens; None where there were none."""
        return self.money(prices) / self.tokens * 1e6 if self.tokens else None

    def thousands_per_unit(self, prices: Prices) -> float | None:
        """Thousands of tokens for one unit of money; None where nothing was spent."""
        money = self.money(prices)
        return self.tokens / money / 1000 if money > 0 else None
