"""How often the canary is wrong: false alarms on the shipped pair, and seeded faults that it does not find.

    python benchmarks/canary.py [--clean 50] [--rounds 5]

Each clean run makes every check at the defaults; each round seeds every fault once and makes the check that
is to find it. Both servers are in this process, so that a fault can be put in where a server would have it
(tests/canary/faulty.py). Each run begins one prompt further on in the shipped set.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "canary"), str(TESTS / "serve")]

from faulty import FAULTS, Servers, found  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clean", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    servers, folder = Servers(), Path(tempfile.mkdtemp())
    began = time.monotonic()
    try:
        wrong: Counter[str] = Counter()
        for run in range(asked.clean):
            result = servers.canary(folder, turned=run)
            checks = result.data["checks"]
            wrong.update(one["name"] for one in checks if one["status"] in ("fail", "undecided"))
            wrong["runs"] += result.verdict != "yes"
            print(f"clean {run + 1}/{asked.clean}: {result.verdict}", file=sys.stderr, flush=True)
        print(f"false alarms in {asked.clean} clean runs: {wrong.pop('runs')} {dict(wrong) or ''}")
        missed: Counter[str] = Counter()
        for number in range(asked.rounds):
            for fault in FAULTS:
                result = found(servers, fault, folder, turned=number)
                missed[fault] += result.verdict != "no"
            print(f"round {number + 1}/{asked.rounds}: missed {+missed}", file=sys.stderr, flush=True)
        for fault, name in FAULTS.items():
            share = f"{asked.rounds - missed[fault]} of {asked.rounds}"
            print(f"{fault.replace('_', ' '):34} {name:13} found in {share}")
    finally:
        servers.close()
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
