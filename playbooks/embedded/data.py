"""What draft heads are trained on: the shipped target's own continuations, some corpus, and its features.

    python playbooks/embedded/data.py --work build/heads

Needs the shipped target alone, not what train.py left behind. The target is run over its rows once and
its features are kept, so that a training step costs only the head. Stages, each skipped when its file is in
--work: continuations (kept batch by batch) -> their features -> the features of corpus. Every random choice
is a function of (SEED, stage, number).
"""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from continuations import SAMPLE_PROMPT, continue_rows
from llama import CONTEXT, TARGET, Llama
from safetensors.torch import load_file
from text import SEED, Text
from torch import Tensor
from training import bf16, save

HERE = Path(__file__).parent
ROWS_A_BATCH, BATCHES, CORPUS_ROWS = 256, 16, 800
HELD_OUT = 128
"""The last rows of the continuations, which nothing is trained on."""


@dataclass(frozen=True)
class Rows:
    """tokens [n, m] int16; features [n, m, hidden] bfloat16: what the target's output layer reads there."""

    tokens: Tensor
    features: Tensor


@dataclass(frozen=True)
class Data:
    output: Tensor
    """[vocab, hidden]: the target's output layer, and its embedding."""
    samples: Rows
    """Corpus text continued by the target; even rows greedily and odd ones at temperature 1."""
    corpus: Rows


def shipped_target(folder: Path) -> Llama:
    target = Llama(TARGET, SEED)
    weights = load_file(str(folder / "model.safetensors"))
    target.load_state_dict({name.removeprefix("model."): value.float() for name, value in weights.items()})
    return target.eval().requires_grad_(False)


def prepare(work: Path, folder: Path = HERE / "target") -> Data:
    """The data, made where it is not there yet: minutes, and 0.7 GB in `work`."""
    work.mkdir(parents=True, exist_ok=True)
    target = shipped_target(folder)
    paths = work / "feat_samples.pt", work / "feat_corpus.pt"
    if not all(path.exists() for path in paths):
        shutil.copyfile(folder / "tokenizer.json", work / "tokenizer.json")
        text = Text(work)
        written = _continuations(target, text, work).to(torch.int16)
        corpus = torch.from_numpy(text.epoch(0)[:CORPUS_ROWS, :CONTEXT].copy()).to(torch.int16)
        for rows, path in zip((written, corpus), paths, strict=True):
            _keep_features(target, rows, path)
    samples, corpus_rows = (Rows(**torch.load(path, weights_only=True)) for path in paths)
    return Data(target.embed_tokens.weight.detach(), samples, corpus_rows)


@torch.no_grad()
def features_of(target: Llama, rows: Tensor) -> Tensor:
    """[batch, n] -> [batch, n, hidden] bfloat16: what the target's output layer reads."""
    x = target.embed_tokens(rows)
    rope = target.cos[: rows.shape[1]], target.sin[: rows.shape[1]]
    with bf16():
        for layer in target.layers:
            x = layer(x, rope, None)
        return target.norm(x).bfloat16()


def _continuations(target: Llama, text: Text, work: Path) -> Tensor:
    """Rows of corpus text that begin anywhere and go on in the target's words."""
    path = work / "continuations.pt"
    done: list[Tensor] = torch.load(path, weights_only=True) if path.exists() else []
    rows_of = text.epoch(1)
    for number in range(len(done), BATCHES):
        started = time.monotonic()
        rng = np.random.default_rng((SEED, 77, number))
        picked = rows_of[rng.choice(len(rows_of), ROWS_A_BATCH, replace=False)]
        starts = rng.integers(0, CONTEXT - SAMPLE_PROMPT, ROWS_A_BATCH)
        prompts = np.stack([r[s : s + SAMPLE_PROMPT] for r, s in zip(picked, starts, strict=True)])
        done.append(continue_rows(target, torch.from_numpy(prompts), seed=number + 5))
        save(path, done)
        print(f"continuations {number + 1}/{BATCHES} {time.monotonic() - started:.0f} s", flush=True)
    return torch.cat(done)


def _keep_features(target: Llama, rows: Tensor, path: Path) -> None:
    if path.exists():
        return
    batch, started = 16, time.monotonic()
    features = torch.empty(*rows.shape, TARGET.hidden, dtype=torch.bfloat16)
    for start in range(0, len(rows), batch):
        features[start : start + batch] = features_of(target, rows[start : start + batch].long())
    save(path, {"tokens": rows, "features": features})
    print(f"{path.stem} {time.monotonic() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, required=True, help="where the data goes; keep it to resume")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    prepare(options.work)


if __name__ == "__main__":
    main()
