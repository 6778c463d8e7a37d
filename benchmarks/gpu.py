"""The embedded engine on a GPU: PyTorch's attention, the Triton kernel, and the kernel with CUDA graphs.

    python benchmarks/gpu.py [--repeats 3] [--json FILE] [--page FILE.md]

Two models: the shipped pair in float32, whose outputs are compared token for token; and a made target of the
shape of Llama 3.2 1B in bfloat16 with random weights, which shows what a pass costs at a real size. Its draft
is a copy of its first two layers. 128 tokens in, 32 to 96 out, greedy, prefill included, in process. The
three settings take the same prompts in turn, so that drift falls on all alike; a figure is the median over
the repeats, and a ratio is the median of the repeats' ratios. Two passes before that compile and capture.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from batches import decode
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specops.assets import asset
from specops.engine import Engine, load_engine
from specops.engine.models.graphs import Graphed
from specops.load.workload import load_prompts

PROMPT_TOKENS, MAX_BATCH = 128, 8
SETTINGS: dict[str, dict[str, Any]] = {
    "PyTorch": {"attention": "reference"},
    "kernel": {"attention": "kernel", "graphs": False},
    "kernel, graphs": {"attention": "kernel", "graphs": True},
}


@dataclass(frozen=True)
class Model:
    name: str
    target: Path
    draft: str
    dtype: str
    trees: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One tree at one number of streams."""

    model: str
    tree: str
    streams: int
    ms_per_token: dict[str, float]
    """By setting."""

    times_as_fast: dict[str, float]
    """As PyTorch's attention, by setting."""

    same_outputs: dict[str, str]
    """By setting: how many outputs are those of PyTorch's attention."""

    replays: int
    """Passes of the target that graphs ran."""


def made(folder: Path) -> tuple[Path, Path]:
    """A target of the shape of Llama 3.2 1B with random weights, and a copy of its first two layers."""
    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )
    tokenizer = PreTrainedTokenizerFast.from_pretrained(asset("playbooks", "embedded") / "target")
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    folders = folder / "target", folder / "draft"
    for one, layers in zip(folders, (16, 2), strict=True):
        model.model.layers = model.model.layers[:layers]
        model.config.num_hidden_layers = layers
        model.save_pretrained(one)
        tokenizer.save_pretrained(one)
    return folders


def measured(model: Model, repeats: int, streams: tuple[int, ...]) -> list[Cell]:
    texts = [str(p.content) for p in load_prompts(asset("playbooks", "embedded") / "prompts.json").prompts]
    cells = []
    for tree in model.trees:
        engines = {
            name: load_engine(
                model.target,
                model.draft,
                tree=tree,
                device="cuda",
                dtype=model.dtype,
                max_batch=MAX_BATCH,
                max_length=512,
                **options,
            )
            for name, options in SETTINGS.items()
        }
        tokenizer = engines["PyTorch"].tokenizer
        prompts = [tokenizer.encode(text)[-PROMPT_TOKENS:] for text in texts][:16]
        for count in streams:
            cells.append(_cell(model.name, tree, engines, prompts, count, repeats))
            print(cells[-1], flush=True)
        del engines
        torch.cuda.empty_cache()
    return cells


def _cell(
    name: str, tree: str, engines: dict[str, Engine], prompts: list[list[int]], streams: int, repeats: int
) -> Cell:
    prompts = prompts[: max(2, streams)]
    seconds: dict[str, list[float]] = {setting: [] for setting in engines}
    outputs: dict[str, list[list[int]]] = {}
    for repeat in range(-2, repeats):  # the first two passes compile, and capture
        for setting in list(engines) if repeat % 2 else list(engines)[::-1]:
            torch.cuda.synchronize()
            began = perf_counter()
            _, outputs[setting] = decode(engines[setting], prompts, streams)
            torch.cuda.synchronize()
            if repeat >= 0:
                seconds[setting].append(perf_counter() - began)
    tokens = sum(map(len, outputs["PyTorch"]))
    target = engines["kernel, graphs"].target
    return Cell(
        name,
        tree,
        streams,
        {one: statistics.median(taken) / tokens * 1000 for one, taken in seconds.items()},
        {
            one: statistics.median(a / b for a, b in zip(seconds["PyTorch"], taken, strict=True))
            for one, taken in seconds.items()
        },
        {
            one: f"{sum(a == b for a, b in zip(found, outputs['PyTorch'], strict=True))}/{len(found)}"
            for one, found in outputs.items()
        },
        target.replays if isinstance(target, Graphed) else 0,
    )


def page(cells: list[Cell]) -> str:
    """A section for kernels/RESULTS.md."""
    lines = [
        f"### {datetime.now(UTC):%Y-%m-%d}, {torch.cuda.get_device_name()}: the engine, milliseconds a token",
        "",
        f"torch {torch.__version__}. {PROMPT_TOKENS} tokens in, 32 to 96 out, greedy, prefill included. × is"
        " how many times as fast as PyTorch's attention with a mask. Replays are the target's passes that a"
        " graph ran.",
        "",
        "| model | tree | streams | PyTorch | kernel | kernel, graphs | replays | same outputs |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for cell in cells:
        times = [
            f"{cell.ms_per_token[name]:.3f}"
            + ("" if name == "PyTorch" else f" ({cell.times_as_fast[name]:.2f}×)")
            for name in SETTINGS
        ]
        same = ", ".join(cell.same_outputs[name] for name in SETTINGS if name != "PyTorch")
        lines.append(
            f"| {cell.model} | {cell.tree} | {cell.streams} | {' | '.join(times)} | {cell.replays} | {same} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the cells to this file")
    parser.add_argument("--page", type=Path, help="Markdown file to which the tables are added")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("could not measure the engine on a GPU: torch sees no GPU")
    pair = asset("playbooks", "embedded")
    cells = measured(
        Model(
            "shipped pair, float32",
            pair / "target",
            str(pair / "draft"),
            "float32",
            ("none", "chain:3", "expand:2,1,1"),
        ),
        options.repeats,
        (1, 8),
    )
    with tempfile.TemporaryDirectory() as folder:
        large, small = made(Path(folder))
        cells += measured(
            Model("1B, bfloat16", large, str(small), "bfloat16", ("none", "chain:3", "expand:2,2,1")),
            options.repeats,
            (1, 8),
        )
    print(page(cells))
    if options.page is not None:
        with options.page.open("a", encoding="utf-8") as file:
            file.write("\n" + page(cells))
    if options.json is not None:
        options.json.write_text(
            json.dumps([asdict(cell) for cell in cells], indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
