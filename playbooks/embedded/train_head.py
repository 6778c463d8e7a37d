"""Train the shipped draft head: one layer that reads the target's features (EAGLE, arXiv 2401.15077).

    python playbooks/embedded/train_head.py --work build/heads --out playbooks/embedded

Needs the shipped target alone; the data is made first (data.py). A training step costs one layer, unrolled as
drafting unrolls it (EAGLE-3, arXiv 2503.01840: training-time test), each step reading the guess of the one
before. Schedules count steps, and every random choice is a function of (SEED, stage, step).
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
from data import HELD_OUT, Data, Rows, prepare
from fitting import fit, loss_at
from llama import CONTEXT, DRAFT, VOCAB, Block, rotate
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from training import Schedule, bf16

SCHEDULE = Schedule(steps=1500, lr=3e-3, decay=0.8)
FURTHER = Schedule(steps=1000, lr=2e-3, decay=1.0)
"""Of a head that was trained before."""
BATCH, LENGTH, UNROLLED = 16, 256, 3


class Head(nn.Module):
    """Beside each token's embedding it reads the feature before it; it guesses the feature of the token."""

    def __init__(self, embedding: Tensor) -> None:
        super().__init__()
        torch.manual_seed(1)
        hidden = DRAFT.hidden
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        with torch.no_grad():
            self.fc.weight[:, hidden:] += 0.5 * torch.eye(hidden)  # begin by passing the feature on
        self.block = Block(DRAFT)
        self.block.input_layernorm = nn.Identity()
        self.register_buffer("embedding", embedding, persistent=False)
        frequency = 10000.0 ** (-torch.arange(0, DRAFT.head_dim, 2) / DRAFT.head_dim)
        angle = torch.arange(CONTEXT)[:, None] * frequency
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens: Tensor, features: Tensor, past: list[tuple[Tensor, Tensor]]) -> Tensor:
        """One step of drafting at every position at once.

        tokens, features: [batch, n] and [batch, n, hidden]; row i has drafted `len(past)` tokens from
        position i on. It sees the true slots up to i, and of the drafted ones its own. Returns guesses.
        """
        b, n = tokens.shape
        a, m, depth = self.block.self_attn, self.block.mlp, len(past)
        x = self.fc(torch.cat((F.embedding(tokens, self.embedding), features), -1))
        q, k, v = (
            a[p](x).view(b, n, -1, DRAFT.head_dim).transpose(1, 2) for p in ("q_proj", "k_proj", "v_proj")
        )
        rope = self.cos[depth : depth + n], self.sin[depth : depth + n]
        q, k = rotate(q, *rope).to(v.dtype), rotate(k, *rope).to(v.dtype)
        past.append((k, v))
        group = DRAFT.heads // DRAFT.kv_heads
        keys, values = (torch.cat(part, 2).repeat_interleave(group, 1) for part in zip(*past, strict=True))
        mask = _sees(n, depth).to(q.dtype) if depth else None
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, is_causal=not depth)
        x = x + a["o_proj"](y.transpose(1, 2).reshape(b, n, -1))
        h = self.block.post_attention_layernorm(x)
        return x + m["down_proj"](F.silu(m["gate_proj"](h)) * m["up_proj"](h))


def _sees(n: int, depth: int) -> Tensor:
    """[n, (depth + 1) * n] additive: true slots causally, drafted ones each row its own."""
    own = torch.eye(n, dtype=torch.bool)
    seen = torch.cat([torch.ones(n, n, dtype=torch.bool).tril(), *[own] * depth], 1)
    return torch.zeros(seen.shape).masked_fill_(~seen, float("-inf"))


