"""Ratios of paired latencies: intervals that cover what they should, near and far out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, currently_in_test_context, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from specops import stats
from specops.stats import Interval, Starts

pairs = st.lists(st.tuples(st.floats(0.01, 1e3), st.floats(0.01, 1e3)), min_size=8, max_size=40)


def ratio(before: object, after: object, **options: object) -> Interval:
    """Of pairs among which no single one carries it all."""
    interval = stats.paired_ratio(before, after, **options)  # type: ignore[arg-type]
    if currently_in_test_context():
        assume(interval is not None)
    assert interval is not None
    return interval


@given(pairs)
def test_a_ratio_lies_among_those_of_its_pairs_and_within_its_interval(
    found: list[tuple[float, float]],
) -> None:
    before, after = [a for a, _ in found], [b for _, b in found]
    interval = ratio(before, after)
    ratios = [a / b for a, b in found]
    slack = 1e-9 * max(ratios)
    assert min(ratios) - slack <= interval.estimate <= max(ratios) + slack
    assert interval.low <= interval.estimate <= interval.high
    assert interval.estimate == pytest.approx(sum(before) / sum(after))


@given(pairs, st.sampled_from([0.25, 0.5, 2.0, 8.0]))
def test_a_ratio_scales(found: list[tuple[float, float]], factor: float) -> None:
    before, after = [a for a, _ in found], [b for _, b in found]
    one, two = ratio(before, after), ratio([a * factor for a in before], after)
    assert (two.low, two.high) == pytest.approx((one.low * factor, one.high * factor))


@given(pairs)
def test_swapping_the_arms_turns_the_interval_over(found: list[tuple[float, float]]) -> None:
    before, after = [a for a, _ in found], [b for _, b in found]
    there, back = ratio(before, after), ratio(after, before)
    assert (1 / back.high, 1 / back.estimate, 1 / back.low) == pytest.approx(
        (there.low, there.estimate, there.high)
    )


@settings(max_examples=40)
@given(pairs, st.floats(0.5, 0.999), st.floats(0.0, 0.1))
def test_more_confidence_and_restarts_widen_an_interval(
    found: list[tuple[float, float]], level: float, variance: float
) -> None:
    before, after = [a for a, _ in found], [b for _, b in found]
    plain = ratio(before, after, level=level)
    farther = ratio(before, after, level=stats.sequential.HIGHEST_LEVEL)
    restarted = ratio(before, after, level=level, starts=Starts(variance, 4.0))
    for wide in (farther, restarted):
        assert 0 < wide.low <= plain.low * (1 + 1e-9)
        assert plain.high * (1 - 1e-9) <= wide.high < math.inf


def test_an_effect_of_restarts_that_nobody_can_know_leaves_no_overflow() -> None:
    interval = ratio([1.0, 2.0] * 8, [2.0, 1.0] * 8, level=1 - 1e-9, starts=Starts(0.2, 1e-3))
    assert interval.low == pytest.approx(1e-6)
    assert interval.high == pytest.approx(1e6)


@pytest.mark.parametrize(
    ("lengths", "freedom"),
    [
        ([1.0] * 16, 15),
        # (10 * 1 + 6 * 16)^2 / (10 * 1 + 6 * 256) - 1 of the squares of the weights
        ([1.0] * 10 + [4.0] * 6, 106**2 / 1546 - 1),
    ],
)
def test_a_few_long_answers_are_few_pairs(lengths: list[float], freedom: float) -> None:
    before = [length * (1.1 if i % 2 else 0.9) for i, length in enumerate(lengths)]
    after = [length * (0.9 if i % 2 else 1.1) for i, length in enumerate(lengths)]
    far, near = (ratio(before, after, level=level) for level in (0.99, 0.5))
    times = math.log(far.high / far.low) / math.log(near.high / near.low)
    known = stats.t_quantile(0.99, freedom) / stats.t_quantile(0.5, freedom)
    assert times == pytest.approx(known, rel=0.01)  # a long pair weighs 1.1 in one arm and 0.9 in the other


def test_the_error_is_that_of_leaving_out_one_pair_at_a_time() -> None:
    before, after = [3.0, 5.0, 4.0, 8.0, 6.0, 2.0, 7.0, 5.0], [2.0, 5.0, 3.0, 4.0, 6.0, 1.0, 5.0, 4.0]
    logs = [
        math.log((sum(before) - one) / (sum(after) - other)) for one, other in zip(before, after, strict=True)
    ]
    mean = sum(logs) / 8
    log, variance, _ = stats.log_ratio(np.array(before), np.array(after))
    assert float(log) == pytest.approx(math.log(40 / 30))
    assert float(variance) == pytest.approx(7 / 8 * sum((one - mean) ** 2 for one in logs))


def test_pairs_of_a_cluster_are_one_piece_of_evidence() -> None:
    generator = np.random.default_rng(7)
    shared = np.repeat(generator.lognormal(0, 0.2, 8), 8)
    lengths = generator.lognormal(0, 0.3, 64)
    clusters = np.repeat(np.arange(8), 8).tolist()
    alone = ratio(lengths * shared, lengths)
    together = ratio(lengths * shared, lengths, clusters=clusters)
    assert (together.estimate, together.n) == (pytest.approx(alone.estimate), 64)
    assert math.log(together.high / together.low) > 1.5 * math.log(alone.high / alone.low)
    sums = [[(lengths * noise)[k * 8 : k * 8 + 8].sum() for k in range(8)] for noise in (shared, 1.0)]
    assert (together.low, together.high) == pytest.approx((ratio(*sums).low, ratio(*sums).high))


def test_the_names_and_order_of_clusters_change_nothing() -> None:
    before, after = [float(3 + k % 5) for k in range(24)], [float(2 + k % 3) for k in range(24)]
    one = ratio(before, after, clusters=[k % 6 for k in range(24)])
    other = ratio(before[::-1], after[::-1], clusters=[f"c{k % 6}" for k in range(24)][::-1])
    assert (one.low, one.high) == pytest.approx((other.low, other.high))
    with pytest.raises(ValueError, match="24 pairs need as many clusters, not 23"):
        stats.paired_ratio(before, after, clusters=list(range(23)))


@pytest.mark.parametrize("clusters", [[0] * 24, [0] * 23 + [1]])
def test_what_one_cluster_carries_has_no_interval(clusters: list[int]) -> None:
    before = [float(1 + k % 5) for k in range(24)]
    assert stats.paired_ratio(before, [1.0] * 24, clusters=clusters) is None


@pytest.mark.parametrize("visit_sd", [0.0, 0.1, 0.3])
def test_intervals_by_cluster_cover_the_truth_under_noise_that_requests_share(visit_sd: float) -> None:
    generator = np.random.default_rng(5)
    clusters, covered = np.repeat(np.arange(8), 8).tolist(), 0
    for _ in range(400):
        lengths = generator.lognormal(0, 0.6, 64)
        noise = generator.lognormal(0, 0.1, (2, 64)) * np.repeat(
            generator.lognormal(0, visit_sd, (2, 8)), 8, axis=1
        )
        interval = ratio(lengths * noise[0], lengths / 1.2 * noise[1], clusters=clusters)
        covered += interval.low <= 1.2 <= interval.high
    assert 368 <= covered <= 394  # 380 expected, one deviation is 4.4; without clusters 110 at 30%


def test_pairing_takes_out_what_differs_between_prompts() -> None:
    lengths = np.random.default_rng(0).uniform(1, 100, 30)
    paired = ratio(lengths * 1.3, lengths)
    assert (paired.low, paired.high) == (pytest.approx(1.3), pytest.approx(1.3))


def heavy(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Noise in which one request in a hundred is stalled."""
    stalled = generator.random(shape) < 0.01
    return generator.lognormal(0, 0.1, shape) * np.where(stalled, generator.uniform(5, 20, shape), 1.0)


