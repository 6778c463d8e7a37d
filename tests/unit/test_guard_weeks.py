"""Simulated healthy weeks with gaps and both pools slow never fall back; regressions are acted on."""

from __future__ import annotations

from types import ModuleType

import pytest
from benchmark_scripts import load_benchmark


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load_benchmark("guard")


@pytest.mark.slow
def test_healthy_weeks_never_fall_back(bench: ModuleType) -> None:
    found = sum((bench.healthy((2, part), 25) for part in range(8)), bench.Tally())
    assert (found.weeks, found.fell_back) == (200, 0)
    judged = dict(zip(bench.VERDICTS, found.verdicts, strict=True))
    assert judged["no_data"] > 0.005 * sum(found.verdicts), "there were gaps"
    assert judged["unknown"] > 0.005 * sum(found.verdicts), "and both pools were slow"


@pytest.mark.slow
def test_regressions_are_acted_on_in_time(bench: ModuleType) -> None:
    found = bench.regressions((3, 0), 400)
    assert found.expected > 100
    assert found.acted >= 0.99 * found.expected
    assert found.latest_s <= 300 + 3 * 60
    assert found.fell_before == 0


@pytest.mark.parametrize("slower", [1.25, pytest.param(1.3, marks=pytest.mark.slow)])
def test_a_quarter_slower_is_found_within_minutes_where_latency_rises_steeply_with_load(
    bench: ModuleType, slower: float
) -> None:
    """A time per token that is ten times as long at 64 streams as alone, three requests at a time."""
    found = bench.measure_delays(0, 20, "steep", bench.STEEP, 40, 3.0, slower)
    assert 1200 < found.requests < 1700
    assert found.missed == 0
    assert found.quantile(0.5) <= 8
    assert found.quantile(0.95) <= 12


@pytest.mark.slow
def test_a_leak_over_a_day_is_found_before_it_is_a_regression(bench: ModuleType) -> None:
    found = bench.measure_delays(0, 20, "leak", bench.STEEP, 40, 12.0, 1.5, leak_hours=24)
    assert (found.missed, found.quantile(0.95)) == (0, 0.0)
