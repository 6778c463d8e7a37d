"""Sequences that are held: no turns, a row to lend, and afterwards as if nothing had been."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import Pair, clear_prompts, tokens_of
from torch import Tensor

from specops.engine.attention import Layout, Span, causal
from specops.engine.models.model import Model
from specops.engine.request import Sampling
from specops.engine.step import Engine

COUNT = 16
CHAOS = 40  # steps in which sequences are held and let go
LENGTHS = [1, 5, 12, 30, 3]
TREES = ["none", "chain:3", "adaptive:4", "dynamic:6:3", "ngram:4", "suffix:4", "ngram:4/chain:2"]
Expected = list[tuple[list[int], list[int]]]


@pytest.fixture(scope="module")
def expected(llama: Pair) -> Expected:
    return clear_prompts(llama.reference, LENGTHS, COUNT)


def prefill(model: Model, tokens: list[int]) -> Tensor:
    """[layers, n, 2 * kv_heads, head_dim] after one plain causal pass."""
    n = len(tokens)
    cache = model.shape.cache(rows=1, capacity=n)
    layout = Layout([Span(0, 0, n, torch.arange(n), causal(n))], cache, model.shape.tile)
    model.forward(torch.tensor(tokens), layout)
    return cache.data[:, 0]


def spoil(engine: Engine) -> None:
    """Whatever a row holds beyond what is committed to it must not matter, whoever had it before."""
    used = {sequence.row: sequence.cached for sequence in engine._running}
    for row in range(engine.max_batch):
        engine._cache.data[:, row, used.get(row, 0) :] = 1e4


@given(seed=st.integers(0, 2**32), tree=st.sampled_from(TREES), chunk=st.sampled_from([1, 7, 256]))
@settings(max_examples=20)
def test_held_at_any_time_in_any_order(
    seed: int, tree: str, chunk: int, llama: Pair, expected: Expected
) -> None:
    """Fewer rows than sequences. After every step each row holds what a fresh prefill gives, and nobody who
    is held has had a turn."""
    random = Random(seed)
    engine = llama.engine(tree, max_batch=random.randint(1, 4), prefill_chunk=chunk)
    numbers = [engine.submit(prompt, Sampling(max_tokens=COUNT)) for prompt, _ in expected]
    found: dict[int, list[int]] = {number: [] for number in numbers}
    held: set[int] = set()
    for step in count():
        for number in numbers:
            if step < CHAOS and random.random() < 0.1:
                engine.hold(number)
                held.add(number)
            elif step >= CHAOS or random.random() < 0.3:
                engine.resume(number)
                held.discard(number)
        running = {number for number in numbers if len(found[number]) < COUNT}
        assert engine.idle == (running <= held)
        if not running:
            break
        for emission in engine.step():
            assert emission.sequence_id not in held
            found[emission.sequence_id] += emission.tokens
        spoil(engine)
        for sequence in engine._running:
            if sequence.cached:
                kept = engine._cache.data[:, sequence.row, : sequence.cached]
                fresh = prefill(llama.target_model, sequence.tokens[: sequence.cached])
                torch.testing.assert_close(kept, fresh, atol=1e-5, rtol=1e-4)
    assert [found[number] for number in numbers] == [tokens for _, tokens in expected]
    assert engine.counters.prompt_tokens == sum(LENGTHS)
    assert engine.idle


def test_the_row_that_was_last_held_longest_ago_is_lent_first(llama: Pair, expected: Expected) -> None:
    engine = llama.engine("none", max_batch=2)
    first, second = (engine.submit(prompt, Sampling(max_tokens=COUNT)) for prompt, _ in expected[:2])
    engine.step()
    engine.hold(first)
    engine.hold(second)
    engine.hold(first)  # anew, so that it is the later one
    third = engine.submit(expected[2][0], Sampling(max_tokens=COUNT))
    assert not engine.idle
    engine.step()
    assert engine.counters.evictions == 1
    assert engine.unread(first) == 0
    assert engine.unread(second) == len(expected[1][0])  # the prompt, but for the token that came after it
    assert {sequence.id for sequence in engine._running} == {first, third}


def test_no_row_is_taken_from_who_is_not_held(llama: Pair, expected: Expected) -> None:
    engine = llama.engine("none", max_batch=1)
    first, second = (engine.submit(prompt, Sampling(max_tokens=COUNT)) for prompt, _ in expected[:2])
    for _ in range(COUNT):
        assert [emission.sequence_id for emission in engine.step()] == [first]
    assert [emission.sequence_id for emission in engine.step()] == [second]
    assert engine.counters.evictions == 0


def test_a_held_sequence_is_cancelled_wherever_it_is(llama: Pair, expected: Expected) -> None:
    """In a row, evicted, or before it ever had one; then nothing is left of it."""
    engine = llama.engine("chain:2", max_batch=1)
    sampling = Sampling(max_tokens=COUNT)
    one, two, three, four = (engine.submit(prompt, sampling) for prompt, _ in expected[:4])
    engine.hold(four)
    engine.step()
    engine.hold(one)
    engine.step()  # two has its row
    engine.hold(two)
    assert engine.running == 1
    for number in (one, four, two):
        engine.cancel(number)
        engine.resume(number)
        engine.hold(number)
    assert engine.running == 0
    left = [emission for _ in range(COUNT) for emission in engine.step()]
    assert {emission.sequence_id for emission in left} == {three}
    assert tokens_of(left) == expected[2][1]
    assert engine.idle
    assert engine.waiting == 0
    assert not engine._by_id
