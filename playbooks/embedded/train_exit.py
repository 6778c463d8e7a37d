"""Train the adapter for early exit (LayerSkip, arXiv 2404.16710): one matrix behind the first layers.

    python playbooks/embedded/train_exit.py --work build/heads --out playbooks/embedded

The target was not trained to be left early, and stays as it is: x + A x, where x leaves its first layers,
goes through its own norm and output layer. Needs the shipped target alone; the data is made first (data.py).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from continuations import SAMPLE_PROMPT
from data import HELD_OUT, HERE, Rows, prepare, shipped_target
from fitting import fit, loss_at
from llama import TARGET, Llama
from safetensors.torch import save_file
from torch import Tensor, nn
from training import Schedule, bf16

LAYERS, ROWS = 2, 6
SCHEDULE = Schedule(steps=200, lr=1e-2, warmup=30, decay=0.8)


def leaving(target: Llama, tokens: Tensor) -> Tensor:
    """[n, m] -> [n, m, hidden]: what leaves the first layers."""
    x = target.embed_tokens(tokens)
    rope = target.cos[: tokens.shape[1]], target.sin[: tokens.shape[1]]
    with torch.no_grad(), bf16():
        for layer in target.layers[:LAYERS]:
            x = layer(x, rope, None)
    return x


def loss_over(
    adapter: nn.Linear, target: Llama, rows: Rows, picked: np.ndarray
) -> tuple[Tensor, list[float]]:
    """In what the target wrote itself; a draft of it says at every place what comes next."""
    x = leaving(target, rows.tokens[picked].long())[:, SAMPLE_PROMPT:].flatten(0, 1)
    wanted = F.linear(
        rows.features[picked][:, SAMPLE_PROMPT:].flatten(0, 1).float(), target.embed_tokens.weight
    )
    with bf16():
        found = F.linear(target.norm(x + adapter(x)), target.embed_tokens.weight)
    loss, overlap = loss_at(found, F.softmax(wanted, -1))
    return loss, [overlap.mean().item()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, required=True, help="data and checkpoints; keep it to resume")
    parser.add_argument("--out", type=Path, required=True, help="where exit/ goes")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows, target = prepare(options.work).samples, shipped_target(HERE / "target")
    adapter = nn.Linear(TARGET.hidden, TARGET.hidden, bias=False)
    nn.init.zeros_(adapter.weight)
    last = len(rows.tokens) - HELD_OUT
    held_out = np.arange(last + 1, len(rows.tokens), 4)  # odd ones: written at temperature 1
    with torch.no_grad():
        _, bare = loss_over(adapter, target, rows, held_out)

    def loss_of(step: int) -> tuple[Tensor, list[float]]:
        picked = np.random.default_rng((7, step)).choice(last, ROWS, replace=False)
        return loss_over(adapter, target, rows, picked)

    fit("exit", adapter, SCHEDULE, loss_of, options.work)
    folder: Path = options.out / "exit"
    folder.mkdir(parents=True, exist_ok=True)
    weights = {"exit.weight": adapter.weight.detach().bfloat16().contiguous()}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["SpecopsEarlyExit"],
        "model_type": "specops_early_exit",
        "vocab_size": target.embed_tokens.num_embeddings,
        "hidden_size": TARGET.hidden,
        "exit_layers": LAYERS,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    with torch.no_grad():
        _, accepted = loss_over(adapter, target, rows, held_out)
    summary = {
        "schedule": asdict(SCHEDULE),
        "accepted_held_out": round(accepted[0], 4),
        "accepted_held_out_without_adapter": round(bare[0], 4),
    }
    (folder / "training.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
