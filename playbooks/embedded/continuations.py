"""Corpus text that goes on in the target's own words."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from llama import Llama, Past
from text import SEED, Text
from torch import Tensor
from training import bf16, save

SAMPLE_ROWS, SAMPLE_BATCH, SAMPLE_PROMPT, SAMPLE_TOKENS = 2048, 128, 96, 257


@torch.no_grad()
def continue_rows(target: Llama, rows: Tensor, seed: int) -> Tensor:
    """[batch, n] -> [batch, SAMPLE_TOKENS], even rows greedily and odd ones at temperature 1."""
    generator = torch.Generator().manual_seed(seed)
    past = Past(target.shape, len(rows), SAMPLE_TOKENS)
    written = [rows]
    latest = rows
    while sum(w.shape[1] for w in written) < SAMPLE_TOKENS:
        with bf16():
            logits = target(latest, past)[:, -1]
        noise = torch.empty_like(logits).exponential_(generator=generator)
        noise[::2] = 1.0  # even rows are greedy
        latest = (F.softmax(logits, -1) / noise).argmax(-1, keepdim=True)
        written.append(latest)
    return torch.cat(written, 1)


@torch.no_grad()
def continuations(target: Llama, text: Text, work: Path) -> Tensor:
    """Rows that begin with corpus text and go on in the target's words, half greedy, half at T = 1."""
    path = work / "samples.pt"
    done: list[Tensor] = torch.load(path, weights_only=True) if path.exists() else []
    while len(done) * SAMPLE_BATCH < SAMPLE_ROWS:
        number = len(done)
        rows = text.batch(number, SAMPLE_BATCH)[:, :SAMPLE_PROMPT]
        done.append(continue_rows(target, rows, seed=SEED * 1000 + number))
        save(path, done)
        print(f"samples {len(done) * SAMPLE_BATCH}/{SAMPLE_ROWS}", flush=True)
    return torch.cat(done)
