"""Drafting ahead: after a hit, all is as if what was drafted ahead had been dropped and drafted again."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import POSITIONS, VOCABULARY, Pair
from torch import Tensor

from specops.edge.client_metrics import EdgeCounters
from specops.edge.drafting import CHILDREN, ModelDrafts
from specops.edge.growth import Growth
from specops.edge.settings import Drafting
from specops.engine.attention import Layout, Span, causal
from specops.engine.models.model import Model
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence


def grown(pair: Pair, drafting: Drafting) -> ModelDrafts:
    return ModelDrafts(pair.draft_model, drafting, POSITIONS, nodes=64, support=32, counters=EdgeCounters())


def sequence_of(pair: Pair, prompt: list[int], number: int = 0, temperature: float = 0.0) -> Sequence:
    return Sequence(
        number,
        prompt,
        Sampling(max_tokens=60, temperature=temperature, seed=3),
        room=POSITIONS,
        chunk=256,
        eos=frozenset(),
        tokenizer=pair.tokenizer.backend_tokenizer,
    )


def tree_of(drafts: ModelDrafts, sequence: Sequence) -> Growth:
    growth = drafts._places[sequence.id].growth
    assert growth is not None
    return growth


def path_to(growth: Growth, node: int) -> list[int]:
    path = []
    while node > 0:
        path.append(node)
        node = growth.parents[node]
    return path[::-1]


def from_scratch(model: Model, tokens: list[int]) -> tuple[Tensor, Tensor]:
    """One pass over all of it -> [layers, n, 2 * kv_heads, dim] of the cache, [V] logits of the last one."""
    n = len(tokens)
    cache = model.shape.cache(1, n)
    span = Span(0, 0, n, torch.arange(n), causal(n))
    logits = model.forward(torch.tensor(tokens), Layout([span], cache, model.shape.tile))
    return cache.data[:, 0], logits[-1]


def hit_at_random(drafts: ModelDrafts, sequence: Sequence, rng: random.Random) -> bool:
    """Go to one of the guesses that were run. Whether there was any."""
    growth = tree_of(drafts, sequence)
    assert growth.sent is not None
    guesses = [
        node
        for node in growth.run
        if node not in growth.sent and growth.parents[node] in growth.sent and growth.parents[node] >= 0
    ]
    if not guesses:
        return False
    way = path_to(growth, rng.choice(guesses))
    numbers = [growth.sent[node] for node in way[:-1]]
    tokens = [growth.tokens[node] for node in way]
    assert drafts.follow(sequence, numbers, tokens)
    sequence.extend(tokens, [])
    return True


def exhausted(drafts: ModelDrafts, sequence: Sequence) -> list[float]:
    """The best nodes that there are, however they were found: their scores."""
    while drafts.promise(sequence) != 0:
        assert drafts.work([sequence], [])
    drafts.propose(sequence)
    growth = tree_of(drafts, sequence)
    return sorted(growth.scores[node] for node in growth.order)


def check_state(pair: Pair, drafts: ModelDrafts, sequence: Sequence) -> None:
    """KV, positions and masks of what is kept, and what the draft says after each node."""
    growth = tree_of(drafts, sequence)
    cache = drafts._draft._cache.data[:, sequence.row]
    assert sequence.cached == len(sequence.tokens)
    assert drafts._draft._read[sequence.row] == len(sequence.tokens)
    committed, _ = from_scratch(pair.draft_model, sequence.tokens)
    assert torch.allclose(cache[:, : len(sequence.tokens)], committed, atol=1e-4)
    for place, node in enumerate(growth.run):
        assert growth.places[node] == place
        way = [growth.tokens[step] for step in path_to(growth, node)]
        kv, logits = from_scratch(pair.draft_model, sequence.tokens + way)
        assert torch.allclose(cache[:, len(sequence.tokens) - 1 + place], kv[:, -1], atol=1e-4)
        if sequence.greedy:
            # Not which tokens: two that are nearly as likely may change places.
            logs, below = logits.log_softmax(-1), growth.children(node)
            scores = [growth.scores[child] - growth.scores[node] for child in below]
            assert scores == pytest.approx([float(logs[growth.tokens[child]]) for child in below], abs=1e-4)
            assert scores == pytest.approx(logs.topk(CHILDREN).values.tolist(), abs=1e-4)


@torch.inference_mode()
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    heads=st.integers(1, 6),
    temperature=st.sampled_from([0.0, 0.0, 0.8]),
    nodes=st.integers(1, 10),
)
def test_a_hit_leaves_what_dropping_and_drafting_again_would(
    seed: int, heads: int, temperature: float, nodes: int, llama: Pair
) -> None:
    rng = random.Random(seed)
    drafting = Drafting(nodes=nodes, beams=3, heads=heads, width=1, streams=2)
    prompts = [[rng.randrange(VOCABULARY) for _ in range(rng.randint(2, 12))] for _ in range(2)]
    drafts, again = grown(llama, drafting), grown(llama, drafting)
    sequences = [sequence_of(llama, prompt, i, temperature) for i, prompt in enumerate(prompts)]
    for sequence in sequences:
        drafts.begin(sequence)
    for _ in range(3):
        for _ in range(rng.randint(2, 5)):
            drafts.work([], sequences)
        hit = [sequence for sequence in sequences if hit_at_random(drafts, sequence, rng)]
        for sequence in sequences:
            if sequence not in hit:
                drafts.follow(sequence, [], [1])
                sequence.extend([1], [])
                drafts.work([sequence], [])
            check_state(llama, drafts, sequence)
        for index, sequence in enumerate(sequences):
            if sequence.greedy:
                other = sequence_of(llama, list(sequence.tokens), index)
                other._end = sequence._end
                again.begin(other)
                again.follow(other, [], [0])  # it is its turn
                assert exhausted(drafts, sequence) == pytest.approx(exhausted(again, other), abs=1e-4)
                again.end(other)
            else:
                drafts.propose(sequence)
            check_state(llama, drafts, sequence)


@torch.inference_mode()
def test_the_one_head_of_the_paper_is_below_a_leaf(llama: Pair) -> None:
    drafts = grown(llama, Drafting(nodes=6, beams=8, heads=1, streams=1))
    sequence = sequence_of(llama, [5, 6, 7, 8])
    drafts.begin(sequence)
    drafts.work([], [sequence])
    drafts.follow(sequence, [], [9])
    sequence.extend([9], [])
    while drafts.promise(sequence) != 0:
        drafts.work([sequence], [])
    drafts.propose(sequence)
    growth = tree_of(drafts, sequence)
    assert growth.sent is not None
    for _ in range(6):
        drafts.work([], [sequence])
    leaves = [
        node for node in growth.sent if not any(child in growth.sent for child in growth.children(node))
    ]
    guesses = [child for leaf in leaves for child in growth.children(leaf)]
    best = max(guesses, key=growth.scores.__getitem__)
    tops = {path_to(growth, n)[growth.depths[best] - 1] for n in growth.run if n not in growth.sent}
    assert tops == {best}  # one, and all that was run ahead is below it
    assert growth.places[best] > 0
    assert len([node for node in growth.run if node not in growth.sent]) > 1


@torch.inference_mode()
def test_an_outcome_cache_takes_the_likeliest_guesses(llama: Pair) -> None:
    heads = 3
    drafts = grown(llama, Drafting(nodes=4, beams=64, heads=heads, streams=1))
    sequence = sequence_of(llama, [5, 6, 7, 8])
    drafts.begin(sequence)
    drafts.work([], [sequence])
    growth = tree_of(drafts, sequence)
    assert growth.sent == {0: 0}
    likeliest = growth.children(0)[:heads]
    assert growth.scores[likeliest[0]] >= growth.scores[likeliest[-1]]
    drafts.work([], [sequence])
    assert sorted(growth.run[1:]) == likeliest  # each of them, and nothing else


def test_without_heads_nothing_is_drafted_ahead(llama: Pair) -> None:
    drafts = grown(llama, Drafting(nodes=4, heads=0, streams=1))
    sequence = sequence_of(llama, [5, 6, 7, 8])
    drafts.begin(sequence)
    with torch.inference_mode():
        assert drafts.work([], [sequence]) == [sequence]  # its prompt is read all the same
        assert drafts.work([], [sequence]) == []


def test_what_is_drafted_ahead_is_bounded(llama: Pair) -> None:
    drafting = Drafting(nodes=2, beams=4, heads=8, streams=1)
    drafts = grown(llama, drafting)
    sequence = sequence_of(llama, [5, 6, 7, 8])
    drafts.begin(sequence)
    with torch.inference_mode():
        for _ in range(100):
            if not drafts.work([], [sequence]):
                break
        else:
            pytest.fail("it never ends")
    assert len(tree_of(drafts, sequence).run) <= drafting.room + 1


@torch.inference_mode()
def test_what_is_drafted_ahead_is_kept_or_wasted(llama: Pair) -> None:
    rng = random.Random(5)
    drafts = grown(llama, Drafting(nodes=4, beams=3, heads=4, streams=1))
    sequence = sequence_of(llama, [5, 6, 7, 8])
    drafts.begin(sequence)
    counters = drafts._counters
    for hit in (True, False, True, False):
        for _ in range(4):
            drafts.work([], [sequence])
        if hit:
            assert hit_at_random(drafts, sequence, rng)
        else:
            assert not drafts.follow(sequence, [], [299])
            sequence.extend([299], [])
        assert counters.ahead == counters.spliced + counters.wasted
        drafts.work([sequence], [])
        drafts.propose(sequence)
    assert min(counters.spliced, counters.wasted) > 0
    assert counters.run >= counters.ahead
