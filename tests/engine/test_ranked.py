"""The plan of one level is what it says: every token claims what the target gives it, and no more."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from specops.engine.tree import Draw
from specops.engine.verifiers.ranked import (
    Floats,
    Plan,
    _by_ratio,
    _of_independent,
    _of_two,
    _of_two_in_turn,
    _plan,
)

VOCABULARY = 5
WEIGHTS = st.lists(
    st.sampled_from([0.0, 1e-12, 1e-3, 0.1, 0.5, 1.0, 3.0, 1e6]), min_size=VOCABULARY, max_size=VOCABULARY
).filter(lambda weights: sum(weight > 0 for weight in weights) > 1)
"""From almost nothing to almost all, so that what is left after a token can be lost in a rounding."""


def distribution(weights: list[float]) -> Floats:
    values = np.array(weights)
    return values / values.sum()


def claimed(plan: Plan, order: NDArray[np.int64], draws: dict[tuple[int, ...], float]) -> Floats:
    """[V], what the tokens claim of all draws together, each draw's tokens tried in the plan's order."""
    place = {int(token): number for number, token in enumerate(order)}
    total = np.zeros(VOCABULARY)
    for tokens, probability in draws.items():
        reached = probability
        for share, token in zip(plan[0], sorted(tokens, key=place.__getitem__), strict=True):
            here = float(share[place[token]])
            assert 0 <= here <= 1
            total[token] += reached * here
            reached *= 1 - here
    return total


def check(plan: Plan, order: NDArray[np.int64], m: Floats, draws: dict[tuple[int, ...], float]) -> None:
    assert sum(draws.values()) == pytest.approx(1.0, abs=1e-12)
    left = m.copy()
    left[order] = plan[1]
    assert claimed(plan, order, draws) == pytest.approx(m - left, abs=1e-12)
    assert left.min() >= 0


@given(WEIGHTS, WEIGHTS, st.sampled_from([1.0, 0.3]))
@settings(max_examples=60, deadline=None)
def test_two_draws_without_replacement(p: list[float], q: list[float], weight: float) -> None:
    m, drawn = weight * distribution(p), distribution(q)
    order = _by_ratio(m, drawn)
    draws = {
        (x, y): drawn[x]
        * drawn[y]
        / (drawn.sum() - drawn[x] if drawn[x] < 0.5 else np.delete(drawn, x).sum())
        for x, y in permutations(order.tolist(), 2)
    }
    check(_of_two(m[order], drawn[order]), order, m, draws)


@given(WEIGHTS, WEIGHTS, st.sampled_from([1.0, 0.3]), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_independent_draws(p: list[float], q: list[float], weight: float, count: int) -> None:
    m, drawn = weight * distribution(p), distribution(q)
    order = _by_ratio(m, drawn)
    draws = {
        tokens: float(np.prod([drawn[token] for token in tokens]))
        for tokens in product(order.tolist(), repeat=count)
    }
    check(_of_independent(m[order], drawn[order], count), order, m, draws)


@given(WEIGHTS, WEIGHTS, st.sampled_from([1.0, 0.3]))
@settings(max_examples=60, deadline=None)
def test_what_the_order_drawn_would_claim(p: list[float], q: list[float], weight: float) -> None:
    """Against one draw after the other; where that is more, it is what is done."""
    m, drawn = weight * distribution(p), distribution(q)
    order = _by_ratio(m, drawn)
    m, drawn = m[order], drawn[order]
    first = np.minimum(m, drawn)
    rest, reached = m - first, 1 - first.sum()
    claimed = first.sum()
    for x in range(len(order)):
        after = np.delete(drawn, x) / np.delete(drawn, x).sum()
        if reached > 1e-9:
            claimed += (drawn[x] - first[x]) * np.minimum(np.delete(rest, x) / reached, after).sum()
    assert _of_two_in_turn(m, drawn) == pytest.approx(claimed, abs=1e-8)


@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT])
def test_a_draft_that_is_the_target_is_tried_in_the_order_drawn(draw: Draw) -> None:
    """The first draw is accepted then; by rank, the first in rank would have to give way."""
    p = distribution([0.1, 0.5, 1.0, 3.0, 0.2])
    assert _plan(p, p, 2, draw) is None
    q = distribution([3.0, 1.0, 1.0, 0.1, 0.2])
    order = _by_ratio(p, q)
    assert _plan(p[order], q[order], 2, draw) is not None
