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
import ast
import hashlib
import json
import keyword
import os
import random
import re
import sys
import sysconfig
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

SEED = 20261120
VOCAB, CONTEXT, BATCH = 2048, 512, 8
END = "<|endoftext|>"
HEADER = "\n# the same, with {old} renamed to {new}:\n"  # what separates the halves of an edit document
SKIPPED = {"test", "tests", "idle_test", "encodings", "pydoc_data", "site-packages", "lib2to3"}


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama decoder with tied embeddings."""

    hidden: int
    layers: int
    inter: int
    heads: int
    kv_heads: int

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


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


TARGET = Shape(hidden=256, layers=8, inter=688, heads=4, kv_heads=2)
DRAFT = Shape(hidden=256, layers=1, inter=688, heads=4, kv_heads=2)
TARGET_SCHEDULE = Schedule(steps=2200, lr=4e-3, decay=0.36)
DRAFT_SCHEDULE = Schedule(steps=2400, lr=3e-3, decay=0.8)
SAMPLE_ROWS, SAMPLE_BATCH, SAMPLE_PROMPT, SAMPLE_TOKENS = 2048, 128, 96, 257


# --- text -------------------------------------------------------------------------------------


def corpus() -> tuple[list[str], list[str]]:
    """Source files of the standard library as (train, held out); one in twenty is held out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    train, held = [], []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if SKIPPED & set(name.parts):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        chosen = int.from_bytes(hashlib.sha256(name.as_posix().encode()).digest()[:4], "big") % 20 == 0
        (held if chosen else train).append(text)
    return train, held


def functions(texts: list[str]) -> list[str]:
    """Every function of 150 to 500 characters, dedented: the material of edit documents."""
    found = []
    for text in texts:
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                source = ast.get_source_segment(text, node, padded=True) or ""
                if 150 <= len(source) <= 500:
                    found.append(textwrap.dedent(source).rstrip())
    return found


def names_in(source: str) -> list[str]:
    words = re.findall(r"\b[a-z_][a-z0-9_]{2,}\b", source)
    return sorted({w for w in words if words.count(w) > 1 and not keyword.iskeyword(w) and w != "self"})


def edit_document(rng: random.Random, pool: list[str]) -> tuple[str, str]:
    """A function with a request to rename one of its names, and the renamed function."""
    while True:
        source, other = rng.choice(pool), rng.choice(pool)
        olds, news = names_in(source), names_in(other)
        if olds and news:
            old, new = rng.choice(olds), rng.choice(news)
            if old != new:
                renamed = re.sub(rf"\b{old}\b", new, source)
                return source + HEADER.format(old=old, new=new), renamed + "\n"


