"""Compiles the kernels for every GPU of `specops_kernels.aot` and writes down what they take.

    python tools/kernel_budgets.py             all: budgets.json and the table in kernels/RESULTS.md
    python tools/kernel_budgets.py --check …   subjects whose names contain one of these, against budgets.json

It needs no GPU. A budget that grew is seen in the diff.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from specops_kernels import aot, budgets
from specops_kernels.subjects import subjects

RESULTS = Path(__file__).parents[1] / "kernels" / "RESULTS.md"
BEGIN, END = "<!-- made by tools/kernel_budgets.py -->", "<!-- end -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", nargs="+", metavar="TARGET:NAME")
    wanted = parser.parse_args().check
    if wanted:
        return check(wanted)
    found: dict[str, dict[str, aot.Resources]] = {}
    for target in aot.TARGETS:
        found[target] = {}
        for subject in subjects(target):
            used = found[target][subject.name] = aot.compiled(subject, target)
            print(f"{target}  {subject.name}: {used}", file=sys.stderr, flush=True)
    all_of = ((target, name, used) for target, of in found.items() for name, used in of.items())
    spilling = [f"{target} {name}" for target, name, used in all_of if used.spilled]
    if spilling:
        print(f"error: these spill: {', '.join(spilling)}", file=sys.stderr)
        return 1
    made = {
        target: {name: budgets.Budget(used.registers, used.shared, used.matrix) for name, used in of.items()}
        for target, of in found.items()
    }
    budgets.write(made, version("triton"))
    page = RESULTS.read_text()
    head, tail = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    RESULTS.write_text("\n".join([head, "", *table(made), "", tail]))
    return 0


def check(wanted: list[str]) -> int:
    """0 if all are within their budgets; else what is not, on stdout."""
    allowed, wrong, seen = budgets.read(), 0, 0
    for one in wanted:
        target, _, name = one.partition(":")
        for subject in subjects(target):
            if name not in subject.name:
                continue
            seen += 1
            over = budgets.exceeded(aot.compiled(subject, target), allowed[target][subject.name], target)
            wrong += bool(over)
            for line in over:
                print(f"{target} {subject.name}: {line}")
    print(f"{seen} compiled, {wrong} over budget", file=sys.stderr)
    return 1 if wrong or not seen else 0


def table(made: budgets.Budgets) -> Iterator[str]:
    yield f"Triton {version('triton')}: registers of a thread / bytes of shared memory. Nothing spills."
    yield ""
    yield "| launch | " + " | ".join(made) + " |"
    yield "|---|" + "---|" * len(made)
    for name in next(iter(made.values())):
        cells = (f"{of[name].registers} / {of[name].shared:,}" for of in made.values())
        yield f"| {name} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
