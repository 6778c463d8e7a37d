"""The simulations of sweeps and comparisons run with the records and verdicts as they are today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("sweep_coverage.py", ["--trials", "20", "--worlds", "0"]),
        ("ab_coverage.py", ["--trials", "100", "--only", "periodic"]),
        ("experiment_power.py", ["--trials", "40"]),
    ],
)
def test_a_simulation_ends_with_its_table(script: str, options: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, BENCHMARKS / script, *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "%" in ended.stdout.splitlines()[-1]
