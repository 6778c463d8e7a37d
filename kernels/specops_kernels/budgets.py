"""Budgets of a GPU for each kernel: data in budgets.json, as `tools/kernel_budgets.py` measured it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from specops_kernels.aot import SHARED, Resources

FILE = Path(__file__).with_name("budgets.json")

SLACK = 1.1
"""Registers may be a tenth more than they were, for small changes of a kernel. That nothing spills, and the
shared memory that the tiles need, are exact."""


@dataclass(frozen=True)
class Budget:
    registers: int
    shared: int  # bytes
    matrix: str  # the instruction that multiplies matrices


Budgets = dict[str, dict[str, Budget]]
"""Budgets by target, then by the subject's name."""


def measured_with() -> str:
    """The release of Triton. Another allocates registers otherwise."""
    return str(json.loads(FILE.read_text())["triton"])


def read() -> Budgets:
    found = json.loads(FILE.read_text())["budgets"]
    return {target: {name: Budget(**one) for name, one in of.items()} for target, of in found.items()}


def write(budgets: Budgets, triton: str) -> None:
    plain = {target: {name: asdict(one) for name, one in of.items()} for target, of in budgets.items()}
    FILE.write_text(json.dumps({"triton": triton, "budgets": plain}, indent=1) + "\n")


def exceeded(used: Resources, budget: Budget, target: str) -> list[str]:
    """Return in words what of the budget does not suffice."""
    found = []
    if used.spilled:
        found.append(f"{used.spilled} bytes spilled")
    if used.registers > SLACK * budget.registers:
        found.append(f"{used.registers} registers, {budget.registers} budgeted")
    if used.shared > min(budget.shared, SHARED[target]):
        found.append(f"{used.shared} bytes of shared memory, {min(budget.shared, SHARED[target])} allowed")
    if used.matrix != budget.matrix:
        found.append(f"multiplies with {used.matrix or 'nothing'}, not with {budget.matrix or 'nothing'}")
    return found
