"""Looks that keep the error they state: published boundaries, and a simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.stats.sequential import HIGHEST_LEVEL, boundaries, levels


def evenly(looks: int) -> list[float]:
    return [(k + 1) / looks for k in range(looks)]


def test_the_published_boundaries_of_five_looks() -> None:
    # Lan and DeMets, Biometrika 70 (1983), alpha = 0.05 on both sides, O'Brien-Fleming-type spending
    assert boundaries(evenly(5), 0.95) == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=6e-4)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_a_single_look_is_the_fixed_level(confidence: float) -> None:
    assert levels([1.0], confidence) == (pytest.approx(confidence, abs=1e-12),)


def test_levels_are_those_of_the_boundaries() -> None:
    found = levels(evenly(4), 0.95)
    expected = [1 - math.erfc(z / math.sqrt(2)) for z in boundaries(evenly(4), 0.95)]
    assert found == pytest.approx(expected, abs=1e-12)


def test_no_look_asks_for_certainty() -> None:
    assert levels(evenly(20), 0.95)[0] == HIGHEST_LEVEL < 1


@pytest.mark.parametrize("fractions", [evenly(4), [0.1, 0.15, 0.7, 1.0], [0.5, 0.5005, 1.0]])
def test_a_motion_without_drift_crosses_as_often_as_stated(fractions: list[float]) -> None:
    generator = np.random.default_rng(5)
    steps = np.sqrt(np.diff([0.0, *fractions]))
    seen = np.cumsum(generator.standard_normal((200_000, len(fractions))) * steps, axis=1)
    crossed = np.abs(seen) > np.array(boundaries(fractions, 0.95)) * np.sqrt(fractions)
    assert crossed.any(axis=1).mean() == pytest.approx(0.05, abs=0.0015)  # three deviations


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=8, unique=True).map(sorted),
    st.floats(0.6, 0.999),
)
def test_the_last_look_is_never_narrower_than_one_look_would_be(shares: list[int], confidence: float) -> None:
    found = levels([share / shares[-1] for share in shares], confidence)
    assert len(found) == len(shares)
    assert all(confidence - 1e-9 <= level <= HIGHEST_LEVEL for level in found)


@pytest.mark.parametrize("fractions", [[], [0.0, 1.0], [0.5, 0.5], [0.6, 0.4], [0.5, 1.1]])
def test_what_are_no_looks_is_refused(fractions: list[float]) -> None:
    with pytest.raises(ValueError, match="looks are rising shares"):
        levels(fractions, 0.95)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_what_is_no_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence lies between"):
        levels([1.0], confidence)
