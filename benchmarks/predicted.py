"""`verify-draft --measure` against what it predicts: the same trees, compared over HTTP, in one run.

    python benchmarks/predicted.py [--repeats 2] [--json FILE]

The shipped pair, one thread, one stream: the draft model and the head, greedily and at T = 1. For each of the
four, the pair is measured and every tree predicted; then all trees are compared with no speculation by
`specops ab`'s own code, over all 64 prompts. An error is predicted over measured, less one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from specops.assets import asset
from specops.experiment.arms import Arm
from specops.load.settings import BaselineSettings
from specops.phases.ab.measure import compare
from specops.phases.ab.report import read
from specops.phases.ab.settings import AbSettings
from specops.phases.inputs import NO_ADDRESS_YET
from specops.phases.verify_draft.estimate import measure, predict
from specops.phases.verify_draft.prediction import Predictor
from specops.progress import SilentProgress
from specops.render.figures import aligned, percent, times
from specops.serving.embedded import EmbeddedPool, Speculation

TREES = {"draft": ("chain:3", "chain:5", "expand:2,1,1"), "head": ("chain:3", "chain:4")}
COPIED = "ngram:8"
TEMPERATURES = (0.0, 1.0)
WITHIN = 0.15


def predicted(pair: Path, draft: str, temperature: float) -> Predictor:
    started = perf_counter()
    found = measure(
        pair / "target",
        pair / draft,
        pair / "prompts.json",
        SilentProgress(),
        threads=1,
        temperature=temperature,
    )
    estimate = predict(*found)
    print(
        f"{draft}, T = {temperature:g}: measured in {perf_counter() - started:.0f} s; "
        f"it would take {estimate.chosen}, and of this draft {estimate.drafted.tree}",
        flush=True,
    )
    return found[1]


def compared(pair: Path, temperature: float, repeats: int) -> dict[str, Any]:
    """By arm: its end-to-end speed-up, all classes together."""
    target = pair / "target"

    def arm(name: str, speculation: Speculation | None) -> Arm:
        return Arm(name, EmbeddedPool(engine="embedded", target=target, threads=1, speculation=speculation))

    arms = [arm("off", None), arm(COPIED, Speculation(tree=COPIED))]
    for draft, trees in TREES.items():
        arms += [arm(f"{draft} {tree}", Speculation(draft=pair / draft, tree=tree)) for tree in trees]
    asked = BaselineSettings(
        base_url=NO_ADDRESS_YET,
        model="",
        endpoint="completions",
        temperature=temperature,
        repeats=repeats,
    )
    with tempfile.TemporaryDirectory() as logs:
        result = compare(
            arms,
            asked,
            AbSettings(looks=1, mixed_prompts=0, requests=200, min_duration_s=0.0),
            SilentProgress(),
            logs=Path(logs),
        )
    challengers = read(result, "the comparison").challengers
    return {name: challenger.levels[0].speedups.e2e for name, challenger in challengers.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=2, help="rounds of the comparison")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    pair = asset("playbooks", "embedded")
    rows, figures = [["", "predicted", "measured", "error", "within 15%"]], []
    for temperature in TEMPERATURES:
        predictors = {draft: predicted(pair, draft, temperature) for draft in TREES}
        found = compared(pair, temperature, options.repeats)
        wanted = [(draft, tree, f"{draft} {tree}") for draft, trees in TREES.items() for tree in trees]
        if predictors["draft"].copies:
            wanted.append(("draft", COPIED, COPIED))
        for draft, tree, name in wanted:
            ratio, interval = predictors[draft].speedup(tree)
            measured = found[name]
            error = ratio / measured.estimate
            rows.append(
                [
                    f"T = {temperature:g}  {name}",
                    times(interval, ratio),
                    times(measured),
                    percent(error),
                    "yes" if abs(error - 1) <= WITHIN else "no",
                ]
            )
            figures.append(
                {
                    "temperature": temperature,
                    "setting": name,
                    "predicted": ratio,
                    "measured": measured.estimate,
                    "error": error - 1,
                }
            )
    print("\n".join(aligned(rows)))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
