"""Speculation with the planner beside none, and beside fixed trees, at every concurrency; the shipped pair.

    python benchmarks/batches.py [--draft head] [--repeats 5] [--concurrency 1 2 4 8 16] [--json FILE]

Held-out prompts, the last 128 tokens in, 32 to 96 out, greedy, one thread, in process, `max_batch` 16. Were
all outputs as long, sequences without speculation would stay in step and have their prompts read two at a
time, which takes a seventh less than one by one, as no traffic would have it. All engines take the same
prompts in turn, at one concurrency after the other, so that drift falls on all alike; a figure is the median
over the repeats of the ratio to the engine without speculation, taken in the same repeat. One pass before
that warms up, and gives the planner what a server has after its first seconds. Outputs are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from pathlib import Path
from time import perf_counter

import torch

from specops.assets import asset
from specops.engine import Engine, Sampling, load_engine
from specops.load.workload import load_prompts

PROMPT_TOKENS, MAX_BATCH = 128, 16
OFF, PLANNED = "none", "auto"
FIXED = ("chain:1", "chain:3", "chain:5", "expand:2,1", "ngram:4", "ngram:8")
TO_REACH = 0.97


def length(number: int) -> int:
    """Of the output after the prompt of this number: spread evenly from 32 to 96."""
    return 32 + 27 * number % 65


def decode(engine: Engine, prompts: list[list[int]], concurrency: int) -> tuple[float, list[list[int]]]:
    """Seconds for all prompts, so many at a time, and what was written after each."""
    outputs: list[list[int]] = [[] for _ in prompts]
    numbers: dict[int, int] = {}
    began = perf_counter()
    while len(numbers) < len(prompts) or not engine.idle:
        while len(numbers) < len(prompts) and engine.running + engine.waiting < concurrency:
            number = len(numbers)
            sampling = Sampling(max_tokens=length(number), ignore_eos=True)
            numbers[engine.submit(prompts[number], sampling)] = number
        for emission in engine.step():
            outputs[numbers[emission.sequence_id]] += emission.tokens
    return perf_counter() - began, outputs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draft", default="draft", help="of those that ship: draft or head")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--trees", nargs="*", default=list(FIXED), help="beside none and auto")
    parser.add_argument("--json", type=Path, help="also write the ratios to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pair = asset("playbooks", "embedded")
    trees = [OFF, PLANNED, *options.trees]
    engines = {
        tree: load_engine(pair / "target", pair / options.draft, tree=tree, max_batch=MAX_BATCH)
        for tree in trees
    }
    texts = [str(prompt.content) for prompt in load_prompts(pair / "prompts.json").prompts]
    encoded = [engines[OFF].tokenizer.encode(text)[-PROMPT_TOKENS:] for text in texts]

    print(f"times as fast as none, {options.draft}, median of {options.repeats} [least, most]")
    print(f"{'streams':>7}{'none, tokens/s':>16}{'auto':>20}" + "".join(f"{t:>13}" for t in options.trees))
    ratios: dict[int, dict[str, list[float]]] = {}
    medians: dict[int, dict[str, float]] = {}
    different = 0
    for concurrency in options.concurrency:
        prompts = encoded[: max(16, 2 * concurrency)]
        found: dict[str, list[float]] = {tree: [] for tree in trees if tree != OFF}
        rates: list[float] = []
        steps: Counter[str] = Counter()
        for repeat in range(-1, options.repeats):  # the first pass warms up
            before = Counter(engines[PLANNED].counters.steps_by_tree)
            seconds: dict[str, float] = {}
            outputs: dict[str, list[list[int]]] = {}
            for tree in trees if repeat % 2 else trees[::-1]:
                seconds[tree], outputs[tree] = decode(engines[tree], prompts, concurrency)
            different += sum(outputs[tree] != outputs[OFF] for tree in trees)
            if repeat >= 0:
                rates.append(sum(map(length, range(len(prompts)))) / seconds[OFF])
                for tree, values in found.items():
                    values.append(seconds[OFF] / seconds[tree])
                steps += Counter(engines[PLANNED].counters.steps_by_tree) - before
        ratios[concurrency] = found
        medians[concurrency] = middle = {tree: statistics.median(values) for tree, values in found.items()}
        auto = found[PLANNED]
        shown = f"{middle[PLANNED]:.2f} [{min(auto):.2f}, {max(auto):.2f}]"
        fixed = "".join(f"{middle[tree]:13.2f}" for tree in options.trees)
        chosen = ", ".join(f"{tree} {count / steps.total():.0%}" for tree, count in steps.most_common(3))
        print(
            f"{concurrency:7}{statistics.median(rates):16.0f}{shown:>20}{fixed}   auto: {chosen}", flush=True
        )
    worst = min(medians, key=lambda concurrency: medians[concurrency][PLANNED])
    least = medians[worst][PLANNED]
    verdict = "reached" if least >= TO_REACH else "NOT reached"
    print(f"at least {TO_REACH}× none at every concurrency: {verdict} ({least:.3f} at {worst})")
    if options.trees:
        alone = min(medians)
        best = max(options.trees, key=lambda tree: medians[alone][tree])
        share = medians[alone][PLANNED] / medians[alone][best]
        print(f"at {alone}: {share:.2f} of the best fixed tree ({best})")
    print("outputs: " + (f"{different} passes differ from none's" if different else "the same in every pass"))
    if options.json is not None:
        options.json.write_text(json.dumps(ratios, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
