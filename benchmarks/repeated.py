"""The same A/B over and over on an idle machine: verdicts may be undecided, but not contradict each other.

    python benchmarks/repeated.py [--times 10] [--json FILE]

The shipped pair, one thread: no speculation against n-gram drafts and against the shipped head, at one
stream. Every run is a comparison of its own, with another order of the prompts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from specops.assets import asset
from specops.experiment.arms import Arm
from specops.load.settings import BaselineSettings
from specops.phases.ab.measure import compare
from specops.phases.ab.report import read
from specops.phases.ab.settings import AbSettings
from specops.phases.inputs import NO_ADDRESS_YET
from specops.progress import SilentProgress
from specops.serving.embedded import EmbeddedPool, Speculation


def arms() -> list[Arm]:
    pair = asset("playbooks", "embedded")
    speculations = {
        "plain": None,
        "copied": Speculation(tree="ngram:8"),
        "drafted": Speculation(draft=pair / "head", tree="chain:3"),
    }
    return [
        Arm(name, EmbeddedPool(engine="embedded", target=pair / "target", threads=1, speculation=speculation))
        for name, speculation in speculations.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--json", type=Path, help="also write the verdicts to this file")
    options = parser.parse_args()
    said: dict[str, list[str]] = defaultdict(list)
    for number in range(options.times):
        asked = BaselineSettings(base_url=NO_ADDRESS_YET, model="", endpoint="completions", seed=number)
        with tempfile.TemporaryDirectory() as logs:
            result = compare(arms(), asked, AbSettings(mixed_prompts=0), SilentProgress(), logs=Path(logs))
        for arm, found in read(result, f"run {number + 1}").challengers.items():
            said[f"{arm}, in all"].append(found.decision.verdict)
            for name, of_class in found.classes.items():
                said[f"{arm}, {name}"].append(of_class.decision.verdict)
        print(f"run {number + 1}: {result.verdict}", file=sys.stderr, flush=True)
    for of, verdicts in said.items():
        told = ", ".join(f"{verdicts.count(v)} {v}" for v in ("yes", "no", "undecided") if v in verdicts)
        print(f"{of:24}{told}")
    contradicted = [of for of, verdicts in said.items() if {"yes", "no"} <= set(verdicts)]
    print(f"contradicted: {', '.join(contradicted) or 'none'}")
    if options.json is not None:
        options.json.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
