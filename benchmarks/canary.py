"""How often the canary is wrong: false alarms on healthy pools, and seeded faults that it does not find.

    python benchmarks/canary.py [--clean 50] [--rounds 5] [--conversing]

Each clean run makes every check at the defaults; each round seeds every fault once and makes the check that
is to find it. Both servers are in this process, so that a fault can be put in where a server would have it
(tests/canary/faulty.py). Each run begins one prompt further on in the shipped set.

With `--conversing` both servers are the scripted ones of tests/canary/conversing.py, which have a cache,
schemas, tools and reasoning. Clean runs take turns with quirks that both pools have, such as near ties,
random waits and seeds that are ignored. Every run has prompts of its own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "canary"), str(TESTS / "serve")]

from conversing import CONVERSATIONS, HEALTHY, SEEDED, Toys  # noqa: E402
from faulty import FAULTS, Servers, found  # noqa: E402

from specops.results import Result  # noqa: E402

Clean = Callable[[int], Result]
"""A run of healthy pools, by its number."""
Round = Mapping[str, Callable[[int], Result]]
"""Runs with each fault, by its name and the check that is to find it."""


@contextmanager
def shipped_pair(folder: Path) -> Iterator[tuple[Clean, Round]]:
    servers = Servers()
    try:
        yield (
            lambda number: servers.canary(folder, turned=number),
            {
                f"{fault} {name}": partial(
                    lambda fault, number: found(servers, fault, folder, turned=number), fault
                )
                for fault, name in FAULTS.items()
            },
        )
    finally:
        servers.close()


@contextmanager
def scripted_pair(folder: Path) -> Iterator[tuple[Clean, Round]]:
    toys = Toys()

    def clean(number: int) -> Result:
        quirks = HEALTHY[number % len(HEALTHY)]
        with toys.having(quirks, quirks):
            return toys.canary(folder, *CONVERSATIONS, turned=1000 + number)

    try:
        faults = {f"{one.fault} {one.check}": partial(one.canary, toys, folder) for one in SEEDED}
        yield clean, faults
    finally:
        toys.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clean", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--conversing", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    began = time.monotonic()
    with (scripted_pair if options.conversing else shipped_pair)(folder) as (clean, faults):
        wrong: Counter[str] = Counter()
        for run in range(options.clean):
            result = clean(run)
            checks = result.data["checks"]
            doubtful = [one for one in checks if one["status"] in ("fail", "undecided")]
            wrong.update(f"{one['name']} {one['status']}" for one in doubtful)
            wrong["failed"] += result.verdict == "no"
            wrong["undecided"] += result.verdict == "undecided"
            print(f"clean {run + 1}/{options.clean}: {result.verdict}", file=sys.stderr, flush=True)
        alarms, undecided = wrong.pop("failed", 0), wrong.pop("undecided", 0)
        print(
            f"false alarms in {options.clean} clean runs: {alarms}, undecided: {undecided}", dict(wrong) or ""
        )
        missed: Counter[str] = Counter()
        for number in range(options.rounds):
            for fault, seeded in faults.items():
                missed[fault] += seeded(number).verdict != "no"
            print(f"round {number + 1}/{options.rounds}: missed {+missed}", file=sys.stderr, flush=True)
        for fault in faults:
            name, check = fault.split()
            share = f"{options.rounds - missed[fault]} of {options.rounds}"
            print(f"{name.replace('_', ' '):34} {check:18} found in {share}")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
