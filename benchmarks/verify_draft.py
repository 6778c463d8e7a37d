"""CPU time of `specops verify-draft` on two vocabularies of 150,000 entries.

    python benchmarks/verify_draft.py [--entries 150000] [--times 5] [--json FILE]

Two byte-level BPE tokenizers of the same entries and merges, in two files that are not the same bytes, as a
target and its draft have them; without weights. Timed is the whole command, the start of Python included:
user and system time of all its threads. To reach: 5 s, with 1,000 encodings or more.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import pre_tokenizers

TO_REACH_S = 5.0


def vocabulary(entries: int) -> tuple[dict[str, int], list[list[str]]]:
    """Every byte, then pairs of earlier tokens: as many merges as a trained tokenizer has, in its shape."""
    dice = random.Random(0)
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    known, merges = set(tokens), []
    while len(tokens) < entries:
        # Early tokens are taken often, as in trained ones, so that lengths stay near six bytes.
        first, second = (tokens[int(len(tokens) * dice.random() ** 4)] for _ in range(2))
        if first + second not in known and len(first + second) <= 16:
            known.add(first + second)
            tokens.append(first + second)
            merges.append([first, second])
    return {token: index for index, token in enumerate(tokens)}, merges


def write_header(path: Path, rows: int, width: int) -> None:
    """Tensors of a small model, without values: the kind of a draft is read from their names."""
    shapes = {"model.embed_tokens.weight": [rows, width]}
    shapes |= {f"model.layers.{layer}.self_attn.q_proj.weight": [width, width] for layer in range(2)}
    header, end = {}, 0
    for name, (height, across) in shapes.items():
        header[name] = {
            "dtype": "BF16",
            "shape": [height, across],
            "data_offsets": [end, end + 2 * height * across],
        }
        end += 2 * height * across
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def write(
    folder: Path, vocab: dict[str, int], merges: list[list[str]], *, indent: int | None, width: int
) -> None:
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    pattern = (
        r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    end = {"id": len(vocab), "content": "<|end|>", "special": True, "normalized": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [end | {"lstrip": False, "rstrip": False, "single_word": False}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, step | {"use_regex": False}]},
        "decoder": step,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(vocab) + 1,
    } | sizes
    folder.mkdir()
    text = json.dumps(tokenizer, ensure_ascii=False, indent=indent)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_header(folder / "model.safetensors", len(vocab) + 1, width)


def timed(target: Path, draft: Path) -> tuple[float, dict[str, object]]:
    """Seconds of CPU of one command, and its result."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "specops", "verify-draft", str(target), str(draft), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=150_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    vocab, merges = vocabulary(options.entries)
    with tempfile.TemporaryDirectory() as place:
        target, draft = Path(place) / "target", Path(place) / "draft"
        write(target, vocab, merges, indent=None, width=64)
        write(draft, dict(reversed(vocab.items())), merges, indent=1, width=16)
        runs = [timed(target, draft) for _ in range(options.times)]
    seconds, result = [spent for spent, _ in runs], runs[0][1]
    median = statistics.median(seconds)
    count = result["data"]["encodings"]["count"]  # type: ignore[index]
    print(
        f"{len(vocab):,} entries and {len(merges):,} merges a side, {count:,} encodings: {result['reason']}"
    )
    reached = "reached" if median <= TO_REACH_S else "NOT reached"
    told = ", ".join(f"{spent:.2f}" for spent in sorted(seconds))
    print(f"CPU time {median:.2f} s in the middle of {told}; to reach {TO_REACH_S:.0f} s: {reached}")
    if options.json is not None:
        figures = {"entries": len(vocab), "encodings": count, "cpu_s": seconds}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
