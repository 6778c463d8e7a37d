"""Train the recurrent draft heads: no attention, no cache, a state that each drafted token moves on.

    python playbooks/embedded/train_recurrent.py --work build/heads --out playbooks/embedded

The first state is the target's feature before the root (ReDrafter, arXiv 2403.09919; Hydra, 2402.05109; EAGLE
without its attention). A step of training unrolls the head as drafting does, at positions picked anywhere in
what the target wrote. Needs the shipped target alone; the data is made first (data.py).

--boosted N trains the N-th draft of a union on what the ones before it miss (SpecInfer, arXiv 2305.09781,
section 3): a position counts by the probability that none of them is accepted there.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from data import Data, prepare
from fitting import Positions, draw_positions, fit, held_out_positions, loss_at
from llama import TARGET
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from training import Schedule, bf16

UNROLLED, POSITIONS = 3, 1024
LOUDER = 6.5
"""Tokens' rows of the output layer are that much smaller than features; the matrix that reads them is scaled
when it is exported."""


@dataclass(frozen=True)
class Plan:
    folder: str
    inter: int
    schedule: Schedule


PLANS = (
    Plan("recurrent", 512, Schedule(steps=3600, lr=8e-3, warmup=50, decay=0.9)),
    Plan("boosted-2", 256, Schedule(steps=260, lr=1e-2, warmup=30, decay=0.8)),
    Plan("boosted-3", 256, Schedule(steps=260, lr=1e-2, warmup=30, decay=0.8)),
)


class Cell(nn.Module):
    """state, token -> state, the guess at the target's feature of that token.

    y = R state + T token, cut in x, gate and up; the next state is x + D (silu(gate) * up). What T makes of a
    token depends on nothing else, so that the engine looks it up in a table.
    """

    def __init__(self, width: int, inter: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.recurrent = nn.Linear(width, width + 2 * inter, bias=False)
        self.token = nn.Linear(width, width + 2 * inter, bias=False)
        self.down = nn.Linear(inter, width, bias=False)
        with torch.no_grad():
            self.recurrent.weight[:width] += 0.5 * torch.eye(width)  # begin by keeping the state
        self.cuts = (width, inter, inter)

    def forward(self, state: Tensor, tokens: Tensor) -> Tensor:
        """state [n, width]; tokens [n, width]: their rows of the target's output layer, times LOUDER."""
        x, gate, up = (self.recurrent(state) + self.token(tokens)).split(self.cuts, -1)
        return x + self.down(F.silu(gate) * up)


Unrolled = tuple[Tensor, list[Tensor]]
"""The loss, and for each depth [n] what is accepted at temperature 1."""


def unroll(cell: Cell, at: Positions, output: Tensor, weights: list[Tensor] | None = None) -> Unrolled:
    """Drafting along what the target wrote, the loss of each depth counting 0.8 of the one above."""
    state, loss, overlaps = at.features[:, 0], torch.zeros(()), []
    for depth in range(at.tokens.shape[1] - 1):
        with bf16():
            state = cell(state, LOUDER * output[at.tokens[:, depth]])
            found = F.linear(state, output)
            with torch.no_grad():
                wanted = F.linear(at.features[:, depth + 1], output)
        each, overlap = loss_at(found, F.softmax(wanted.float(), -1), weights[depth] if weights else None)
        loss = loss + 0.8**depth * each
        overlaps.append(overlap)
    return loss, overlaps


def missed(before: list[Cell], at: Positions, output: Tensor) -> list[Tensor]:
    """By depth, [n]: a position's weight, 1 on average: the chance that every earlier draft is refused."""
    left = [torch.ones(len(at.tokens)) for _ in range(at.tokens.shape[1] - 1)]
    with torch.no_grad():
        for cell in before:
            for depth, overlap in enumerate(unroll(cell, at, output)[1]):
                left[depth] *= 1 - overlap
    return [share / share.mean() for share in left]


def train(plan: Plan, before: list[Cell], data: Data, work: Path) -> Cell:
    cell = Cell(TARGET.hidden, plan.inter, seed=1 + len(before))

    def loss_of(step: int) -> tuple[Tensor, list[float]]:
        at = draw_positions(data, np.random.default_rng((5, len(before), step)), POSITIONS, UNROLLED)
        loss, overlaps = unroll(cell, at, data.output, missed(before, at, data.output) if before else None)
        return loss, [overlap.mean().item() for overlap in overlaps]

    fit(plan.folder, cell, plan.schedule, loss_of, work)
    return cell


def export(plan: Plan, cell: Cell, data: Data, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    weights = dict(cell.state_dict())
    weights["token.weight"] = weights["token.weight"] * LOUDER
    kept = {name: value.bfloat16().contiguous() for name, value in weights.items()}
    save_file(kept, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["SpecopsRecurrentHead"],
        "model_type": "specops_recurrent",
        "vocab_size": data.output.shape[0],
        "hidden_size": TARGET.hidden,
        "intermediate_size": plan.inter,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load(plan: Plan, folder: Path) -> Cell:
    """A head that was exported, to train the next one on what it misses."""
    cell = Cell(TARGET.hidden, plan.inter, seed=0)
    weights = load_file(str(folder / "model.safetensors"))
    weights["token.weight"] = weights["token.weight"] / LOUDER
    cell.load_state_dict(weights)
    return cell.eval()


@torch.no_grad()
def held_out(cell: Cell, data: Data) -> dict[str, list[float]]:
    """Acceptance by depth at temperature 1, on continuations that were not trained on."""
    found = {}
    for name, greedy in (("temperature 1", False), ("overlap on greedy text", True)):
        at = held_out_positions(data, UNROLLED, greedy=greedy)
        found[name] = [round(overlap.mean().item(), 4) for overlap in unroll(cell, at, data.output)[1]]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, required=True, help="data and checkpoints; keep it to resume")
    parser.add_argument("--out", type=Path, required=True, help="where recurrent/ goes")
    parser.add_argument("--boosted", type=int, default=1, choices=(1, 2, 3), help="which draft of a union")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = prepare(options.work)
    earlier, plan = PLANS[: options.boosted - 1], PLANS[options.boosted - 1]
    cell = train(plan, [load(one, options.out / one.folder) for one in earlier], data, options.work)
    folder = options.out / plan.folder
    export(plan, cell, data, folder)
    summary = {"schedule": asdict(plan.schedule), "accepted_held_out": held_out(cell, data)}
    (folder / "training.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
