"""The dice follow the weights they are given; `distribution` cuts as temperature, top-k and top-p say."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import pytest
import torch
from chi_square import p_value
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specops.engine.request import Sampling
from specops.engine.rng import Dice, distribution

WEIGHTS = torch.tensor([0.05, 0.45, 0.0, 0.3, 0.2])
LIKELY = 1e-4  # below this, counts do not come from the distribution; the seeds are fixed


def test_the_chi_square_test_itself() -> None:
    """60 of 100 heads is 2 sigma: the two-sided tail of the normal distribution there is 0.0455."""
    fair = {"heads": 0.5, "tails": 0.5}
    assert p_value(Counter(heads=60, tails=40), fair) == pytest.approx(0.0455, abs=1e-4)
    assert p_value(Counter(heads=50, tails=50), fair) == 1
    assert p_value(Counter(heads=99, edge=1), fair) == 0


def test_accept_is_a_biased_coin() -> None:
    dice = Dice(0)
    counts = Counter(dice.accept(0.3) for _ in range(20_000))
    assert p_value(counts, {True: 0.3, False: 0.7}) > LIKELY
    assert p_value(counts, {True: 0.33, False: 0.67}) < LIKELY
    assert all(dice.accept(1.0) for _ in range(1000))
    assert not any(dice.accept(0.0) for _ in range(1000))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sample_follows_the_weights(dtype: torch.dtype) -> None:
    dice, weights = Dice(1), WEIGHTS.to(dtype)
    counts = Counter(dice.sample(2 * weights) for _ in range(20_000))  # they need not add up to 1
    assert p_value(counts, dict(enumerate(WEIGHTS.tolist()))) > LIKELY


def test_draws_with_replacement_are_independent() -> None:
    dice = Dice(2)
    counts = Counter(tuple(dice.draw(WEIGHTS, 2, replace=True)) for _ in range(20_000))
    expected = {
        (a, b): float(WEIGHTS[a] * WEIGHTS[b]) for a, b in product(range(5), repeat=2) if 2 not in (a, b)
    }
    assert p_value(counts, expected) > LIKELY


def test_draws_without_replacement_renormalise() -> None:
    dice = Dice(3)
    counts = Counter(tuple(dice.draw(WEIGHTS, 2, replace=False)) for _ in range(20_000))
    expected = {
        (a, b): float(WEIGHTS[a] * WEIGHTS[b] / (1 - WEIGHTS[a])) for a, b in permutations((0, 1, 3, 4), 2)
    }
    assert p_value(counts, expected) > LIKELY


def test_draws_without_replacement_end_with_the_support() -> None:
    dice = Dice(4)
    for _ in range(100):
        assert sorted(dice.draw(WEIGHTS, 5, replace=False)) == [0, 1, 3, 4]
        assert dice.draw(torch.tensor([0.0, 1.0]), 1, replace=False) == [1]


def test_a_seed_fixes_everything_and_none_fixes_nothing() -> None:
    def play(seed: int | None) -> list[object]:
        dice = Dice(seed)
        return [
            [dice.accept(0.5) for _ in range(64)],
            [dice.sample(WEIGHTS) for _ in range(64)],
            dice.draw(torch.ones(100), 20, replace=False),
        ]

    assert play(7) == play(7)
    assert play(7) != play(8)
    assert play(None) != play(None)


def naive_distribution(logits: Tensor, sampling: Sampling) -> list[float]:
    """Token by token, as the definitions read: the k best, then the fewest with top_p of the mass."""
    order = sorted(range(len(logits)), key=lambda token: -float(logits[token]))
    if sampling.top_k:
        order = order[: sampling.top_k]
    weights = {token: float(torch.exp(logits[token] / sampling.temperature)) for token in order}
    total, mass = sum(weights.values()), 0.0
    kept: dict[int, float] = {}
    for token in order:
        if kept and mass >= sampling.top_p:
            break
        kept[token] = weights[token] / total
        mass += kept[token]
    return [kept.get(token, 0.0) / sum(kept.values()) for token in range(len(logits))]


@given(
    logits=st.lists(st.integers(-40, 40), min_size=2, max_size=12, unique=True),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.5]),
    top_k=st.integers(0, 14),
    top_p=st.sampled_from([0.001, 0.1, 0.37, 0.5, 0.77, 0.9, 1.0]),
)
def test_distribution_is_its_definition(
    logits: list[int], temperature: float, top_k: int, top_p: float
) -> None:
    values = torch.tensor(logits, dtype=torch.float64) / 10
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    (found,) = distribution(values[None], sampling)
    assert found.tolist() == pytest.approx(naive_distribution(values, sampling), abs=1e-12)


@pytest.mark.parametrize("temperature", [1e-4, 1e-30, 1e30])
def test_extreme_temperatures_stay_a_distribution(temperature: float) -> None:
    (found,) = distribution(torch.tensor([[1.0, 30.0, -30.0, 29.0]]), Sampling(temperature=temperature))
    assert float(found.sum()) == pytest.approx(1.0)
    assert int(found.argmax()) == 1 or temperature == 1e30
