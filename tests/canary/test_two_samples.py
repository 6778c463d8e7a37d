"""Two samples of one distribution are mostly not told apart, and two of others are."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.phases.canary import two_samples
from specops.phases.canary.two_samples import SampledAnswer

pytestmark = pytest.mark.usefixtures("few_permutations")
WORDS = ["def", " ", "self", "(", ")", ".", "return", "x"]


@pytest.fixture(scope="module")
def few_permutations() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_samples, "PERMUTATIONS", 1200)
        yield


def drawn(rng: random.Random, weights: list[float], count: int) -> list[SampledAnswer]:
    return [SampledAnswer("".join(rng.choices(WORDS, weights, k=6)), rng.gauss(0, 0.3)) for _ in range(count)]


def test_a_true_null_is_rejected_as_often_as_it_says() -> None:
    rng, weights = random.Random(0), [5.0, 9, 4, 4, 3, 8, 2, 1]
    found = [two_samples.p_value([drawn(rng, weights, 32)], [drawn(rng, weights, 32)]) for _ in range(60)]
    assert sum(p <= 0.05 for p in found) <= 6  # of 40: more has a chance of 0.3% at 5%
    assert 0.2 < sum(found) / len(found) < 0.95


def test_texts_of_another_distribution_are_found() -> None:
    rng = random.Random(1)
    ours = [drawn(rng, [5, 9, 4, 4, 3, 8, 2, 1], 64)]
    theirs = [drawn(rng, [9, 2, 1, 9, 1, 2, 8, 4], 64)]
    assert two_samples.p_value(ours, theirs) < 0.005


def test_tokens_that_are_too_unlikely_are_found_in_texts_that_are_alike() -> None:
    rng = random.Random(5)
    ours = [[SampledAnswer("x", rng.gauss(0, 0.3)) for _ in range(64)]]
    theirs = [[SampledAnswer("x", rng.gauss(-0.3, 0.3)) for _ in range(64)]]
    assert two_samples.p_value(ours, theirs) < 0.005


def test_what_would_be_seen_is_seen_as_often_as_it_says() -> None:
    rng = random.Random(3)
    ours = [[SampledAnswer("x", rng.gauss(0, 0.3)) for _ in range(64)]]
    shown = two_samples.detectable_differences(ours, 0.02)
    assert shown.pieces is None  # all texts are the same
    assert shown.nats == pytest.approx((2.576 + 1.282) * 0.3 * math.sqrt(2 / 64), rel=0.2)
    found = 0
    for _ in range(30):
        theirs = [[SampledAnswer("x", rng.gauss(shown.nats, 0.3)) for _ in range(64)]]
        found += two_samples.p_value(ours, theirs) <= 0.02
    assert found >= 18


def test_more_samples_show_less() -> None:
    rng, weights = random.Random(4), [5.0, 9, 4, 4, 3, 8, 2, 1]
    few, many = (
        two_samples.detectable_differences([drawn(rng, weights, count)], 0.01).pieces for count in (48, 400)
    )
    assert many is not None
    assert few is None or many < few


@settings(max_examples=15)
@given(st.lists(st.text(max_size=30), min_size=2, max_size=12))
def test_any_text_is_taken(texts: list[str]) -> None:
    ours = [[SampledAnswer(text) for text in texts]]
    assert two_samples.p_value(ours, ours) > 0.5  # nothing can be more alike
    assert two_samples.detectable_differences(ours, 0.01).nats is None


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=5))
def test_what_is_expected_is_the_mean_log_probability(weights: list[float]) -> None:
    total = sum(weights)
    top = [math.log(weight / total) for weight in weights]
    mean = sum(weight / total * math.log(weight / total) for weight in weights)
    assert two_samples.expected(top) == pytest.approx(mean, abs=1e-6)
