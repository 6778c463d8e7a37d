"""The tool that proves the others: enumeration visits every outcome once, with its exact weight."""

from __future__ import annotations

from itertools import permutations, product

import pytest
import torch
from enumeration import Script, distribution_of, outcomes, total_variation


def test_accept_has_both_outcomes_with_their_weights() -> None:
    assert distribution_of(lambda chance: chance.accept(0.3)) == {True: 0.3, False: 0.7}


@pytest.mark.parametrize(("probability", "answer"), [(1.0, True), (0.0, False)])
def test_a_certain_answer_does_not_branch(probability: float, answer: bool) -> None:
    assert list(outcomes(lambda chance: chance.accept(probability))) == [(answer, 1.0)]


def test_sample_normalises_and_leaves_out_what_cannot_happen() -> None:
    weights = torch.tensor([1.0, 0.0, 3.0])
    assert distribution_of(lambda chance: chance.sample(weights)) == {0: 0.25, 2: 0.75}


def test_draws_with_replacement_multiply() -> None:
    q = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    found = distribution_of(lambda chance: tuple(chance.draw(q, 2, replace=True)))
    expected = {(a, b): float(q[a] * q[b]) for a, b in product(range(3), repeat=2)}
    assert total_variation(found, expected) < 1e-15


def test_draws_without_replacement_renormalise() -> None:
    q = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    found = distribution_of(lambda chance: tuple(chance.draw(q, 2, replace=False)))
    expected = {(a, b): float(q[a] * q[b] / (1 - q[a])) for a, b in permutations(range(3), 2)}
    assert total_variation(found, expected) < 1e-15


def test_draws_without_replacement_end_with_the_support() -> None:
    q = torch.tensor([0.5, 0.0, 0.5])
    found = distribution_of(lambda chance: tuple(chance.draw(q, 3, replace=False)))
    assert found == {(0, 2): 0.5, (2, 0): 0.5}


def test_later_questions_may_depend_on_earlier_answers() -> None:
    def tosses_until_heads(chance: Script) -> int:
        tosses = 1
        while tosses < 4 and not chance.accept(0.5):
            tosses += 1
        return tosses

    found = distribution_of(tosses_until_heads)
    assert found == {1: 0.5, 2: 0.25, 3: 0.125, 4: 0.125}


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
def test_nonsense_is_refused_rather_than_enumerated(probability: float) -> None:
    with pytest.raises(ValueError, match="is no probability"):
        Script([]).accept(probability)
    with pytest.raises(ValueError, match="cannot sample"):
        Script([]).sample(torch.tensor([0.5, -0.5]))
    with pytest.raises(ValueError, match="cannot sample"):
        Script([]).sample(torch.tensor([0.0, 0.0]))


def test_total_variation_of_known_pairs() -> None:
    assert total_variation({"a": 1.0}, {"a": 1.0}) == 0
    assert total_variation({"a": 1.0}, {"b": 1.0}) == 1
    assert total_variation({"a": 0.5, "b": 0.5}, {"a": 0.8, "b": 0.2}) == pytest.approx(0.3)
