"""Draft distributions in whole numbers: valid, near what they are of, and drawn from to the last bit."""

from __future__ import annotations

import pytest
import torch
from enumeration import distribution_of as every_outcome
from hypothesis import given
from hypothesis import strategies as st

from specops.edge.quantisation import WHOLE, ClientDistributions, Quantised, joined, quantise

probabilities = st.lists(st.floats(0, 1), min_size=2, max_size=60).filter(lambda row: sum(row) > 1e-3)


@given(probabilities, st.integers(1, 40))
def test_weights_are_whole_and_the_largest_tokens_keep_theirs(row: list[float], support: int) -> None:
    q = torch.tensor(row, dtype=torch.float64)
    q = q / q.sum()
    (made,) = quantise(q[None], support)
    assert sum(made.weights) == WHOLE
    assert min(made.weights) >= 1
    assert list(made.tokens) == sorted(set(made.tokens))
    assert len(made.tokens) <= support
    best = q.topk(min(support, len(row))).values
    for token, weight in zip(made.tokens, made.weights, strict=True):
        exact = float(q[token] / best.sum()) * WHOLE
        assert exact - 1 <= weight <= exact + support + 1
        assert float(q[token]) >= float(best[-1])


@given(st.lists(probabilities, min_size=1, max_size=5), st.integers(1, 8))
def test_the_server_has_what_the_client_drew_from(rows: list[list[float]], support: int) -> None:
    vocabulary = 64
    q = torch.zeros(len(rows), vocabulary)
    for index, row in enumerate(rows):
        q[index, : len(row)] = torch.tensor(row) / sum(row)
    drawn = quantise(q, support)
    there = ClientDistributions(joined(dict(enumerate(drawn))), vocabulary)
    assert there[len(rows)] == ()
    for node, each in enumerate(drawn):
        (row,) = there[node]
        exact = [0.0] * vocabulary
        for token, weight in zip(each.tokens, each.weights, strict=True):
            exact[token] = weight / WHOLE
        assert list(row) == exact  # to the last bit


def test_draws_are_successive_and_without_replacement() -> None:
    q = Quantised((3, 5, 9), (WHOLE // 2, WHOLE // 4, WHOLE // 4))
    found = every_outcome(lambda chance: tuple(q.draw(chance, 2)))
    expected = {(3, 5): 1 / 4, (3, 9): 1 / 4, (5, 3): 1 / 6, (5, 9): 1 / 12, (9, 3): 1 / 6, (9, 5): 1 / 12}
    assert found == pytest.approx(expected, abs=1e-12)


def test_no_more_is_drawn_than_there_is() -> None:
    (one_hot,) = quantise(torch.tensor([[0.0, 1.0, 0.0]]), 3)
    assert one_hot == Quantised((1,), (WHOLE,))
    assert every_outcome(lambda chance: tuple(one_hot.draw(chance, 2))) == {(1,): 1.0}
