"""What every training here shares: a schedule, optimizers, one step of them, and files that are whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class Schedule:
    """Warm up, hold, then decay linearly to zero over the last `decay` share of the steps."""

    steps: int
    lr: float
    warmup: int = 100
    decay: float = 0.5

    def at(self, step: int) -> float:
        left = (self.steps - step) / (self.steps * self.decay)
        return self.lr * min(1.0, (step + 1) / self.warmup, left)


def bf16() -> torch.autocast:
    """bfloat16 for products, where the processor has it: where it has not, they would take longer."""
    able = bool(torch.cpu.get_capabilities().get("avx512_bf16"))
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=able)


def save(path: Path, value: object) -> None:
    """Whole or not at all: a kill in mid-write must not cost the run."""
    partial = path.with_suffix(".partial")
    torch.save(value, partial)
    partial.replace(path)


def optimizers_of(matrices: Iterable[Tensor], others: Iterable[Tensor]) -> list[Optimizer]:
    """Muon, and AdamW where there is anything for it; `descend` gives them their rates."""
    found: list[Optimizer] = [
        torch.optim.Muon(matrices, lr=1.0, weight_decay=0.02, adjust_lr_fn="match_rms_adamw")
    ]
    others = list(others)
    if others:
        found.append(torch.optim.AdamW(others, lr=1.0, betas=(0.9, 0.95), weight_decay=0.0))
    return found


def descend(model: nn.Module, optimizers: list[Optimizer], rate: float, loss: Tensor) -> None:
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
