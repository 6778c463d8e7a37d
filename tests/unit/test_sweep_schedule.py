"""The schedule by batch size: what vLLM takes, and nothing that was not measured."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.phases.sweep.advice import Range, schedule

MEASURED = st.dictionaries(st.integers(1, 512), st.integers(0, 8), min_size=1, max_size=8)


def accepted_by_vllm(ranges: list[Range]) -> list[int]:
    """vLLM's rules (validate_and_normalize_dynamic_sd_schedule, 0.32), and K by batch size from index 1."""
    assert ranges
    table, end = [0], 0
    for first, last, k in sorted(ranges):
        assert 0 < first <= last
        assert k >= 0
        assert first > end, "ranges overlap"
        table += [table[-1]] * (first - end - 1) + [k] * (last - first + 1)
        end = last
    assert sorted(ranges)[0][0] == 1
    return table


@given(MEASURED)
def test_vllm_takes_it_and_uses_the_best_k_wherever_one_was_measured(best: dict[int, int]) -> None:
    found = schedule(best)
    table = accepted_by_vllm(found.ranges)
    assert {concurrency: table[concurrency] for concurrency in best} == best
    assert len(table) - 1 == max(best)  # nothing is said above the largest load
    assert found.largest == max(best.values())


@given(MEASURED)
def test_neighbours_of_one_k_are_one_range_without_gaps(best: dict[int, int]) -> None:
    ranges = schedule(best).ranges
    assert all(one[2] != other[2] for one, other in pairwise(ranges))
    assert all(one[1] + 1 == other[0] for one, other in pairwise(ranges))


def test_boundaries_lie_at_the_geometric_middle() -> None:
    found = schedule({1: 5, 4: 3, 16: 0})
    assert found.ranges == [(1, 2, 5), (3, 8, 3), (9, 16, 0)]
    assert found.message == (
        "measured at 1, 4, 16; boundaries lie at the geometric middle between two of them, where nothing was "
        "measured"
    )


@pytest.mark.parametrize(
    ("best", "told"),
    [
        ({4: 0, 8: 0}, "measured at 4, 8; below 4 nothing was measured"),
        ({1: 3}, "measured at 1; above 1 nothing was measured, and vLLM continues with K = 3"),
    ],
)
def test_what_was_not_measured_is_told(best: dict[int, int], told: str) -> None:
    assert schedule(best).message == told
