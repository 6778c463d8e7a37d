"""An offloaded target: its own autoregressive loop beside trees, the draft head held in memory.

    python benchmarks/offloaded.py [--source disk] [--bandwidth 100e6] [--batch 1 4 16] [--json FILE]

The shipped target's layers, 11.6 MB, are read for every step and held to a declared bandwidth, since so
small a file lies in the page cache: by itself it would come at memory's speed. Held-out prompts, the last 128
tokens in, 48 out, greedy, float32, prompt included. Every setting decodes each batch of prompts in turn; a
ratio is that of summed times, behind it the least and the most of the turns. Outputs are compared, token for
token, with those of the same target held whole.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from specops.assets import asset
from specops.engine import Engine, Sampling
from specops.engine.load import Pair
from specops.engine.models.offload import Offload, places
from specops.load.workload import load_prompts

PROMPT_TOKENS, TOKENS = 128, 48
LOOP = "none"
TREES = [
    "ngram:8",
    "chain:4",
    "expand:2,2,1,1",
    "dynamic:8:4",
    "dynamic:16:5",
    "dynamic:48:8",
    "dynamic:96:12",
    "dynamic:24:6+ngram:12",
    "dynamic:96:12+ngram:16",
]


@dataclass
class Setting:
    tree: str
    engine: Engine
    seconds: list[float] = field(default_factory=list)  # of each batch of prompts
    same: int = 0  # outputs that are the resident target's

    def run(self, prompts: list[list[int]], expected: list[list[int]]) -> None:
        started = perf_counter()
        found = decoded(self.engine, prompts)
        self.seconds.append(perf_counter() - started)
        self.same += sum(one == other for one, other in zip(found, expected, strict=True))


def decoded(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    sampling = Sampling(max_tokens=TOKENS, ignore_eos=True)
    outputs: dict[int, list[int]] = {engine.submit(prompt, sampling): [] for prompt in prompts}
    while not engine.idle:
        for emission in engine.step():
            outputs[emission.sequence_id] += emission.tokens
    return list(outputs.values())


def measure(
    pair: Pair, batch: int, turns: int, prompts: list[list[int]], expected: list[list[int]], reading: float
) -> list[dict[str, Any]]:
    """turns: batches that every setting decodes; reading: seconds that the bytes of a step take."""
    settings = [
        Setting(tree, pair.engine(tree, PROMPT_TOKENS + TOKENS, max_batch=batch)) for tree in (LOOP, *TREES)
    ]
    stride = max(batch, len(prompts) // turns)
    for turn in range(turns):
        chosen = [(turn * stride + index) % len(prompts) for index in range(batch)]
        for setting in settings:
            setting.run([prompts[i] for i in chosen], [expected[i] for i in chosen])
    outputs = turns * batch
    print(f"\nbatch {batch}, {turns} turns")
    print(f"{'':26}{'ms a token':>11}{'tokens a step':>15}{'ms a step':>11}{'reading':>9}{'same':>8}  × loop")
    loop, rows = sum(settings[0].seconds), []
    for setting in settings:
        total, counters = sum(setting.seconds), setting.engine.counters
        per_batch = [one / own for one, own in zip(settings[0].seconds, setting.seconds, strict=True)]
        rows.append(
            {
                "batch": batch,
                "tree": setting.tree,
                "ms_per_token": round(total / (TOKENS * outputs) * 1000, 3),
                "tokens_per_step": round(counters.generated_tokens / counters.steps, 3),
                "ms_per_step": round(total / counters.steps * 1000, 2),
                "reading_share": round(reading * counters.steps / total, 3),
                "same_tokens": f"{setting.same}/{outputs}",
                "times_faster_than_loop": round(loop / total, 3),
                "least_and_most": [round(min(per_batch), 2), round(max(per_batch), 2)],
            }
        )
        row = rows[-1]
        print(
            f"{setting.tree:26}{row['ms_per_token']:11.2f}{row['tokens_per_step']:15.2f}"
            f"{row['ms_per_step']:11.1f}{row['reading_share']:9.0%}{row['same_tokens']:>8}"
            f"  {row['times_faster_than_loop']:.2f} ({min(per_batch):.2f}–{max(per_batch):.2f})",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", choices=["disk", "host"], default="disk")
    parser.add_argument("--bandwidth", type=float, default=100e6, help="bytes a second")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--prompts", type=int, default=16, help="spread over the shipped set")
    parser.add_argument("--turns", type=int, default=6, help="batches of them that each setting decodes")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = asset("playbooks", "embedded")
    whole = Pair(folder / "target", folder / "head")
    offload = Offload(options.source, options.bandwidth)
    pair = Pair(folder / "target", folder / "head", offload=offload)
    texts = [str(p.content) for p in load_prompts(folder / "prompts.json").prompts]
    encoded = [pair.tokenizer.encode(text)[-PROMPT_TOKENS:] for text in texts]
    prompts = [encoded[i * len(encoded) // options.prompts] for i in range(options.prompts)]
    expected = [decoded(whole.engine(LOOP, PROMPT_TOKENS + TOKENS), [prompt])[0] for prompt in prompts]
    stored = places(folder / "target").items()
    size = sum(place.size for name, place in stored if name.startswith("model.layers."))
    reading = size / options.bandwidth
    print(
        f"{size / 1e6:.2f} MB a step from {options.source}, held to "
        f"{options.bandwidth / 1e6:.0f} MB/s: {reading * 1000:.1f} ms"
    )
    rows = [
        row
        for batch in options.batch
        for row in measure(pair, batch, options.turns, prompts, expected, reading)
    ]
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
