"""Sampled output: the target's distribution by a seeded chi-square test, and independent of the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from chi_square import p_value
from tiny_models import VOCABULARY, Pair, drain, reference_logits, tokens_of

from specops.engine.request import LEAST_TEMPERATURE, Sampling
from specops.engine.rng import distribution

TREES = ["none", "ngram:4", "chain:3", "expand:3,2,1", "dynamic:8:3", "chain:3+ngram:4"]
PROMPT = [17, 4, 250, 17, 4]


def target_distribution(pair: Pair, prompt: list[int], sampling: Sampling) -> dict[tuple[int, ...], float]:
    """The joint distribution of max_tokens tokens, by transformers' forward pass on every prefix."""
    joint = {(): 1.0}
    for _ in range(sampling.max_tokens):
        further = {}
        for tokens, weight in joint.items():
            logits = reference_logits(pair.reference, [*prompt, *tokens])[-1:].double()
            for token, probability in enumerate(distribution(logits, sampling)[0].tolist()):
                if probability > 0:
                    further[*tokens, token] = weight * probability
        joint = further
    return joint


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("tree", "verifier"),
    [
        ("none", None),
        ("ngram:2", None),
        ("chain:2", "mss"),
        ("expand:3,2", "mss"),
        ("expand:3,2", "naive"),
        ("dynamic:6:2", "naive"),
    ],
)
def test_the_whole_sampler(tree: str, verifier: str | None, llama: Pair) -> None:
    sampling = Sampling(temperature=0.8, top_k=4, top_p=0.95, max_tokens=3)
    engine = llama.engine(tree, verifier=verifier, max_batch=64)
    requests = [(PROMPT, Sampling(**{**vars(sampling), "seed": seed})) for seed in range(1500)]
    counts = Counter(tuple(tokens_of(emissions)) for emissions in drain(engine, requests))
    assert p_value(counts, target_distribution(llama, PROMPT, sampling)) > 1e-3
    warmer = Sampling(temperature=1.2, top_k=4, top_p=0.95, max_tokens=3)
    assert p_value(counts, target_distribution(llama, PROMPT, warmer)) < 1e-6


@pytest.mark.quick(3)
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_seeded_output_does_not_depend_on_the_batch(
    family: str, tree: str, pair_of: Callable[[str], Pair]
) -> None:
    pair = pair_of(family)
    generator = torch.Generator().manual_seed(2)
    requests = []
    for number, length in enumerate([1, 31, 6, 12, 3, 18, 9]):
        prompt = torch.randint(VOCABULARY, (length,), generator=generator).tolist()
        temperature, top_k, top_p = [(1.0, 0, 1.0), (0.7, 20, 1.0), (1.0, 0, 0.8), (0.0, 0, 1.0)][number % 4]
        requests.append(
            (prompt, Sampling(temperature, top_k, top_p, seed=number, max_tokens=6 + 5 * (number % 3)))
        )
    alone = [drain(pair.engine(tree, max_batch=1), [request])[0] for request in requests]
    for batch, chunk in ((3, 256), (8, 256), (8, 5)):
        together = drain(pair.engine(tree, max_batch=batch, prefill_chunk=chunk), requests)
        assert [tokens_of(e) for e in together] == [tokens_of(e) for e in alone]


@pytest.mark.parametrize("tree", ["none", "expand:3,2,1"])
def test_seeds(tree: str, llama: Pair) -> None:
    engine = llama.engine(tree)

    def sample(seed: int | None) -> list[int]:
        return engine.generate(PROMPT, Sampling(temperature=1.0, seed=seed, max_tokens=16)).tokens

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)
    assert sample(None) != sample(None)


@pytest.mark.parametrize("tree", TREES)
def test_top_1_at_any_temperature_and_the_lowest_one_are_greedy(tree: str, llama: Pair) -> None:
    engine = llama.engine(tree)
    greedy = engine.generate(PROMPT, Sampling(max_tokens=16)).tokens
    assert engine.generate(PROMPT, Sampling(temperature=1.5, top_k=1, max_tokens=16)).tokens == greedy
    assert engine.generate(PROMPT, Sampling(temperature=1.5, top_p=1e-6, max_tokens=16)).tokens == greedy
    assert engine.generate(PROMPT, Sampling(temperature=LEAST_TEMPERATURE, max_tokens=16)).tokens == greedy


def test_a_better_draft_is_accepted_more(llama: Pair) -> None:
    """At temperature 1: the target as its own draft is always accepted, the noisy one less."""
    rates = []
    for draft in (llama.target_model, llama.draft_model):
        engine = llama.engine("chain:3", draft=draft, verifier="mss")
        drain(engine, [(PROMPT, Sampling(temperature=1.0, seed=s, max_tokens=24)) for s in range(8)])
        rates.append(engine.counters.accepted_tokens / engine.counters.draft_tokens)
    assert rates[0] > 0.999
    assert 0.1 < rates[1] < 0.95
