"""The embedded engine beside Hugging Face on the shipped pair, in one process and one thread.

    python benchmarks/engine.py [--prompts 16] [--repeats 3] [--json FILE]

Held-out prompts, the last 128 tokens in, 64 out, float32, prefill included. Every setting takes each
prompt in turn, so that drift falls on all alike; a setting's figure is its median over repeats, prompt by
prompt, and a ratio is that of the summed medians. Greedy outputs are compared token for token.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any
from zlib import crc32

import torch
import transformers
from transformers import AutoModelForCausalLM

from specops.assets import asset
from specops.engine import Engine, Sampling, load_engine
from specops.load.workload import load_prompts
from specops.trees import parse_tree

PROMPT_TOKENS, TOKENS = 128, 64
Run = Callable[[list[int], int], list[int]]  # prompt, repeat -> generated tokens


@dataclass
class Setting:
    name: str
    run: Run
    engine: Engine | None = None
    seconds: dict[int, list[float]] = field(default_factory=dict)  # by prompt
    outputs: dict[int, list[int]] = field(default_factory=dict)

    @property
    def ms_per_token(self) -> float:
        medians = [statistics.median(times) for times in self.seconds.values()]
        return sum(medians) / len(medians) / TOKENS * 1000

    @property
    def tokens_per_step(self) -> float | None:
        counters = self.engine.counters if self.engine is not None else None
        return counters.generated_tokens / counters.steps if counters is not None else None


def embedded(
    tree: str, *, draft: str = "draft", temperature: float = 0.0, verifier: str | None = None
) -> Setting:
    """`draft`: which of those that ship: the model `draft`, or a head."""
    pair = asset("playbooks", "embedded")
    engine = load_engine(pair / "target", pair / draft, tree=tree, verifier=verifier, max_batch=1)
    drafts = f"{draft}, {tree}" if parse_tree(tree).takes_draft else tree
    name = "own loop, autoregressive" if tree == "none" else ", ".join(filter(None, (drafts, verifier)))

    def run(prompt: list[int], repeat: int) -> list[int]:
        # Of one seed all prompts would have their luck at the same steps.
        seed = crc32(repr((repeat, prompt)).encode())
        sampling = Sampling(temperature=temperature, seed=seed, max_tokens=TOKENS, ignore_eos=True)
        return engine.generate(prompt, sampling).tokens

    return Setting(name, run, engine)


def hugging_face(name: str, target: Any, **options: Any) -> Setting:
    def run(prompt: list[int], repeat: int) -> list[int]:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            output = target.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=TOKENS,
                pad_token_id=0,
                do_sample=False,
                **options,
            )
        tokens: list[int] = output[0, len(prompt) :].tolist()
        return tokens

    return Setting(name, run)


def measure(settings: list[Setting], prompts: list[list[int]], repeats: int) -> None:
    for repeat in range(-1, repeats):  # the first pass warms up
        for number, prompt in enumerate(prompts):
            for setting in settings:
                started = perf_counter()
                tokens = setting.run(prompt, repeat)
                elapsed = perf_counter() - started
                assert len(tokens) == TOKENS, f"{setting.name} gave {len(tokens)} tokens"
                if repeat >= 0:
                    setting.seconds.setdefault(number, []).append(elapsed)
                    setting.outputs.setdefault(number, tokens)


def report(
    title: str, settings: list[Setting], reference: Setting, peers: list[Setting]
) -> list[dict[str, Any]]:
    """Print a table and return its rows; `peers` are what each setting is set against."""
    rows = []
    print(f"\n{title}")
    print(f"{'':34}{'ms a token':>11}{'tokens a step':>15}{'same tokens':>13}  times faster than")
    for setting in settings:
        same = sum(setting.outputs[n] == reference.outputs[n] for n in reference.outputs)
        ratios = {
            peer.name: peer.ms_per_token / setting.ms_per_token for peer in peers if peer is not setting
        }
        step = setting.tokens_per_step
        rows.append(
            {
                "setting": setting.name,
                "ms_per_token": round(setting.ms_per_token, 4),
                "tokens_per_step": None if step is None else round(step, 3),
                "same_tokens": f"{same}/{len(reference.outputs)}",
                "times_faster_than": {name: round(ratio, 3) for name, ratio in ratios.items()},
            }
        )
        shown = "  ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        print(
            f"{setting.name:34}{setting.ms_per_token:11.3f}{'' if step is None else f'{step:.2f}':>15}"
            f"{rows[-1]['same_tokens']:>13}  {shown}"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=16, help="spread over the shipped set")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pair = asset("playbooks", "embedded")
    target, draft = (
        AutoModelForCausalLM.from_pretrained(pair / name, dtype=torch.float32).eval()
        for name in ("target", "draft")
    )
    for model in (target, draft):
        model.generation_config.eos_token_id = None  # decode to the end, whatever the model says
    transformers.logging.set_verbosity_error()
    loop = embedded("none")
    texts = [str(p.content) for p in load_prompts(pair / "prompts.json").prompts]
    encoded = [
        loop.engine.tokenizer.encode(text)[-PROMPT_TOKENS:] for text in texts if loop.engine is not None
    ]
    prompts = [encoded[i * len(encoded) // options.prompts] for i in range(options.prompts)]

    plain = hugging_face("HF generate", target)
    peers = [
        plain,
        hugging_face("HF assisted", target, assistant_model=draft),
        hugging_face("HF lookup 3", target, prompt_lookup_num_tokens=3),
        hugging_face("HF lookup 10", target, prompt_lookup_num_tokens=10),
    ]
    own = [
        loop,
        embedded("chain:2"),
        embedded("chain:3"),
        embedded("chain:2", draft="head"),
        embedded("chain:3", draft="head"),
        embedded("adaptive:6", draft="head"),
        embedded("expand:2,1,1", draft="head"),
        embedded("chain:2", draft="recurrent"),
        embedded("ngram:8"),
        embedded("chain:3+ngram:8", draft="head"),
        embedded("ngram:8/chain:2", draft="head"),
        embedded("ngram:8/chain:3", draft="head"),
        embedded("ngram:8/adaptive:6", draft="head"),
        embedded("ngram:8/chain:3", draft="recurrent"),
        embedded("auto", draft="head"),
    ]
    measure(peers + own, prompts, options.repeats)
    rows = report("greedy", peers + own, plain, [*peers, loop])

    loop = embedded("none", temperature=1.0)
    sampled = [
        loop,
        embedded("chain:2", temperature=1.0),
        embedded("chain:2", draft="head", temperature=1.0),
        embedded("chain:2", draft="head", temperature=1.0, verifier="mss"),
        embedded("chain:3", draft="head", temperature=1.0),
        embedded("chain:3", draft="head", temperature=1.0, verifier="mss"),
        embedded("chain:4", draft="head", temperature=1.0),
        embedded("adaptive:5", draft="head", temperature=1.0),
        embedded("adaptive:5", draft="head", temperature=1.0, verifier="mss"),
        embedded("expand:2,1", draft="head", temperature=1.0),
        embedded("chain:2", draft="recurrent", temperature=1.0),
        embedded("ngram:8/chain:2", draft="recurrent", temperature=1.0),
    ]
    measure(sampled, prompts, options.repeats)
    rows += report("T = 1 (outputs differ by the draws)", sampled, loop, [loop])
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
