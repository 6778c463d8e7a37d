"""Every drafter under every verifier, as they run: the output's distribution is the target's, or the pair is
refused. By a chi-square test over a vocabulary that is small enough to count every outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
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
SAMPLES = 20_000
ALONE = 4_000
"""Where sequences do not share steps, a sample takes eight times as long."""
GROWN = ["chain:3", "adaptive:4", "expand:2,2", "shape:0,0,1", "dynamic:6:2"]
CASES = [
    *(("model", tree) for tree in GROWN),
    *((draft, "expand:2,2") for draft in ("head", "recurrent", "medusa", "exit")),
    *(("model", tree) for tree in ("chain:2+ngram:2", "chain:2+expand:2", "ngram:2/chain:2", "auto:4")),
    *((None, tree) for tree in ("none", "ngram:3", "suffix:4")),
]


@pytest.fixture(scope="module")
def small(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, Path]:
    """By kind, the folders of a target (None) and of drafts for it, over a vocabulary of a few tokens."""
    folder = tmp_path_factory.mktemp("small")
    torch.manual_seed(3)
    source = LlamaForCausalLM(LlamaConfig(**{**LLAMA, "vocab_size": TOKENS}))
    with torch.no_grad():
        source.lm_head.weight.mul_(0.4)  # or one outcome would have nearly all the probability
    for name in ("target", "model"):
        source.save_pretrained(folder / name)
        AutoTokenizer.from_pretrained(tiny_pair[0]).save_pretrained(folder / name)
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
    batch: int = 64,
) -> float:
    """Of `count` seeded outputs. Raises LosslessError where the tree and the verifier do not fit."""
    folder = None if draft is None else small[draft]
    engine = load_engine(small[None], folder, tree=tree, verifier=verifier, max_batch=batch, max_length=16)
    sampling = Sampling(temperature=1.0, max_tokens=4)
    requests = [(PROMPT, replace(sampling, seed=seed)) for seed in range(count)]
    counts = Counter(tuple(tokens_of(emissions)) for emissions in drain(engine, requests))
    assert tree in ("none", "auto:4") or engine.counters.accepted_tokens > 0
    pair = Pair(small[None], small["model"], None)
    return p_value(counts, target_distribution(pair, PROMPT, sampling))


@pytest.mark.parametrize("draft", ["head", "recurrent"])
def test_passes_in_one_call(draft: str, small: dict[str | None, Path]) -> None:
    """One sequence at a time: a chain of an EAGLE head's is then one compiled call, draws included.

    400 samples tell two draft distributions that changed places (p below 1e-12)."""
    assert p_of(small, draft, "chain:2", None, 400, batch=1) > 1e-3


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("draft", ["head", "recurrent"])
@pytest.mark.parametrize("verifier", ["traversal", "mss"])
@pytest.mark.parametrize("tree", ["chain:3", "adaptive:4"])
def test_passes_in_one_call_by_many_samples(
    tree: str, verifier: str, draft: str, small: dict[str | None, Path]
) -> None:
    assert p_of(small, draft, tree, verifier, ALONE, batch=1) > 1e-3


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("verifier", ["traversal", "mss", "ranked", "naive"])
@pytest.mark.parametrize(("draft", "tree"), CASES)
def test_every_drafter_under_every_verifier(
    draft: str | None, tree: str, verifier: str, small: dict[str | None, Path]
) -> None:
    deterministic = tree.startswith(("dynamic", "ngram:3", "suffix"))
    try:
        found = p_of(small, draft, tree, verifier, SAMPLES)
    except LosslessError:
        assert deterministic
        assert verifier != "naive"
        return
    assert verifier == "naive" or not deterministic
    assert found > 1e-3
