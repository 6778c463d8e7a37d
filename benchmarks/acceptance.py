"""How often one of k drafted children is accepted, by verification rule and tree width, for any pair on disk.

    python benchmarks/acceptance.py [--count 32] [--tokens 64] [--widths 5] [--target DIR] [--draft DIR]

SpecInfer's success rates (arXiv 2305.09781, table 1) on the prompts of a set. The target writes a
continuation of each prompt, greedily and at T = 1; at every position of it the two models' distributions
give the rate for each rule and width, without sampling noise but for draws without replacement.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

from pair_options import encode, pair_parser

from specops.engine.load import Pair
from specops.engine.planner.offline_acceptance import GREEDY, RULES, Rates, rates
from specops.load.workload import load_prompts
from specops.render.figures import aligned


def mean(by_prompt: Sequence[Rates]) -> Rates:
    """Return the mean rates by rule, one for each width from 1."""
    means = {}
    for rule in RULES:
        widths = zip(*(found[rule] for found in by_prompt), strict=True)
        means[rule] = [round(statistics.fmean(values), 4) for values in widths]
    return means


def table(overall: Rates) -> list[str]:
    columns = ["acceptance at width", *(str(k) for k in range(1, len(overall[GREEDY]) + 1))]
    rows = []
    for rule, values in overall.items():
        name = "greedy" if rule == GREEDY else f"T = 1, {rule}"
        rows.append([name, *(f"{value:.3f}" for value in values)])
    return aligned([columns, *rows])


def main() -> None:
    parser = pair_parser(__doc__)
    parser.add_argument("--count", type=int, default=32, help="prompts, spread over the set")
    parser.add_argument("--tokens", type=int, default=64, help="of each continuation")
    parser.add_argument("--widths", type=int, default=5, help="most children of a node")
    options = parser.parse_args()
    pair = Pair(options.target, options.draft)
    by_class: dict[str, list[Rates]] = {}
    for prompt in load_prompts(options.prompts).spread(options.count):
        measured = rates(pair, encode(pair, prompt), options.tokens, options.widths, options.seed)
        by_class.setdefault(prompt.traffic_class, []).append(measured)
    everything = [measured for group in by_class.values() for measured in group]
    overall = mean(everything)
    greedy = [measured[GREEDY][0] for measured in everything]
    spread = f"{min(greedy):.2f} / {statistics.median(greedy):.2f} / {max(greedy):.2f} (least, median, most)"
    positions = len(everything) * options.tokens
    print(*table(overall), sep="\n")
    print(f"{len(everything)} prompts, {positions} positions for each rule; greedy by prompt: {spread}")
    if options.json is not None:
        figures = {
            "rates": overall,
            "by_class": {name: mean(group) for name, group in sorted(by_class.items())},
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
