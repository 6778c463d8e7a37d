"""Where a sequence ends: EOS, stop tokens and stop strings in mid-path, max_tokens, max_length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tiny_models import Pair, drain, tokens_of

from specops.engine.request import Emission, Sampling
from specops.engine.step import Engine
from specops.engine.tree import TokenTree

COUNT = 15
PROMPT = [11, 90, 3, 207]
TREES = ["none", "chain:4", "expand:3,2,1", "dynamic:8:3", "ngram:4"]


@pytest.fixture(scope="module")
def greedy(llama: Pair) -> list[int]:
    return llama.engine("none").generate(PROMPT, Sampling(max_tokens=COUNT)).tokens


def perfect(llama: Pair, **settings: Any) -> Engine:
    """The target drafts for itself, so that every step brings five tokens and an end lies in mid-path."""
    return llama.engine("chain:4", draft=llama.target_model, **settings)


def firsts(tokens: list[int]) -> Iterator[tuple[int, int]]:
    """(place, token) where a token comes for the first time."""
    return ((place, token) for place, token in enumerate(tokens) if token not in tokens[:place])


def test_eos_at_every_place_of_a_path(llama: Pair, greedy: list[int]) -> None:
    for place, token in firsts(greedy):
        (emissions,) = drain(perfect(llama, eos=[token]), [(PROMPT, Sampling(max_tokens=COUNT))])
        assert tokens_of(emissions) == greedy[: place + 1]
        assert [e.finish_reason for e in emissions] == [None] * (place // 5) + ["stop"]
        assert emissions[-1].stop_reason is None
        # The end is no text.
        text = llama.tokenizer.decode(greedy[:place], skip_special_tokens=True)
        assert "".join(e.text for e in emissions) == text


def test_ignore_eos(llama: Pair, greedy: list[int]) -> None:
    engine = perfect(llama, eos=greedy)
    assert engine.generate(PROMPT, Sampling(max_tokens=COUNT, ignore_eos=True)).tokens == greedy
    assert engine.generate(PROMPT, Sampling(max_tokens=COUNT)).tokens == greedy[:1]


def test_a_stop_token_at_every_place_of_a_path(llama: Pair, greedy: list[int]) -> None:
    engine = perfect(llama)
    for place, token in firsts(greedy):
        sampling = Sampling(max_tokens=COUNT, stop_token_ids=(token, 299), ignore_eos=True)
        (emissions,) = drain(engine, [(PROMPT, sampling)])
        assert tokens_of(emissions) == greedy[: place + 1]
        assert (emissions[-1].finish_reason, emissions[-1].stop_reason) == ("stop", token)
        assert "".join(e.text for e in emissions) == llama.tokenizer.decode(greedy[:place])


def test_a_stop_string_in_mid_path(llama: Pair, greedy: list[int]) -> None:
    engine = perfect(llama)
    text = llama.tokenizer.decode(greedy)
    start = next(at for at in range(4, len(text) - 3) if "\ufffd" not in text[at : at + 3])
    stop = text[start : start + 3]
    (emissions,) = drain(engine, [(PROMPT, Sampling(max_tokens=COUNT, stop=("\u2603", stop)))])
    assert (emissions[-1].finish_reason, emissions[-1].stop_reason) == ("stop", stop)
    assert "".join(e.text for e in emissions) == text[: text.index(stop)]
    tokens = tokens_of(emissions)
    assert tokens == greedy[: len(tokens)]
    assert stop in llama.tokenizer.decode(tokens)
    assert stop not in llama.tokenizer.decode(tokens[:-1])


def test_a_stop_string_that_ends_at_the_limit(llama: Pair, greedy: list[int]) -> None:
    """Met in the very last token: it ended by the stop string, not by its length."""
    engine, tried = perfect(llama), 0
    for count in range(2, COUNT + 1):
        text = llama.tokenizer.decode(greedy[:count])
        if text[-1] != "\ufffd" and text.index(text[-1]) == len(text) - 1:
            completion = engine.generate(PROMPT, Sampling(max_tokens=count, stop=(text[-1],)))
            assert (completion.finish_reason, completion.text) == ("stop", text[:-1])
            tried += 1
    assert tried > 1


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("count", [1, 2, 3, 5, COUNT])
def test_max_tokens_exactly(tree: str, count: int, llama: Pair, greedy: list[int]) -> None:
    completion = llama.engine(tree).generate(PROMPT, Sampling(max_tokens=count))
    assert (completion.tokens, completion.finish_reason) == (greedy[:count], "length")


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("room", [1, 2, 9])
def test_max_length_exactly(tree: str, room: int, llama: Pair, greedy: list[int]) -> None:
    engine = llama.engine(tree, max_length=len(PROMPT) + room)
    completion = engine.generate(PROMPT, Sampling(max_tokens=100))
    assert (completion.tokens, completion.finish_reason) == (greedy[:room], "length")


@pytest.mark.parametrize("tree", TREES)
def test_the_models_last_position_is_used(tree: str, llama: Pair) -> None:
    """A tree near the end must not reach past the positions that the model has."""
    positions = llama.target_model.shape.max_positions
    prompt = [n % 300 for n in range(positions - 6)]
    expected = llama.engine("none").generate(prompt, Sampling(max_tokens=100)).tokens
    assert len(expected) == 6
    assert llama.engine(tree).generate(prompt, Sampling(max_tokens=100)).tokens == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("tree", TREES)
def test_nothing_is_drafted_beyond_the_end(
    tree: str, temperature: float, llama: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target adds a token of its own, so a draft may be one token shorter than what remains."""
    engine = llama.engine(tree, max_batch=2)
    draft: Callable[[Any], list[TokenTree]] = engine._drafter.draft
    seen: list[tuple[int, int, int]] = []

    def spy(sequences: Any) -> list[TokenTree]:
        trees = draft(sequences)
        seen.extend(
            (s.remaining, max(t.topology.depth), len(t)) for s, t in zip(sequences, trees, strict=True)
        )
        return trees

    monkeypatch.setattr(engine._drafter, "draft", spy)
    repeating = [1, 2, 3, 4] * 5  # something for n-grams to find
    drain(engine, [(repeating, Sampling(temperature, seed=7, max_tokens=n)) for n in (1, 2, 3, 9)])
    assert all(depth <= remaining - 1 for remaining, depth, _ in seen)
    assert all(nodes - 1 <= engine._drafter.nodes for _, _, nodes in seen)
    if tree != "none":
        assert any(depth == remaining - 1 > 0 for remaining, depth, _ in seen)


def test_an_end_in_mid_path_frees_the_row_for_the_next(llama: Pair, greedy: list[int]) -> None:
    engine = perfect(llama, eos=[greedy[6]], max_batch=1)
    expected = greedy[: greedy.index(greedy[6]) + 1]
    found = drain(engine, [(PROMPT, Sampling(max_tokens=COUNT))] * 3)
    assert [tokens_of(emissions) for emissions in found] == [expected] * 3


def test_every_sequence_ends_once(llama: Pair) -> None:
    engine = llama.engine("expand:3,2,1", max_batch=3)
    found = drain(engine, [(PROMPT, Sampling(max_tokens=n)) for n in range(1, 9)])
    for emissions in found:
        assert [e.finish_reason for e in emissions[:-1]] == [None] * (len(emissions) - 1)
        assert all(e.tokens for e in emissions)
        last = replace(emissions[-1], drafted=0, accepted=0)
        assert last == Emission(last.sequence_id, last.tokens, last.text, "length")
