"""Train the shipped draft head: one layer that reads the target's features (EAGLE, arXiv 2401.15077).

    python playbooks/embedded/train_head.py --work build/pair --out playbooks/embedded

Needs what train.py left in --work. Stages, each skipped when its file is there: more of the target's own
continuations -> the target's features of them and of corpus -> head -> export. The target is run once over
its rows; a training step then costs one layer, unrolled as drafting unrolls it (EAGLE-3, arXiv 2503.01840:
training-time test), each step reading the guess of the one before. Schedules count steps, and every random
choice is a function of (SEED, stage, step).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from train import (
    CONTEXT,
    DRAFT,
    SAMPLE_BATCH,
    SAMPLE_PROMPT,
    SEED,
    TARGET,
    VOCAB,
    Block,
    Llama,
    Schedule,
    Text,
    bf16,
    continue_rows,
    rotate,
    save,
)

SCHEDULE = Schedule(steps=1500, lr=3e-3, decay=0.8)
MORE_BATCHES = 48
CORPUS_ROWS, HELD_OUT_SAMPLES = 2400, 128
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


def features_of(target: Llama, rows: Tensor) -> Tensor:
    """[batch, n] -> [batch, n, hidden] bfloat16: what the target's output layer reads."""
    x = target.embed_tokens(rows)
    rope = target.cos[: rows.shape[1]], target.sin[: rows.shape[1]]
    with bf16():
        for layer in target.layers:
            x = layer(x, rope, None)
        return target.norm(x).bfloat16()


@torch.no_grad()
def more_continuations(target: Llama, text: Text, work: Path) -> Tensor:
    """As train.py's samples, from corpus text that begins anywhere."""
    path = work / "more.pt"
    if path.exists():
        return torch.load(path, weights_only=True)
    rows_of = text.epoch(1)
    done = []
    for number in range(MORE_BATCHES):
        rng = np.random.default_rng((SEED, 77, number))
        picked = rows_of[rng.choice(len(rows_of), SAMPLE_BATCH, replace=False)]
        starts = rng.integers(0, CONTEXT - SAMPLE_PROMPT, SAMPLE_BATCH)
        prompts = np.stack([r[s : s + SAMPLE_PROMPT] for r, s in zip(picked, starts, strict=True)])
        done.append(continue_rows(target, torch.from_numpy(prompts), seed=number + 5))
        print(f"more samples {number + 1}/{MORE_BATCHES}", flush=True)
    save(path, torch.cat(done))
    return torch.cat(done)


@torch.no_grad()
def with_features(target: Llama, rows: Tensor, path: Path) -> tuple[Tensor, Tensor]:
    """rows [n, m] and their features [n, m, hidden], which take gigabytes and minutes to compute."""
    if not path.exists():
        features = torch.empty(*rows.shape, TARGET.hidden, dtype=torch.bfloat16)
        for start in range(0, len(rows), BATCH):
            features[start : start + BATCH] = features_of(target, rows[start : start + BATCH].long())
            print(f"{path.stem} {start + BATCH}/{len(rows)}", flush=True)
        save(path, {"rows": rows, "f": features})
    kept = torch.load(path, weights_only=True, mmap=True)
    return kept["rows"], kept["f"]


def losses(head: Head, rows: Tensor, features: Tensor, weight: Tensor) -> tuple[Tensor, list[float]]:
    """The loss over all depths, and for each depth the acceptance that it had at temperature 1.

    KL(target || draft) to be near, and total variation, of which 1 less is what verification accepts.
    """
    n = LENGTH - UNROLLED - 1
    past: list[tuple[Tensor, Tensor]] = []
    guess, loss, accepted = features[:, :n], torch.zeros(()), []
    for depth in range(1, UNROLLED + 1):
        with bf16():
            guess = head(rows[:, depth : depth + n], guess, past)
            found = F.linear(guess, weight)
            with torch.no_grad():
                wanted = F.linear(features[:, depth : depth + n], weight)
        q, p = F.log_softmax(found.float(), -1), F.log_softmax(wanted.float(), -1)
        kl = F.kl_div(q.flatten(0, 1), p.flatten(0, 1), log_target=True, reduction="batchmean")
        overlap = torch.minimum(p.exp(), q.exp()).sum(-1).mean()
        loss = loss + 0.8 ** (depth - 1) * (kl + 1 - overlap)
        accepted.append(overlap.item())
    return loss, accepted


