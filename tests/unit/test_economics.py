"""What a step costs and must bring: formulas against each other, and against looking at every case."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.economics import (
    StepCost,
    break_even_alpha,
    break_even_rate,
    cut,
    fit_steps,
    positions,
    step_ms,
    tokens_a_step_iid,
)

shares = st.floats(0.0, 1.0)
depths = st.integers(1, 16)
CURVES = st.lists(shares, min_size=1, max_size=12).map(lambda found: sorted(found, reverse=True))


@given(alpha=st.floats(0.0, 0.999), k=depths)
def test_leviathans_closed_form_is_the_sum(alpha: float, k: int) -> None:
    closed = (1 - alpha ** (k + 1)) / (1 - alpha)
    assert tokens_a_step_iid(alpha, k) == pytest.approx(closed, rel=1e-9)


def test_a_draft_that_is_always_accepted_yields_one_token_more_than_it_has() -> None:
    assert tokens_a_step_iid(1.0, 4) == 5
    assert tokens_a_step_iid(0.0, 4) == 1


@given(k=depths, share=st.floats(0, 0.999))
def test_at_the_break_even_alpha_the_tokens_are_worth_the_time(k: int, share: float) -> None:
    ratio = 1 + k * share
    alpha = break_even_alpha(k, ratio)
    assert alpha is not None
    assert tokens_a_step_iid(alpha, k) == pytest.approx(ratio, abs=1e-6)


@given(drafted=st.floats(0.1, 16), share=st.floats(0, 0.999))
def test_at_the_break_even_rate_the_tokens_are_worth_the_time(drafted: float, share: float) -> None:
    rate = break_even_rate(drafted, 1 + drafted * share)
    assert rate is not None
    assert 1 + drafted * rate == pytest.approx(1 + drafted * share)


@given(k=depths, alpha=shares, c=st.floats(0.01, 0.5))
def test_both_break_evens_agree_with_what_pays(k: int, alpha: float, c: float) -> None:
    """Section 3.3 of the paper: the improvement is E[tokens] / (1 + k c)."""
    ratio = 1 + k * c
    tokens = tokens_a_step_iid(alpha, k)
    needed, rate = break_even_alpha(k, ratio), break_even_rate(k, ratio)
    assert needed is not None
    assert rate is not None
    if abs(tokens / ratio - 1) > 1e-6:
        assert (tokens > ratio) == (alpha > needed) == ((tokens - 1) / k > rate)


def test_what_never_pays_and_what_always_does() -> None:
    assert break_even_alpha(3, 4.5) is None
    assert break_even_rate(3, 4.5) is None
    assert break_even_alpha(3, 0.9) == 0
    assert break_even_rate(3, 0.9) == 0


@pytest.mark.parametrize(("drafted", "ratio"), [(0, 1.5), (3, 0), (3, -1)])
def test_nonsense_is_refused(drafted: int, ratio: float) -> None:
    with pytest.raises(ValueError, match="drafts tokens and takes time"):
        break_even_rate(drafted, ratio)
    with pytest.raises(ValueError, match="drafts tokens and takes time"):
        break_even_alpha(drafted, ratio)


@given(target=st.floats(1, 100), draft=st.floats(0.01, 5), ks=st.sets(st.integers(0, 12), min_size=3))
def test_a_line_is_found_again(target: float, draft: float, ks: set[int]) -> None:
    found = fit_steps({k: target + draft * k for k in ks})
    assert found is not None
    assert found.target_ms == pytest.approx(target, rel=1e-6)
    assert found.draft_ms == pytest.approx(draft, rel=1e-6, abs=1e-6)
    assert found.residual == pytest.approx(0, abs=1e-6)
    assert found.measured == tuple(sorted(ks))


def test_an_overhead_that_k_does_not_change_is_seen_in_the_residual() -> None:
    flat = fit_steps({0: 10.0, 3: 15.0, 4: 15.0, 8: 15.0})
    assert flat is not None
    assert flat.residual is not None
    assert flat.residual > 0.1


def test_a_line_through_two_points_has_no_residual_and_one_point_no_line() -> None:
    two = fit_steps({0: 10.0, 4: 14.0})
    assert two == StepCost(pytest.approx(10), pytest.approx(1), None, (0, 4))
    assert fit_steps({4: 14.0}) is None
    assert fit_steps({4: 1.0, 5: 10.0}) is None  # a target that takes less than no time


def test_a_step_takes_the_time_of_its_tokens() -> None:
    assert step_ms(5.0, 2.8) == pytest.approx(14)


@given(curve=CURVES, target=st.floats(1, 50), draft=st.floats(0.01, 20))
def test_the_cut_is_where_a_token_takes_least(curve: list[float], target: float, draft: float) -> None:
    cost = StepCost(target, draft, None, (0, 1))
    found = positions(curve, cost)
    times = [cost.step_ms(0), *(at.token_ms for at in found)]
    chosen = cut(found)
    assert times[chosen] <= min(times) * (1 + 1e-9)
    for at in found:
        assert math.isclose(at.token_ms, cost.step_ms(at.k) / (1 + math.fsum(curve[: at.k])))


def test_a_free_draft_is_never_cut_and_a_dear_one_at_once() -> None:
    assert cut(positions([0.9, 0.5, 0.1], StepCost(10, 0.0, None, (0, 1)))) == 3
    assert cut(positions([0.9, 0.5, 0.1], StepCost(10, 100.0, None, (0, 1)))) == 0
    assert cut([]) == 0