def train_tokenizer(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=[END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tokenizer


class Text:
    """The tokenised corpus, and rows of it for any step."""

    def __init__(self, work: Path) -> None:
        self.train, self.held = corpus()
        path = work / "tokenizer.json"
        if not path.exists():
            train_tokenizer(self.train).save(str(path))
        self.tokenizer = Tokenizer.from_file(str(path))
        self.end = self.tokenizer.token_to_id(END)
        self.files = [e.ids for e in self.tokenizer.encode_batch(self.train)]
        self.held_rows = self._rows([e.ids for e in self.tokenizer.encode_batch(self.held)])
        self.functions = functions(self.train)
        self._epoch: tuple[int, np.ndarray] | None = None

    def _rows(self, documents: list[list[int]]) -> np.ndarray:
        flat = np.fromiter((t for d in documents for t in (*d, self.end)), dtype=np.int64)
        count = (len(flat) - 1) // CONTEXT
        return np.lib.stride_tricks.sliding_window_view(flat, CONTEXT + 1)[: count * CONTEXT : CONTEXT]

    def epoch(self, number: int) -> np.ndarray:
        """All files in a fresh order among fresh edit documents, cut in rows, the rows shuffled."""
        if self._epoch is None or self._epoch[0] != number:
            rng = random.Random(f"{SEED}/epoch/{number}")
            edits = ["".join(edit_document(rng, self.functions)) for _ in range(2400)]
            documents = self.files + [e.ids for e in self.tokenizer.encode_batch(edits)]
            rng.shuffle(documents)
            rows = self._rows(documents)
            self._epoch = number, rows[np.random.default_rng(rng.getrandbits(64)).permutation(len(rows))]
        return self._epoch[1]

    def batch(self, step: int, batch: int = BATCH) -> Tensor:
        per_epoch = len(self.epoch(0)) // batch - 4  # epochs differ by a few rows of edits
        rows = self.epoch(step // per_epoch)
        start = (step % per_epoch) * batch
        return torch.from_numpy(rows[start : start + batch].copy())  # [batch, CONTEXT + 1]


# --- model ------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        kv = shape.kv_heads * shape.head_dim
        self.shape = shape
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=1e-6)
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(shape.hidden, shape.hidden, bias=False),
                "k_proj": nn.Linear(shape.hidden, kv, bias=False),
                "v_proj": nn.Linear(shape.hidden, kv, bias=False),
                "o_proj": nn.Linear(shape.hidden, shape.hidden, bias=False),
            }
        )
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=1e-6)
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(shape.hidden, shape.inter, bias=False),
                "up_proj": nn.Linear(shape.hidden, shape.inter, bias=False),
                "down_proj": nn.Linear(shape.inter, shape.hidden, bias=False),
            }
        )

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], past: list[Tensor] | None) -> Tensor:
        b, n, _ = x.shape
        a, d = self.self_attn, self.shape.head_dim
        h = self.input_layernorm(x)
        q, k, v = (a[p](h).view(b, n, -1, d).transpose(1, 2) for p in ("q_proj", "k_proj", "v_proj"))
        q, k = rotate(q, *rope).to(v.dtype), rotate(k, *rope).to(v.dtype)
        if past is not None:
            if past:
                k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
            past[:] = k, v
        group = self.shape.heads // self.shape.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=n > 1)
        x = x + a["o_proj"](y.transpose(1, 2).reshape(b, n, -1))
        h = self.post_attention_layernorm(x)
        m = self.mlp
        return x + m["down_proj"](F.silu(m["gate_proj"](h)) * m["up_proj"](h))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Llama(nn.Module):
    """Parameter names are those of transformers' Llama, so that exporting is a save."""

    def __init__(self, shape: Shape, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.shape = shape
        self.embed_tokens = nn.Embedding(VOCAB, shape.hidden)
        self.layers = nn.ModuleList([Block(shape) for _ in range(shape.layers)])
        self.norm = nn.RMSNorm(shape.hidden, eps=1e-6)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        frequency = 10000.0 ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        angle = torch.arange(CONTEXT)[:, None] * frequency  # [CONTEXT, head_dim / 2]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens: Tensor, past: list[list[Tensor]] | None = None) -> Tensor:
        start = past[0][0].shape[2] if past and past[0] else 0
        rope = tuple(t[start : start + tokens.shape[1]] for t in (self.cos, self.sin))
        x = self.embed_tokens(tokens)
        for index, layer in enumerate(self.layers):
            x = layer(x, rope, past[index] if past is not None else None)
        return F.linear(self.norm(x), self.embed_tokens.weight).float()  # [batch, n, VOCAB]


# --- training ---------------------------------------------------------------------------------

Loss = Callable[[Llama, int], Tensor]


def bf16() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def save(path: Path, value: object) -> None:
    """Whole or not at all: a kill in mid-write must not cost the run."""
    partial = path.with_suffix(".partial")
    torch.save(value, partial)
    partial.replace(path)


def fit(name: str, model: Llama, schedule: Schedule, loss_of: Loss, text: Text, work: Path) -> Llama:
    """Train `model` to the end of its schedule, from its last checkpoint if there is one."""
    hidden = [p for p in model.layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is h for h in hidden)]
    muon = torch.optim.Muon(hidden, lr=1.0, weight_decay=0.02, adjust_lr_fn="match_rms_adamw")
    adam = torch.optim.AdamW(others, lr=1.0, betas=(0.9, 0.95), weight_decay=0.0)
    path, log = work / f"{name}.pt", work / f"{name}.jsonl"
    state = {"step": 0, "seconds": 0.0}
    if path.exists():
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        muon.load_state_dict(saved["muon"])
        adam.load_state_dict(saved["adam"])
        state = saved["state"]
    started, seconds, running = time.monotonic(), state["seconds"], None
    for step in range(state["step"], schedule.steps):
        for group in (*muon.param_groups, *adam.param_groups):
            group["lr"] = schedule.at(step)
        loss = loss_of(model, step)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in (muon, adam):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
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
                    "muon": muon.state_dict(),
                    "adam": adam.state_dict(),
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


@torch.no_grad()
def continue_rows(target: Llama, rows: Tensor, seed: int) -> Tensor:
    """[batch, n] -> [batch, SAMPLE_TOKENS], even rows greedily and odd ones at temperature 1."""
    generator = torch.Generator().manual_seed(seed)
    past: list[list[Tensor]] = [[] for _ in target.layers]
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


# --- what ships -------------------------------------------------------------------------------


def export(model: Llama, text: Text, folder: Path) -> None:
    """A folder that `AutoModelForCausalLM` and `AutoTokenizer` load by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = model.shape
    weights = {f"model.{k}": v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "intermediate_size": shape.inter,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": text.end,
        "dtype": "bfloat16",
    }
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        # A completion model: a chat is its messages' text, one after the other.
        "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }
    generation = {"eos_token_id": text.end, "pad_token_id": text.end, "do_sample": False}
    for name, value in (
        ("config.json", config),
        ("tokenizer_config.json", tokenizer),
        ("generation_config.json", generation),
    ):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    text.tokenizer.save(str(folder / "tokenizer.json"))


def prompts(text: Text) -> Iterator[dict[str, object]]:
    """64 prompts of 128 to 176 tokens from held-out files: 22 short, 21 long, 21 edit."""
    rng = random.Random(f"{SEED}/prompts")
    pool = functions(text.held)

    def length(part: str) -> int:
        return len(text.tokenizer.encode(part).ids)

    def completion() -> str:
        while True:
            lines = rng.choice(text.held).splitlines(keepends=True)
            start = rng.randrange(len(lines))
            stop = start + 1
            while stop < len(lines) and length("".join(lines[start:stop])) < 128:
                stop += 1
            part, following = "".join(lines[start:stop]), "".join(lines[stop : stop + 1])
            # In the middle of a function, where there is something to go on with.
            if 128 <= length(part) <= 176 and re.match(r" {4,}\S", following):
                return part

    def edit() -> str:
        while True:
            part, _ = edit_document(rng, pool)
            if 128 <= length(part) <= 176:
                return part

    seen: set[str] = set()
    for name, count, max_tokens, make in (
        ("short", 22, 24, completion),
        ("long", 21, 192, completion),
        ("edit", 21, 160, edit),
    ):
        for index in range(count):
            part = make()
            while part in seen:
                part = make()
            seen.add(part)
            yield {"id": f"{name}-{index:02d}", "class": name, "text": part, "max_tokens": max_tokens}


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