def train(
    head: Head, weight: Tensor, samples: tuple[Tensor, Tensor], corpus: tuple[Tensor, Tensor], work: Path
) -> None:
    """To the end of the schedule, from the last checkpoint if there is one. Two steps in three on samples."""
    matrices = [p for p in head.parameters() if p.ndim == 2]
    muon = torch.optim.Muon(matrices, lr=1.0, weight_decay=0.02, adjust_lr_fn="match_rms_adamw")
    norms = [p for p in head.parameters() if p.ndim == 1]
    adam = torch.optim.AdamW(norms, lr=1.0, betas=(0.9, 0.95), weight_decay=0.0)
    path, begun, running = work / "head.pt", 0, [0.0] * UNROLLED
    if path.exists():
        saved = torch.load(path, weights_only=True)
        for part, name in ((head, "model"), (muon, "muon"), (adam, "adam")):
            part.load_state_dict(saved[name])
        begun, running = saved["step"], saved["running"]
    started = time.monotonic()
    for step in range(begun, SCHEDULE.steps):
        for group in (*muon.param_groups, *adam.param_groups):
            group["lr"] = SCHEDULE.at(step)
        rng = np.random.default_rng((5, step))
        rows_of, features_of_rows = samples if step % 3 else corpus
        last = len(rows_of) - (HELD_OUT_SAMPLES if step % 3 else 0)
        picked = torch.from_numpy(rng.choice(last, BATCH, replace=False))
        start = 0 if step % 3 else int(rng.integers(0, CONTEXT - LENGTH))
        rows = rows_of[picked][:, start : start + LENGTH + 1].long()
        loss, accepted = losses(head, rows, features_of_rows[picked][:, start : start + LENGTH], weight)
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for optimizer in (muon, adam):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        running = [0.97 * a + 0.03 * b for a, b in zip(running, accepted, strict=True)]
        done = step + 1
        if done % 50 == 0 or done == SCHEDULE.steps:
            told = [round(share, 3) for share in running]
            print(
                f"head {done}/{SCHEDULE.steps} accepted {told} {time.monotonic() - started:.0f} s", flush=True
            )
            state = {"model": head.state_dict(), "muon": muon.state_dict(), "adam": adam.state_dict()}
            save(path, state | {"step": done, "running": running})


@torch.no_grad()
def held_out(head: Head, weight: Tensor, samples: tuple[Tensor, Tensor]) -> list[float]:
    """Acceptance by depth, at temperature 1, on continuations that were not trained on."""
    totals = torch.zeros(UNROLLED)
    starts = range(len(samples[0]) - HELD_OUT_SAMPLES, len(samples[0]), BATCH)
    for start in starts:
        rows, features = (part[start : start + BATCH] for part in samples)
        totals += torch.tensor(losses(head, rows.long(), features[:, :LENGTH], weight)[1])
    return [round(share, 4) for share in (totals / len(starts)).tolist()]


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
    parser.add_argument("--work", type=Path, required=True, help="train.py's; features go there too")
    parser.add_argument("--out", type=Path, required=True, help="where head/ goes")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    work: Path = options.work
    text = Text(work)
    target = Llama(TARGET, SEED)
    target.load_state_dict(torch.load(work / "target.pt", weights_only=True)["model"])
    target.eval()
    own = torch.cat(torch.load(work / "samples.pt", weights_only=True))
    written = torch.cat((own, more_continuations(target, text, work))).to(torch.int16)
    samples = with_features(target, written, work / "feat_samples.pt")
    rows = torch.from_numpy(text.epoch(0)[:CORPUS_ROWS, :CONTEXT].copy()).to(torch.int16)
    corpus = with_features(target, rows, work / "feat_corpus.pt")
    weight = target.embed_tokens.weight.detach()
    head = Head(weight.clone())
    train(head, weight, samples, corpus, work)
    head.eval()
    export(head, weight, options.out / "head")
    summary = {"schedule": asdict(SCHEDULE), "accepted_held_out": held_out(head, weight, samples)}
    (options.out / "head" / "training.json").write_text(
        json.dumps(summary, indent=2) + "\n", encoding="utf-8"
    )
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