def losses(head: Head, rows: Tensor, features: Tensor, output: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The loss over all depths, and for each depth [batch, n] what is accepted at temperature 1.

    rows [batch, LENGTH + 1]; features [batch, LENGTH, hidden].
    """
    n = LENGTH - UNROLLED - 1
    past: list[tuple[Tensor, Tensor]] = []
    guess, loss, overlaps = features[:, :n].float(), torch.zeros(()), []
    with torch.no_grad(), bf16():
        p = F.softmax(F.linear(features.float(), output).float(), -1)
    for depth in range(1, UNROLLED + 1):
        with bf16():
            guess = head(rows[:, depth : depth + n], guess, past)
            found = F.linear(guess, output).flatten(0, 1)
        each, overlap = loss_at(found, p[:, depth : depth + n].flatten(0, 1))
        loss = loss + 0.8 ** (depth - 1) * each
        overlaps.append(overlap.view(-1, n))
    return loss, overlaps


def batch_of(data: Data, step: int) -> Rows:
    """Two steps in three on what the target wrote itself."""
    rng = np.random.default_rng((5, step))
    rows = data.samples if step % 3 else data.corpus
    last = len(rows.tokens) - (HELD_OUT if step % 3 else 0)
    picked = torch.from_numpy(rng.choice(last, BATCH, replace=False))
    start = 0 if step % 3 else int(rng.integers(0, CONTEXT - LENGTH))
    return Rows(
        rows.tokens[picked][:, start : start + LENGTH + 1].long(),
        rows.features[picked][:, start : start + LENGTH],
    )


@torch.no_grad()
def held_out(head: Head, data: Data) -> list[float]:
    """Acceptance by depth, at temperature 1, along what the target wrote so and nothing was trained on."""
    rows = range(len(data.samples.tokens) - HELD_OUT + 1, len(data.samples.tokens), 2)  # the odd ones
    found: list[list[Tensor]] = []
    for start in range(0, len(rows), BATCH):
        picked = list(rows[start : start + BATCH])
        tokens, features = data.samples.tokens[picked].long(), data.samples.features[picked, :LENGTH]
        overlaps = losses(head, tokens, features, data.output)[1]
        found.append([overlap[:, SAMPLE_PROMPT:] for overlap in overlaps])
    return [round(torch.cat(depth).mean().item(), 4) for depth in zip(*found, strict=True)]


def load(head: Head, folder: Path) -> None:
    """The weights of a head that was exported."""
    weights = load_file(str(folder / "model.safetensors"))
    del weights["embed_tokens.weight"]
    head.load_state_dict({k.replace("layers.0.", "block."): v.float() for k, v in weights.items()})


def export(head: Head, embedding: Tensor, folder: Path) -> None:
    """In the form of EAGLE's own checkpoints, which vLLM and SGLang read."""
    folder.mkdir(parents=True, exist_ok=True)
    state = head.state_dict()
    weights = {k.replace("block.", "layers.0."): v.bfloat16().contiguous() for k, v in state.items()}
    weights["embed_tokens.weight"] = embedding.bfloat16().contiguous()
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["EagleLlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": DRAFT.hidden,
        "num_hidden_layers": 1,
        "intermediate_size": DRAFT.inter,
        "num_attention_heads": DRAFT.heads,
        "num_key_value_heads": DRAFT.kv_heads,
        "head_dim": DRAFT.head_dim,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, required=True, help="data and checkpoints; keep it to resume")
    parser.add_argument("--out", type=Path, required=True, help="where head/ goes")
    parser.add_argument("--begin", type=Path, help="the folder of a head to train on, instead of a new one")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = prepare(options.work)
    head, schedule = Head(data.output.clone()), SCHEDULE
    if options.begin is not None:
        load(head, options.begin)
        schedule = FURTHER

    def loss_of(step: int) -> tuple[Tensor, list[float]]:
        rows = batch_of(data, step)
        loss, overlaps = losses(head, rows.tokens, rows.features, data.output)
        return loss, [overlap.mean().item() for overlap in overlaps]

    fit("head", head, schedule, loss_of, options.work)
    export(head, data.output, options.out / "head")
    summary = {"schedule": asdict(schedule), "accepted_held_out": held_out(head, data)}
    path = options.out / "head" / "training.json"
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
