"""Train the shipped Medusa heads (arXiv 2401.10774): one residual block for each token ahead.

    python playbooks/embedded/train_medusa.py --work build/heads --out playbooks/embedded

They use the target's output layer, so that a head is one matrix and a bias. Needs the shipped target alone;
the data is made first (data.py).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from data import prepare
from fitting import Positions, draw_positions, fit, held_out_positions, loss_at
from llama import TARGET
from safetensors.torch import save_file
from torch import Tensor, nn
from training import Schedule, bf16

HEADS, POSITIONS = 3, 1024
SCHEDULE = Schedule(steps=1500, lr=1e-2, warmup=30, decay=0.8)


class Heads(nn.Module):
    """Head d: the feature before the root -> what the output layer reads for the token d + 1 after it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.blocks = nn.ModuleList(nn.Linear(TARGET.hidden, TARGET.hidden) for _ in range(HEADS))
        for block in self.blocks:
            nn.init.zeros_(block.weight)  # as the authors begin: with what the target itself would say

    def forward(self, features: Tensor) -> list[Tensor]:
        return [features + F.silu(block(features)) for block in self.blocks]


def loss_over(heads: Heads, at: Positions, output: Tensor) -> tuple[Tensor, list[float]]:
    """The heads see neither the root nor what follows it."""
    loss, accepted = torch.zeros(()), []
    with bf16():
        guessed = heads(at.features[:, 0])
    for depth, guess in enumerate(guessed, start=1):
        with bf16():
            found = F.linear(guess, output)
            with torch.no_grad():
                wanted = F.linear(at.features[:, depth], output)
        each, overlap = loss_at(found, F.softmax(wanted.float(), -1))
        loss = loss + 0.8 ** (depth - 1) * each
        accepted.append(overlap.mean().item())
    return loss, accepted


def export(heads: Heads, folder: Path) -> None:
    """By the names of the authors' checkpoints, without output layers: those are the target's."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        f"medusa_head.{index}.0.linear.{name}": value.detach().bfloat16().contiguous()
        for index, block in enumerate(heads.blocks)
        for name, value in block.named_parameters()
    }
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": TARGET.hidden,
        "medusa_num_heads": HEADS,
        "medusa_num_layers": 1,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, required=True, help="data and checkpoints; keep it to resume")
    parser.add_argument("--out", type=Path, required=True, help="where medusa/ goes")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = prepare(options.work)
    heads = Heads()

    def loss_of(step: int) -> tuple[Tensor, list[float]]:
        at = draw_positions(data, np.random.default_rng((6, step)), POSITIONS, HEADS)
        return loss_over(heads, at, data.output)

    fit("medusa", heads, SCHEDULE, loss_of, options.work)
    export(heads, options.out / "medusa")
    with torch.no_grad():
        _, accepted = loss_over(heads, held_out_positions(data, HEADS, greedy=False), data.output)
    summary = {"schedule": asdict(SCHEDULE), "accepted_held_out": [round(share, 4) for share in accepted]}
    path = options.out / "medusa" / "training.json"
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
