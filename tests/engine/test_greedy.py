"""Greedy output is token-identical to transformers' `generate`: every tree, chunking, batch and family."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tiny_models import LLAMA, SIZES, Pair, clear_prompts, drain, tokens_of
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from specops.engine import Sampling, load_engine
from specops.engine.models import load_model

TREES = ["none", "chain:3", "adaptive:6", "expand:3,2,1", "dynamic:8:3", "ngram:4", "chain:3+ngram:4"]
COUNT = 20
LENGTHS = [1, 2, 5, 9, 17, 23, 40, 64]
# Sequences that end at different times leave their rows to others in mid-flight.
ENDS = [COUNT, 3, 11, COUNT, 1, 7, COUNT, 2]
Expected = list[tuple[list[int], list[int]]]  # prompts and what follows them


@pytest.fixture(scope="module")
def expected_of(pair_of: Callable[[str], Pair]) -> Callable[[str], Expected]:
    return cache(lambda family: clear_prompts(pair_of(family).reference, LENGTHS, COUNT))


@pytest.mark.quick(15)
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize(
    ("family", "chunk", "batch"),
    [
        *product(("llama", "gpt2", "qwen2", "opt"), (7,), (3,)),
        *product(("llama", "gpt2", "qwen2", "opt"), (256,), (1,)),
        *product(("llama", "gpt2", "qwen2", "opt"), (1,), (8,)),
        *product(("llama", "gpt2"), (256,), (8,)),  # the other two are of the same code, one by one
        ("llama", 1, 1),
    ],
)
def test_token_identical(
    family: str,
    chunk: int,
    batch: int,
    tree: str,
    pair_of: Callable[[str], Pair],
    expected_of: Callable[[str], Expected],
) -> None:
    engine = pair_of(family).engine(tree, prefill_chunk=chunk, max_batch=batch)
    expected = expected_of(family)
    requests = [(prompt, Sampling(max_tokens=end)) for (prompt, _), end in zip(expected, ENDS, strict=True)]
    found = drain(engine, requests)
    for emissions, (_, tokens), end in zip(found, expected, ENDS, strict=True):
        assert tokens_of(emissions) == tokens[:end]
        assert emissions[-1].finish_reason == "length"
    assert engine.counters.generated_tokens == sum(ENDS)
    if tree.startswith(("chain", "expand", "dynamic")):
        assert 0 < engine.counters.accepted_tokens < engine.counters.draft_tokens


@pytest.mark.parametrize("tree", TREES)
def test_joining_in_mid_flight(tree: str, llama: Pair, expected_of: Callable[[str], Expected]) -> None:
    """A new request every second step, whatever else is running."""
    engine = llama.engine(tree, max_batch=3, prefill_chunk=16)
    waiting = list(enumerate(expected_of("llama")))
    found: dict[int, list[int]] = {}
    number_of: dict[int, int] = {}
    steps = 0
    while waiting or not engine.idle:
        if waiting and steps % 2 == 0:
            number, (prompt, _) = waiting.pop(0)
            number_of[engine.submit(prompt, Sampling(max_tokens=ENDS[number]))] = number
        for emission in engine.step():
            found.setdefault(number_of[emission.sequence_id], []).extend(emission.tokens)
        steps += 1
    for number, (_, tokens) in enumerate(expected_of("llama")):
        assert found[number] == tokens[: ENDS[number]]


@pytest.mark.parametrize("family", ["llama", "qwen2", "opt", "gpt2"])
def test_loaded_from_disk(
    family: str, pair_of: Callable[[str], Pair], expected_of: Callable[[str], Expected]
) -> None:
    """The whole way, through `load_engine` and `generate`, for the target without and with its draft."""
    pair = pair_of(family)
    prompt, tokens = expected_of(family)[4]
    for engine in (
        load_engine(pair.target, speculate=False),
        load_engine(pair.target, pair.draft, tree="expand:2,2"),
    ):
        completion = engine.generate(prompt, Sampling(max_tokens=COUNT, ignore_eos=True))
        assert completion.tokens == tokens
        assert completion.text == engine.tokenizer.decode(tokens, skip_special_tokens=True)


@pytest.mark.parametrize("tree", ["chain:3", "expand:3,2,1", "dynamic:8:3"])
def test_a_draft_of_another_family(
    tree: str, pair_of: Callable[[str], Pair], expected_of: Callable[[str], Expected]
) -> None:
    """Nothing of the draft but its vocabulary needs to match; one that is always wrong costs only time."""
    engine = pair_of("llama").engine(tree, draft=pair_of("gpt2").target_model, max_batch=3)
    expected = expected_of("llama")
    found = drain(engine, [(prompt, Sampling(max_tokens=COUNT)) for prompt, _ in expected])
    assert [tokens_of(emissions) for emissions in found] == [tokens for _, tokens in expected]


@pytest.mark.parametrize(
    "make",
    [
        lambda: LlamaForCausalLM(LlamaConfig(**{**LLAMA, "max_position_embeddings": 30})),
        lambda: GPT2LMHeadModel(GPT2Config(**{**SIZES, "max_position_embeddings": 30})),
    ],
    ids=["llama", "gpt2"],
)
def test_a_draft_with_fewer_positions_than_the_target(
    make: Callable[[], Any], llama: Pair, expected_of: Callable[[str], Expected], tmp_path: Path
) -> None:
    """Beyond its last position it drafts badly, and the output is the target's all the same."""
    make().save_pretrained(tmp_path)
    engine = llama.engine("expand:2,1", draft=load_model(tmp_path), max_batch=3)
    expected = expected_of("llama")
    found = drain(engine, [(prompt, Sampling(max_tokens=COUNT)) for prompt, _ in expected])
    assert [tokens_of(emissions) for emissions in found] == [tokens for _, tokens in expected]


@pytest.mark.parametrize("chunk", [1, 7, 256])
def test_a_draft_equal_to_the_target_is_always_right(
    chunk: int, llama: Pair, expected_of: Callable[[str], Expected]
) -> None:
    """Were the draft's cache or positions ever off, a token would be rejected."""
    engine = llama.engine("chain:4", draft=llama.target_model, prefill_chunk=chunk, max_batch=3)
    drain(engine, [(prompt, Sampling(max_tokens=COUNT)) for prompt, _ in expected_of("llama")])
    counters = engine.counters
    assert counters.accepted_tokens == counters.draft_tokens > 0
    assert counters.drafts == len(LENGTHS) * 4  # 20 tokens, five a step
