"""A draft head over the target's features: output stays the target's, and the head reads what is true."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from drafts_cases import save_head
from safetensors.torch import load_file, save_file
from tiny_models import VOCABULARY, Pair, clear_prompts, drain, tokens_of
from torch import Tensor

from specops.engine import Sampling, load_engine
from specops.engine.attention import Layout, Span, causal
from specops.engine.draft import WEIGHTS
from specops.engine.heads import open_draft
from specops.engine.heads.eagle import EagleHead
from specops.errors import ModelError

LENGTHS = [1, 2, 9, 23, 40]
ENDS = [12, 3, 11, 12, 7]


Expected = list[tuple[list[int], list[int]]]  # prompts and what follows them


@pytest.fixture(scope="module")
def expected_of(pair_of: Callable[[str], Pair]) -> Callable[[str], Expected]:
    return cache(lambda family: clear_prompts(pair_of(family).reference, LENGTHS, max(ENDS)))


@pytest.mark.quick(12)
@pytest.mark.parametrize("tree", ["chain:3", "expand:3,2,1", "dynamic:8:3"])
@pytest.mark.parametrize(("chunk", "batch"), [(256, 1), (256, 5), (7, 3), (1, 5)])
@pytest.mark.parametrize("family", ["llama", "opt", "gpt2"])
def test_token_identical(
    family: str,
    chunk: int,
    batch: int,
    tree: str,
    pair_of: Callable[[str], Pair],
    expected_of: Callable[[str], Expected],
    tmp_path: Path,
) -> None:
    pair = pair_of(family)
    head = save_head(tmp_path / "head", pair.target_model.width)
    engine = pair.engine(tree, head=head, prefill_chunk=chunk, max_batch=batch)
    expected = expected_of(family)
    requests = [(prompt, Sampling(max_tokens=end)) for (prompt, _), end in zip(expected, ENDS, strict=True)]
    found = drain(engine, requests)
    for emissions, (_, tokens), end in zip(found, expected, ENDS, strict=True):
        assert tokens_of(emissions) == tokens[:end]
    assert engine.counters.draft_tokens > 0


@pytest.mark.parametrize("batch", [1, 3])
def test_the_first_draft_is_of_true_features(batch: int, llama: Pair, tmp_path: Path) -> None:
    """At every step the root's child is what one pass of the head over the target's own features predicts."""
    target = llama.target_model
    folder = save_head(tmp_path / "head", target.width)
    head = EagleHead(folder, target)
    engine = llama.engine("chain:1", head=folder, max_batch=batch, prefill_chunk=5)
    for seed in range(batch):
        prompt = torch.randint(VOCABULARY, (11 + seed,), generator=torch.Generator().manual_seed(seed))
        engine.submit(prompt.tolist(), Sampling(max_tokens=10 + seed))
    compared = 0
    draft = engine._drafter.draft

    def checked(sequences):  # type: ignore[no-untyped-def]
        nonlocal compared
        trees = draft(sequences)
        for sequence, tree in zip(sequences, trees, strict=True):
            if len(tree) > 1:
                logits = predicted(head, target, sequence.tokens)
                # A head's matrices are rounded for a few tokens, and not for this many.
                assert logits.max() - logits[tree.tokens[1]] < 0.1 * logits.std()
                compared += 1
        return trees

    engine._drafter.draft = checked  # type: ignore[method-assign]
    while not engine.idle:
        engine.step()
    assert compared > 5 * batch


def predicted(head: EagleHead, target, tokens: list[int]) -> Tensor:  # type: ignore[no-untyped-def]
    def layout(model, n: int) -> Layout:  # type: ignore[no-untyped-def]
        span = Span(0, 0, n, torch.arange(n), causal(n))
        return Layout([span], model.shape.cache(1, n), model.shape.tile)

    n = len(tokens) - 1
    _, features = target.with_features(torch.tensor(tokens[:-1]), layout(target, n))
    guessed = head.forward(torch.tensor(tokens[1:]), features, layout(head, n))
    return head.logits(guessed[-1:])[0]


def test_a_bias_behind_the_fusion(llama: Pair, tmp_path: Path) -> None:
    """It is as if every token's embedding were another one."""
    target = llama.target_model
    width = target.width
    plain, biased = save_head(tmp_path / "plain", width), save_head(tmp_path / "biased", width)
    bias = torch.randn(width, generator=torch.Generator().manual_seed(1))
    weights = load_file(plain / WEIGHTS)
    save_file(weights | {"fc.bias": bias}, str(biased / WEIGHTS))
    moved = torch.linalg.solve(weights["fc.weight"][:, :width].double(), bias.double()).float()
    weights["embed_tokens.weight"] += moved
    save_file(weights, str(plain / WEIGHTS))
    one, other = (predicted(EagleHead(folder, target), target, [5, 6, 7, 8]) for folder in (plain, biased))
    assert (one - other).abs().max() < 1e-3 * one.std()


def test_a_head_of_another_target_is_refused(llama: Pair, tmp_path: Path) -> None:
    wide = save_head(tmp_path / "wide", 2 * llama.target_model.width)
    with pytest.raises(ModelError, match="could not pair"):
        open_draft(wide, llama.target, llama.target_model)
    many = save_head(tmp_path / "many", llama.target_model.width, vocabulary=VOCABULARY + 1)
    with pytest.raises(ModelError, match="could not pair"):
        load_engine(llama.target, many)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"hidden_act": "gelu"}, "its activation is gelu"),
        ({"num_attention_heads": 5}, "not a multiple of the number of attention heads"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3 key-value heads"),
        ({"hidden_size": 64}, "its config makes it \\(64, 64\\)"),
    ],
    ids=["activation", "heads", "shared", "width"],
)
def test_a_head_whose_config_is_not_its_own_is_refused(
    changed: dict[str, object], words: str, llama: Pair, tmp_path: Path
) -> None:
    path = save_head(tmp_path / "head", llama.target_model.width) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(ModelError, match=f"could not load a draft head.*({words})"):
        load_engine(llama.target, path.parent)


@pytest.mark.parametrize("columns", [16, 96])
def test_a_head_that_reads_something_else_is_refused(columns: int, llama: Pair, tmp_path: Path) -> None:
    """Such as several layers' features: EAGLE-3's has three times the width."""
    folder = save_head(tmp_path / "head", llama.target_model.width)
    weights = load_file(folder / WEIGHTS)
    weights["fc.weight"] = torch.zeros(llama.target_model.width, columns)
    save_file(weights, str(folder / WEIGHTS))
    with pytest.raises(ModelError, match=rf"fc.weight .* \(32, {columns}\)"):
        load_engine(llama.target, folder)


@pytest.mark.parametrize("lost", ["layers.0.mlp.up_proj.weight", "embed_tokens.weight"])
def test_a_head_that_lacks_weights_is_refused(lost: str, llama: Pair, tmp_path: Path) -> None:
    folder = save_head(tmp_path / "head", llama.target_model.width)
    weights = load_file(folder / WEIGHTS)
    del weights[lost]
    save_file(weights, str(folder / WEIGHTS))
    with pytest.raises(ModelError, match=lost.removeprefix("layers.0.")):
        load_engine(llama.target, folder)
