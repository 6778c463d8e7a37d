"""Train the shipped target/draft pair from nothing but the Python standard library's own source.

    python playbooks/embedded/train.py --work build/pair --out playbooks/embedded

Stages, each skipped when its file is already in --work, so that the run can be stopped at any time:
corpus and tokenizer -> target -> samples (the target's own continuations) -> draft (one layer that begins
as the target's first, distilled on corpus and samples) -> export and prompts. Every schedule counts steps,
never seconds, and every random choice is a function of (SEED, stage, step): the same torch build and
thread count repeat it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from continuations import continuations
from export import export
from llama import DRAFT, TARGET, Llama
from prompts import prompts
from text import BATCH, SEED, Text
from torch import Tensor, nn
from training import Schedule, bf16, descend, optimizers_of, save

TARGET_SCHEDULE = Schedule(steps=2200, lr=4e-3, decay=0.36)
DRAFT_SCHEDULE = Schedule(steps=2400, lr=3e-3, decay=0.8)

Loss = Callable[[Llama, int], Tensor]


def fit(name: str, model: Llama, schedule: Schedule, loss_of: Loss, text: Text, work: Path) -> Llama:
    """Train `model` to the end of its schedule, from its last checkpoint if there is one."""
    hidden = [p for p in model.layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is h for h in hidden)]
    optimizers = optimizers_of(hidden, others)
    path, log = work / f"{name}.pt", work / f"{name}.jsonl"
    state = {"step": 0, "seconds": 0.0}
    if path.exists():
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        for optimizer, kept in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        state = saved["state"]
    started, seconds, running = time.monotonic(), state["seconds"], None
    for step in range(state["step"], schedule.steps):
        loss = loss_of(model, step)
        descend(model, optimizers, schedule.at(step), loss)
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        done = step + 1
        if done % 100 == 0 or done == schedule.steps:
            seconds = state["seconds"] + time.monotonic() - started
            record = {"step": done, "loss": round(running, 4), "seconds": round(seconds)}
            if done % 500 == 0 or done == schedule.steps:
                record["held_out"] = round(held_out_loss(model, text), 4)
            with log.open("a") as out:
                out.write(json.dumps(record) + "\n")
            print(f"{name} {done}/{schedule.steps} {record}", flush=True)
            save(
                path,
                {
                    "model": model.state_dict(),
                    "optimizers": [optimizer.state_dict() for optimizer in optimizers],
                    "state": {"step": done, "seconds": seconds},
                },
            )
    return model.eval()


def cross_entropy(text: Text) -> Loss:
    def loss(model: Llama, step: int) -> Tensor:
        rows = text.batch(step)
        with bf16():
            logits = model(rows[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())

    return loss


def distillation(text: Text, target: Llama, samples: Tensor) -> Loss:
    """KL(target || draft) on the corpus and, every other step, on what the target itself writes."""

    def loss(model: Llama, step: int) -> Tensor:
        if step % 2:
            rows = text.batch(step // 2)
        else:
            rng = np.random.default_rng((SEED, 5, step))
            rows = samples[torch.from_numpy(rng.choice(len(samples), 2 * BATCH, replace=False))]
        with torch.no_grad(), bf16():
            goal = F.log_softmax(target(rows[:, :-1]), -1)
        with bf16():
            logits = model(rows[:, :-1])
        guess = F.log_softmax(logits, -1)
        return F.kl_div(guess.flatten(0, 1), goal.flatten(0, 1), log_target=True, reduction="batchmean")

    return loss


@torch.no_grad()
def held_out_loss(model: Llama, text: Text, rows: int = 128) -> float:
    total = 0.0
    for start in range(0, rows, BATCH):
        part = torch.from_numpy(text.held_rows[start : start + BATCH].copy())
        with bf16():
            logits = model(part[:, :-1])
        total += F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()).item() * len(part)
    return total / rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, required=True, help="checkpoints and logs; keep it to resume")
    parser.add_argument("--out", type=Path, required=True, help="where target/, draft/ and prompts.json go")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    work: Path = options.work
    work.mkdir(parents=True, exist_ok=True)
    text = Text(work)
    print(
        f"{len(text.train)} files, {sum(map(len, text.files)):,} tokens; held out {len(text.held)} files, "
        f"{text.held_rows.size:,} tokens; {len(text.functions)} functions; torch {torch.__version__}",
        flush=True,
    )
    target = Llama(TARGET, SEED)
    draft = Llama(DRAFT, SEED + 1)
    print(f"target {count(target):,} parameters, draft {count(draft):,}", flush=True)
    fit("target", target, TARGET_SCHEDULE, cross_entropy(text), text, work)
    samples = continuations(target, text, work)
    shared = draft.state_dict().keys()  # embedding, first layer and norm
    draft.load_state_dict({name: value for name, value in target.state_dict().items() if name in shared})
    fit("draft", draft, DRAFT_SCHEDULE, distillation(text, target, samples), text, work)
    export(target, text, options.out / "target")
    export(draft, text, options.out / "draft")
    rows = list(prompts(text))
    (options.out / "prompts.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    schedules = {"target": TARGET_SCHEDULE, "draft": DRAFT_SCHEDULE}
    summary = {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "corpus_sha256": hashlib.sha256("\0".join(text.train).encode()).hexdigest(),
        "schedules": {k: asdict(v) for k, v in schedules.items()},
        "held_out_loss": {
            name: round(held_out_loss(model, text), 4)
            for name, model in (("target", target), ("draft", draft))
        },
    }
    (options.out / "training.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary["held_out_loss"]), flush=True)


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


if __name__ == "__main__":
    main()