@pytest.mark.parametrize(("level", "least"), [(0.95, 285), (0.999, 298)])
def test_intervals_of_stalling_servers_cover_the_truth_as_often_as_they_say(level: float, least: int) -> None:
    generator = np.random.default_rng(2)
    covered = 0
    for _ in range(300):
        lengths = generator.lognormal(0, 0.6, 64)
        before, after = lengths * heavy(generator, (2, 64)), lengths / 1.5 * heavy(generator, (2, 64))
        interval = ratio(before.mean(axis=0), after.mean(axis=0), level=level)
        covered += interval.low <= 1.5 <= interval.high
    assert covered >= least


def test_too_few_pairs_have_no_interval() -> None:
    assert stats.paired_ratio([1.0] * 4, [1.0] * 4) is None


@pytest.mark.parametrize(
    ("before", "after"), [([1.0, 2.0], [1.0]), ([1.0] * 5, [0.0] * 5), ([float("nan")] * 5, [1.0] * 5)]
)
def test_what_cannot_be_paired_is_refused(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs need|must be positive"):
        stats.paired_ratio(before, after)


# restarts


def restarted(
    generator: np.random.Generator, stages: int, start_sd: float
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Two rounds of sixteen prompts a stage; every start of an arm has an effect of its own. No gain."""
    found = []
    for _ in range(stages):
        lengths = generator.lognormal(0, 0.6, 16)
        before, after = (
            lengths * generator.lognormal(0, start_sd, (2, 1)) * generator.lognormal(0, 0.1, (2, 16))
            for _ in range(2)
        )
        found.append((before, after))
    return found


def test_the_variance_that_restarts_add_is_found_on_average() -> None:
    generator = np.random.default_rng(3)
    found = [stats.start_effect(restarted(generator, 4, 0.05)) for _ in range(300)]
    added = [starts.variance for starts in found if starts is not None]
    assert len(added) == 300
    # Of a round's ratio 2 x 0.05^2, and there are eight rounds; nothing is below zero, which adds a little.
    assert np.mean(added) == pytest.approx(2 * 0.05**2 / 8, rel=0.15)


@pytest.mark.parametrize("start_sd", [0.0, 0.03, 0.1])
def test_intervals_of_restarted_arms_cover_the_truth(start_sd: float) -> None:
    generator = np.random.default_rng(4)
    covered = 0
    for _ in range(300):
        stages = restarted(generator, 4, start_sd)
        before, after = (np.concatenate([arm[k] for arm in stages], axis=1).mean(axis=0) for k in (0, 1))
        interval = ratio(before, after, starts=stats.start_effect(stages))
        covered += interval.low <= 1 <= interval.high
    assert covered >= 276  # 285 expected, one deviation is 3.8; without `starts` 159 at the largest effect


def test_one_round_or_one_prompt_says_nothing_on_restarts() -> None:
    assert stats.start_effect([]) is None
    assert (
        stats.start_effect([(np.ones((1, 9)), np.ones((1, 9))), (np.ones((2, 1)), np.ones((2, 1)))]) is None
    )


def test_rounds_that_are_alike_add_nothing() -> None:
    lengths = np.tile(np.arange(1.0, 9.0), (2, 1))
    assert stats.start_effect([(lengths, lengths)]) == Starts(0.0, 1.0)


# how many more pairs it takes


def test_pairs_that_decide_need_no_more() -> None:
    assert stats.pairs_needed(Interval(1.2, 1.1, 1.31, 40)) == 0
    assert stats.pairs_needed(Interval(0.9, 0.85, 0.95, 40)) == 0


@given(st.floats(1.001, 3.0), st.floats(1.01, 9.5), st.integers(8, 500), st.booleans())
def test_with_as_many_more_the_interval_just_excludes_one(
    estimate: float, times_wider: float, n: int, slower: bool
) -> None:
    effect = -math.log(estimate) if slower else math.log(estimate)
    half = abs(effect) * times_wider
    more = stats.pairs_needed(Interval(math.exp(effect), math.exp(effect - half), math.exp(effect + half), n))
    assert more is not None
    assert half * math.sqrt(n / (n + more)) <= abs(effect) * (1 + 1e-9)
    assert half * math.sqrt(n / (n + more - 1)) >= abs(effect) * (1 - 1e-9)


@pytest.mark.parametrize("estimate", [1.0, 1.0001])
def test_an_estimate_of_one_promises_nothing(estimate: float) -> None:
    assert stats.pairs_needed(Interval(estimate, estimate / 1.05, estimate * 1.05, 40)) is None


def test_two_clusters_are_the_fewest_that_have_a_variance() -> None:
    """Of two, leaving out one leaves the other: the error is half of their difference."""
    log, variance, freedom = stats.log_ratio(np.array([400.0, 320.0]), np.array([160.0, 200.0]))
    assert log == pytest.approx(math.log(2))
    assert math.sqrt(variance) == pytest.approx(abs(math.log(2.5) - math.log(1.6)) / 2)
    assert freedom == pytest.approx(1)
    _, alone, none = stats.log_ratio(np.array([400.0]), np.array([160.0]))
    assert (alone, none) == (math.inf, 0)
