"""The playbook's guard, each fault kept: what ours is set beside."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.guard.simulation.traces import Answers, PlaybookGuard, falls

FINE = (0.7, 1.0, 1.0)


def end(*asked: tuple[float, float, float]) -> tuple[bool, str]:
    guard = PlaybookGuard()
    return [guard.should_fall_back(*one) for one in asked][-1]


def test_no_data_is_zero_and_so_is_bad() -> None:
    nothing = (0.0, 1.0, 1.0)
    assert end(nothing, nothing) == (False, "healthy")
    assert end(nothing, nothing, nothing) == (True, "accept_ratio=0.00 < 0.4")


def test_not_a_number_is_never_caught_and_ends_a_row() -> None:
    nan = (math.nan, math.nan, 1.0)
    assert not end(*[nan] * 10)[0]
    bad = (0.1, 1.0, 1.0)
    assert not end(bad, bad, nan, bad)[0]


def test_one_sample_of_latency_is_enough_and_without_a_baseline_none_is() -> None:
    assert end(FINE, (0.7, 1.21, 1.0)) == (True, "latency regression 21.0% > 20.0%")
    assert not end((0.7, 99.0, 0.0))[0]


def test_it_never_comes_back() -> None:
    guard = PlaybookGuard()
    bad = [guard.should_fall_back(0.1, 1.0, 1.0)[0] for _ in range(6)]
    assert bad == [False, False, True, True, True, True]


acceptance = st.sampled_from([0.0, 0.1, 0.39, 0.4, 0.7, math.nan])
p95 = st.sampled_from([0.0, 1.0, 1.2, 1.21, 3.0, math.nan])
baseline = st.sampled_from([0.0, 1.0, math.nan])


@pytest.mark.filterwarnings("error")
@given(st.lists(st.tuples(acceptance, p95, baseline), min_size=1, max_size=12))
def test_arrays_fall_where_it_does(asked: list[tuple[float, float, float]]) -> None:
    guard = PlaybookGuard()
    one_by_one = [guard.should_fall_back(*one)[0] for one in asked]
    answers = Answers(*(np.array(column) for column in zip(*asked, strict=True)))
    assert falls(answers).tolist() == one_by_one
