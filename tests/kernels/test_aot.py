"""The kernels compile for GPUs that are not here, within their budgets.

A few of them: `python tools/kernel_budgets.py` compiles all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from specops_kernels import aot, budgets
from specops_kernels.aot import Resources
from specops_kernels.budgets import Budget, exceeded
from specops_kernels.subjects import subjects

TOOL = Path(__file__).parents[2] / "tools" / "kernel_budgets.py"

CHECKED = [
    "sm_80:tree attention bf16, heads of 128, 128 rows",
    "sm_90:tree attention bf16, heads of 128, 64 rows",  # also where it is paged and split
    "sm_100:tree attention bf16, heads of 128, 128 rows",
    "gfx942:tree attention bf16, heads of 128, 128 rows",
    *(f"{target}:KV gather" for target in aot.TARGETS),
    "sm_90:combination",
    "sm_100:multi-step sampling",
    "gfx942:traversal",
    "sm_90:greedy walk",
]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_within_budget() -> None:
    """In a process of its own: here the kernels are interpreted."""
    if version("triton") != budgets.measured_with() and not os.environ.get("CI"):
        pytest.skip(f"the budgets are of Triton {budgets.measured_with()}")
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, TOOL, "--check", *CHECKED], env=plain, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_launch_has_a_budget() -> None:
    allowed = budgets.read()
    for target in aot.TARGETS:
        assert list(allowed[target]) == [subject.name for subject in subjects(target)]


def test_every_budget_fits_a_processor() -> None:
    """Of NVIDIA's: 65536 registers from sm_80 on."""
    for target in ("sm_80", "sm_90", "sm_100"):
        for subject in subjects(target):
            budget = budgets.read()[target][subject.name]
            assert 32 * subject.warps * budget.registers <= 65536
            assert budget.shared <= aot.SHARED[target]


@pytest.mark.parametrize(
    ("used", "said"),
    [
        (Resources(128, 4096, 0, "wgmma.mma_async", 1.0), []),
        (Resources(140, 4096, 0, "wgmma.mma_async", 1.0), []),
        (Resources(141, 4096, 0, "wgmma.mma_async", 1.0), ["141 registers, 128 budgeted"]),
        (Resources(128, 4096, 8, "wgmma.mma_async", 1.0), ["8 bytes spilled"]),
        (Resources(128, 4097, 0, "wgmma.mma_async", 1.0), ["4097 bytes of shared memory, 4096 allowed"]),
        (Resources(128, 4096, 0, "mma.sync", 1.0), ["multiplies with mma.sync, not with wgmma.mma_async"]),
    ],
)
def test_what_is_over_budget(used: Resources, said: list[str]) -> None:
    assert exceeded(used, Budget(128, 4096, "wgmma.mma_async"), "sm_90") == said
