"""Simulated healthy weeks with gaps and both pools slow never fall back; regressions are acted on."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "guard.py"
    spec = importlib.util.spec_from_file_location("guard_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


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
