"""Sampled output of an engine over a vocabulary that is small enough to count every outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from chi_square import p_value
from drafts_cases import save_exit, save_head, save_medusa, save_recurrent
from test_sampling import target_distribution
from tiny_models import LLAMA, Pair, drain, perturb, tokens_of
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from specops.engine import load_engine
from specops.engine.request import Sampling
from specops.errors import LosslessError

TOKENS = 5
PROMPT = [1, 4, 0, 1, 4]
SAMPLING = Sampling(temperature=1.0, max_tokens=4)
VERIFIERS = ("traversal", "mss", "ranked", "naive")
SAMPLES = 20_000
"""Of one drafter under one verifier."""


def save_models(folder: Path, tokenizer: Path) -> dict[str | None, Path]:
    """By kind, the folders of a target (None) and of drafts for it, over a vocabulary of `TOKENS`."""
    torch.manual_seed(3)
    source = LlamaForCausalLM(LlamaConfig(**{**LLAMA, "vocab_size": TOKENS}))
    with torch.no_grad():
        source.lm_head.weight.mul_(0.4)  # or one outcome would have nearly all the probability
    for name in ("target", "model"):
        source.save_pretrained(folder / name)
        AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder / name)
        perturb(source, 0.06)
    width = LLAMA["hidden_size"]
    return {
        None: folder / "target",
        "model": folder / "model",
        "head": save_head(folder / "head", width, vocabulary=TOKENS),
        "recurrent": save_recurrent(folder / "recurrent", width),
        "medusa": save_medusa(folder / "medusa", width),
        "exit": save_exit(folder / "exit", width),
    }


def p_of(
    small: dict[str | None, Path],
    draft: str | None,
    tree: str,
    verifier: str | None,
    count: int,
    *,
    batch: int = 256,
) -> float:
    """Of `count` seeded outputs. Raises LosslessError where the tree and the verifier do not fit."""
    folder = None if draft is None else small[draft]
    engine = load_engine(small[None], folder, tree=tree, verifier=verifier, max_batch=batch, max_length=16)
    requests = [(PROMPT, replace(SAMPLING, seed=seed)) for seed in range(count)]
    counts = Counter(tuple(tokens_of(emissions)) for emissions in drain(engine, requests))
    assert tree in ("none", "auto:4") or engine.counters.accepted_tokens > 0
    return p_value(counts, distribution_of(small[None]))


@cache
def distribution_of(target: Path) -> dict[tuple[int, ...], float]:
    """The exact distribution of the outputs; a forward pass of transformers for each of 156 prefixes."""
    return target_distribution(Pair(target, target, None), PROMPT, SAMPLING)


def check(small: dict[str | None, Path], draft: str | None, tree: str, verifier: str) -> None:
    """Fails unless the output has the target's distribution, or tree and verifier are rightly refused."""
    deterministic = tree.startswith(("dynamic", "ngram:3", "suffix"))
    try:
        found = p_of(small, draft, tree, verifier, SAMPLES)
    except LosslessError:
        assert deterministic
        assert verifier != "naive"
        return
    assert verifier == "naive" or not deterministic
    assert found > 1e-3
