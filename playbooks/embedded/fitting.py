"""What trains every head: positions, the loss, and a resumable loop (Muon for matrices, AdamW beside it)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from continuations import SAMPLE_PROMPT
from data import HELD_OUT, Data, Rows
from torch import Tensor, nn
from training import Schedule, descend, optimizers_of, save


@dataclass(frozen=True)
class Positions:
    """Places in the target's text at which a head would draft.

    tokens [n, depth + 1]: the root, and what the target wrote after it.
    features [n, depth + 1, hidden]: of the token before the root, then of each of `tokens` but the
    last, which a head is to guess.
    """

    tokens: Tensor
    features: Tensor


def positions_of(rows: Rows, picked: np.ndarray, places: np.ndarray, depth: int) -> Positions:
    """The roots at `places` of the rows `picked`."""
    row, at = torch.from_numpy(picked)[:, None], torch.from_numpy(places)[:, None] + torch.arange(depth + 1)
    return Positions(rows.tokens[row, at].long(), rows.features[row, at - 1].float())


def draw_positions(data: Data, rng: np.random.Generator, count: int, depth: int) -> Positions:
    """Two in three of them in what the target wrote itself, the others in corpus."""
    parts = []
    own = 2 * count // 3
    for rows, first, last, share in (
        (data.samples, SAMPLE_PROMPT, len(data.samples.tokens) - HELD_OUT, own),
        (data.corpus, 1, len(data.corpus.tokens), count - own),
    ):
        picked = rng.integers(0, last, share)
        places = rng.integers(first, rows.tokens.shape[1] - depth, share)
        parts.append(positions_of(rows, picked, places, depth))
    one, other = parts
    return Positions(torch.cat((one.tokens, other.tokens)), torch.cat((one.features, other.features)))


def held_out_positions(data: Data, depth: int, *, greedy: bool) -> Positions:
    """All places of the held-out rows that the target wrote greedily, or of those at temperature 1."""
    rows = np.arange(len(data.samples.tokens) - HELD_OUT, len(data.samples.tokens))
    rows = rows[rows % 2 == (0 if greedy else 1)]  # as continue_rows wrote them
    places = np.arange(SAMPLE_PROMPT, data.samples.tokens.shape[1] - depth)
    return positions_of(data.samples, np.repeat(rows, len(places)), np.tile(places, len(rows)), depth)


def loss_at(found: Tensor, p: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """[n, V] a head's logits, the target's distribution -> the loss, [n] what verification accepts at T = 1.

    KL(target || head) to be near, and total variation, of which 1 less is what verification accepts. The
    loss is a stand-in with their gradient, written down in place of what autograd would keep and walk
    back through: most of a step's time is spent over [n, V].
    weight: [n], of each position; None: all alike.
    """
    with torch.no_grad():
        q = F.softmax(found.float(), -1)
        overlap = torch.minimum(p, q).sum(-1)
        short = q * (q < p)  # what more of a token's probability would add to the overlap
        slope = q * (1 + short.sum(-1, keepdim=True)) - p - short
        slope *= (1.0 if weight is None else weight[:, None]) / len(found)
    return (found * slope).sum(), overlap


Loss = Callable[[int], tuple[Tensor, list[float]]]
"""step -> the loss, and by depth what was accepted."""


def fit(name: str, head: nn.Module, schedule: Schedule, loss_of: Loss, work: Path) -> None:
    """Train `head` to the end of its schedule, from its last checkpoint in `work` if there is one."""
    matrices = [p for p in head.parameters() if p.ndim == 2]
    others = [p for p in head.parameters() if p.ndim != 2]
    optimizers = optimizers_of(matrices, others)
    path, begun, running = work / f"{name}.pt", 0, None
    if path.exists():
        saved = torch.load(path, weights_only=True)
        head.load_state_dict(saved["head"])
        for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        begun, running = saved["step"], saved["running"]
    started = time.monotonic()
    for step in range(begun, schedule.steps):
        loss, accepted = loss_of(step)
        descend(head, optimizers, schedule.at(step), loss)
        before = running or accepted
        running = [0.97 * a + 0.03 * b for a, b in zip(before, accepted, strict=True)]
        done = step + 1
        if done % 50 == 0 or done == schedule.steps:
            told = json.dumps([round(share, 3) for share in running])
            print(
                f"{name} {done}/{schedule.steps} accepted {told} {time.monotonic() - started:.0f} s",
                flush=True,
            )
            states = [optimizer.state_dict() for optimizer in optimizers]
            save(path, {"head": head.state_dict(), "optimizers": states, "step": done, "running": running})
    head.eval()
