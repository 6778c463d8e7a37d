"""The simulations of sweeps and comparisons run with the records and verdicts as they are today."""

from __future__ import annotations

import pytest
from benchmark_scripts import run_benchmark


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options"),
    [("sweep_coverage", ["--trials", "20", "--worlds", "0"]), ("experiment_power", ["--trials", "40"])],
)
def test_a_simulation_ends_with_its_table(script: str, options: list[str]) -> None:
    ended = run_benchmark(script, *options)
    assert ended.returncode == 0, ended.stderr
    assert "%" in ended.stdout.splitlines()[-1]
