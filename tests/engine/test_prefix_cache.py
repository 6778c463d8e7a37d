"""The prefix cache: answers with it are those without it, whatever is stored, dropped or decoded beside."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Batch
from functools import cache
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_batch_invariance import EMBEDDED, logprobs_of
from test_held import prefill, spoil
from tiny_models import VOCABULARY, Pair, drain, reference_greedy, tokens_of
from torch import Tensor

from specops.engine import Sampling, load_engine
from specops.engine.attention import BLOCK, causal, causal_then
from specops.engine.attention import Span as TokenSpan
from specops.engine.sequence import Sequence
from specops.engine.step import Engine
from specops.engine.tree import TokenTree

CHUNK = 128  # of the shipped pair's prompts, so that most of these have several
LENGTHS = (
    BLOCK + 2,  # all of its block is restored; and with a token less, nothing
    2 * CHUNK + 1,  # a chunk ends with the last token before the root
    CHUNK + 20,  # the last chunk is short enough for the compiled loops
    2 * CHUNK + 70,
)
TOKENS = 10
SAMPLINGS = (
    Sampling(temperature=1.0, seed=7, max_tokens=TOKENS, logprobs=1),
    Sampling(max_tokens=TOKENS, logprobs=1),
)


@cache
def text() -> list[int]:
    """Tokens of the shipped prompts."""
    code = (EMBEDDED / "prompts.json").read_text(encoding="utf-8")
    return list(load_engine(EMBEDDED / "target", speculate=False).tokenizer.encode(code[:6000]))


def shipped(draft: str, tree: str, prefix_cache_mb: int) -> Engine:
    return load_engine(
        EMBEDDED / "target",
        EMBEDDED / draft,
        tree=tree,
        threads=1,
        prefill_chunk=CHUNK,
        prefix_cache_mb=prefix_cache_mb,
    )


def record_drafts(engine: Engine) -> list[tuple[list[int], list[list[float]]]]:
    """The drafts that are verified: their tokens, and the distributions that these were drawn from."""
    recorded: list[tuple[list[int], list[list[float]]]] = []
    draft = engine.drafter.draft

    def recording(sequences: Batch[Sequence]) -> list[TokenTree]:
        trees = draft(sequences)
        for sequence, tree in zip(sequences, trees, strict=True):
            if not sequence.reading:
                drawn = [row.tolist() for node in range(len(tree)) if tree.q for row in tree.q[node]]
                recorded.append((list(tree.tokens), drawn))
        return trees

    engine.drafter.draft = recording  # type: ignore[method-assign]
    return recorded


def compare_shipped(draft: str, tree: str) -> None:
    """Log-probabilities and drafts are compared to the last bit, greedy and sampled. The cache restores all
    whole blocks of a prompt that comes a second time, and of a longer one that begins alike."""
    without, cached = shipped(draft, tree, 0), shipped(draft, tree, 64)
    tokens = text()
    for length in LENGTHS:
        drain(cached, [(tokens[length : 2 * length], Sampling(max_tokens=1))])
    drafts, drafts_cached = record_drafts(without), record_drafts(cached)
    for length in LENGTHS:
        prompt = tokens[length : 2 * length]
        follow_up = prompt + tokens[900 : 900 + 40]
        for request in [(asked, sampling) for asked in (prompt, follow_up) for sampling in SAMPLINGS]:
            (expected,), (answered,) = drain(without, [request]), drain(cached, [request])
            assert logprobs_of(answered) == logprobs_of(expected), (length, request[1])
            assert drafts_cached == drafts, (length, request[1])
            assert answered[0].restored is not None
            assert answered[0].restored >= (length - 2) // BLOCK * BLOCK > 0


@pytest.mark.parametrize(("draft", "tree"), [("draft", "expand:2,2"), ("head", "chain:3")])
def test_answers_are_the_same_to_the_last_bit(draft: str, tree: str) -> None:
    compare_shipped(draft, tree)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draft", "tree"),
    [
        ("draft", "chain:3"),
        ("draft", "dynamic:6:3"),
        ("draft", "chain:2+ngram:3"),
        ("head", "adaptive:4"),
        ("head", "ngram:4/expand:2,2"),
        ("recurrent", "chain:3"),
        ("medusa", "expand:2,2"),
        ("exit", "chain:3"),
    ],
)
def test_every_draft_answers_the_same(draft: str, tree: str) -> None:
    compare_shipped(draft, tree)


def test_a_span_is_divided_where_blocks_end() -> None:
    """At slots, wherever it begins; the nodes of a tree stay with its root."""
    tail = torch.tensor([[True, False, False], [True, True, False], [True, False, True]])
    first, count = BLOCK - 5, 2 * BLOCK
    span = TokenSpan(3, first, count, torch.arange(first, first + count), causal_then(count, tail))
    pieces = span.pieces()
    assert [(piece.start, piece.count) for piece in pieces] == [(first, 5), (BLOCK, BLOCK), (2 * BLOCK, 59)]
    assert torch.equal(torch.cat([piece.positions for piece in pieces]), span.positions)
    assert all(piece.mask is causal(piece.count) for piece in pieces[:-1])
    assert torch.equal(pieces[-1].mask.sees, span.mask.sees[-59:, -59:])
    rooted = TokenSpan(0, BLOCK - 1, 4, torch.arange(4), causal_then(4, torch.ones(3, 3, dtype=torch.bool)))
    assert [piece.count for piece in rooted.pieces()] == [1, 3]  # a block begins with the root
    assert TokenSpan(0, BLOCK, 3, torch.arange(3), causal_then(3, tail)).pieces()[0].count == 3


# --- tiny models ----------------------------------------------------------------------------------

FAMILY = Random(5)
BEGINNINGS = [[FAMILY.randrange(VOCABULARY) for _ in range(2 * BLOCK)] for _ in range(3)]
TREES = ["none", "chain:3", "expand:2,2", "dynamic:6:3", "ngram:4", "suffix:4", "ngram:4/chain:2"]
TREES += ["chain:2+ngram:3", "auto:4"]


@cache
def continuation(pair: Pair, prompt: tuple[int, ...]) -> list[int]:
    return reference_greedy(pair.reference, list(prompt), 8)


def prompt_of(random: Random) -> list[int]:
    """One of few, which share their first block or two; some are a beginning of others."""
    beginning = random.choice(BEGINNINGS)
    if random.random() < 0.3:
        beginning = beginning[:BLOCK] + BEGINNINGS[0][BLOCK:]
    length = random.choice([BLOCK - 1, BLOCK + 1, BLOCK + 2, 100, 2 * BLOCK])
    return [*beginning[:length], random.randrange(3)]


@given(
    seed=st.integers(0, 2**32),
    tree=st.sampled_from(TREES),
    chunk=st.sampled_from([7, BLOCK, 100, 256]),
    blocks=st.integers(1, 4),
)
@settings(max_examples=6)
def test_any_order_of_requests(seed: int, tree: str, chunk: int, blocks: int, llama: Pair) -> None:
    """Room for fewer blocks than there are, a few rows, and requests that are cancelled at any time. After
    each step a row holds what a fresh prefill gives."""
    random = Random(seed)
    engine = llama.engine(tree, max_batch=random.randint(1, 3), prefill_chunk=chunk, prefix_cache_mb=10)
    engine._prefixes.size = blocks
    prompts: dict[int, list[int]] = {}
    outputs: dict[int, list[int]] = {}
    restored: dict[int, int | None] = {}
    for step in range(400):
        if step < 20 and random.random() < 0.6:
            prompt = prompt_of(random)
            number = engine.submit(prompt, Sampling(max_tokens=8))
            prompts[number], outputs[number] = prompt, []
        if prompts and random.random() < 0.05:
            cancelled = random.choice(list(prompts))
            engine.cancel(cancelled)
            if len(outputs[cancelled]) < 8:
                del prompts[cancelled]
        if step > 20 and engine.idle:
            break
        for emission in engine.step():
            outputs[emission.sequence_id] += emission.tokens
            restored[emission.sequence_id] = emission.restored
        spoil(engine)
        assert len(engine._prefixes) <= blocks * BLOCK
        for sequence in engine._running:
            if sequence.cached:
                rows = engine._cache.data[:, sequence.row, : sequence.cached]
                fresh = prefill(llama.target_model, sequence.tokens[: sequence.cached])
                torch.testing.assert_close(rows, fresh, atol=1e-5, rtol=1e-4)
    for number, prompt in prompts.items():
        assert outputs[number] == continuation(llama, tuple(prompt))
    assert engine.counters.restored_tokens == sum(count or 0 for count in restored.values())
    assert engine.counters.queried_tokens == engine.counters.prompt_tokens


def restored_of(engine: Engine, prompt: list[int]) -> int | None:
    (emissions,) = drain(engine, [(prompt, Sampling(max_tokens=2))])
    return emissions[0].restored


def test_the_least_recently_used_block_goes_first(llama: Pair) -> None:
    engine = llama.engine("chain:2", prefix_cache_mb=10)
    engine._prefixes.size = 3
    first, second, third = ([*beginning, 1] for beginning in BEGINNINGS)
    assert restored_of(engine, first) == 0
    assert restored_of(engine, second) == 0  # takes the place of the second block of `first`
    assert len(engine._prefixes) == 3 * BLOCK
    assert restored_of(engine, first) == BLOCK  # is used again, and drops the second block of `second`
    assert restored_of(engine, third) == 0
    assert restored_of(engine, first) == BLOCK
    assert restored_of(engine, second) == 0


def test_a_block_is_that_of_its_tokens_and_of_all_before_them(llama: Pair) -> None:
    engine = llama.engine("none", prefix_cache_mb=10)
    first, second = BEGINNINGS[:2]
    assert restored_of(engine, [*first, 1, 2]) == 0
    assert restored_of(engine, [*second[:BLOCK], *second[BLOCK:], 1, 2]) == 0
    assert restored_of(engine, [*second[:BLOCK], *first[BLOCK:], 1, 2]) == BLOCK
    assert restored_of(engine, [*first[:BLOCK], *second[BLOCK:], 1, 2]) == BLOCK
    assert restored_of(engine, [*first, 3, 4]) == 2 * BLOCK
    assert restored_of(engine, first[: BLOCK + 1]) == 0  # two tokens are left to read
    assert restored_of(engine, [*first[: BLOCK - 1], first[BLOCK], 1, 2]) == 0


@pytest.mark.parametrize("tree", ["chain:2", "auto:2"])
def test_neither_model_reads_what_is_restored(
    tree: str, llama: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = llama.engine(tree, prefix_cache_mb=10)
    prompt = [*BEGINNINGS[0], 1, 2, 3]
    longest: dict[str, int] = {}

    def spied(name: str, forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def run(tokens: Tensor, *arguments: Any) -> Tensor:
            longest[name] = max(longest.get(name, 0), len(tokens))
            return forward(tokens, *arguments)

        return run

    for name, model in (("target", llama.target_model), ("draft", llama.draft_model)):
        monkeypatch.setattr(model, "forward", spied(name, model.forward))
    drain(engine, [(prompt, Sampling(max_tokens=6))])
    assert longest["target"] >= len(prompt)
    drafted = longest.get("draft", 0)
    longest.clear()
    drain(engine, [(prompt, Sampling(max_tokens=6))])
    assert longest["target"] <= 8
    assert longest.get("draft", 0) <= 8 or drafted < len(prompt)  # auto need not draft for a first prompt


def test_without_memory_nothing_is_stored(llama: Pair) -> None:
    engine = llama.engine("chain:2")
    assert [restored_of(engine, [*BEGINNINGS[0], 1]) for _ in range(2)] == [None, None]
    assert engine.counters.queried_tokens == len(engine._prefixes) == 0


def test_the_room_is_what_was_asked_for(llama: Pair) -> None:
    """For the target and the draft: 2 layers with 2 heads of 8, float32."""
    kv = 2 * 2 * 2 * 8 * 4
    assert llama.engine("none", prefix_cache_mb=1)._prefixes.size == 10**6 // (BLOCK * kv)
    assert llama.engine("chain:2", prefix_cache_mb=1)._prefixes.size == 10**6 // (BLOCK * 2 * kv)


def test_only_what_was_verified_is_stored(llama: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the prompt of a request that was cancelled before its first token, nor one whose logits are not
    finite."""
    engine = llama.engine("chain:2", prefill_chunk=BLOCK, prefix_cache_mb=10)
    prompt = [*BEGINNINGS[0], 1]
    number = engine.submit(prompt, Sampling(max_tokens=2))
    engine.step()
    engine.cancel(number)
    assert restored_of(engine, prompt) == 0

    engine = llama.engine("chain:2", prefix_cache_mb=10)
    forward = engine.target.forward
    with monkeypatch.context() as patch:
        patch.setattr(engine.target, "forward", lambda *arguments: forward(*arguments) * float("nan"))
        assert drain(engine, [(prompt, Sampling(max_tokens=2))])[0][-1].finish_reason == "error"
    assert restored_of(engine, prompt) == 0
    assert restored_of(engine, prompt) == BLOCK


def test_what_a_draft_has_that_is_not_finite_is_not_stored(
    llama: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all of its logits are looked at while it reads a prompt; later prompts would all fail."""
    prompt = [*BEGINNINGS[0], 1]
    (sound,) = drain(llama.engine("chain:2", prefix_cache_mb=10), [(prompt, Sampling(max_tokens=4))])
    engine = llama.engine("chain:2", prefix_cache_mb=10)
    store = engine._prefixes.store

    def poisoned(sequence: Sequence, features: Tensor | None) -> None:
        for draft in engine._prefixes._drafts:
            draft.rows.data[:, sequence.row, 3] = float("nan")
        store(sequence, features)

    with monkeypatch.context() as patch:
        patch.setattr(engine._prefixes, "store", poisoned)
        drain(engine, [(prompt, Sampling(max_tokens=1))])
    (again,) = drain(engine, [(prompt, Sampling(max_tokens=4))])
    assert (again[0].restored, tokens_of(again)) == (BLOCK, tokens_of(sound))


def test_requests_that_come_together_share_what_the_first_has_read(llama: Pair) -> None:
    """A prompt that waits for its turn takes what was stored meanwhile."""
    engine = llama.engine("chain:2", max_batch=3, prefill_chunk=2 * BLOCK, prefix_cache_mb=10)
    prompt = [*BEGINNINGS[0][: BLOCK + 20]]
    answers = drain(engine, [(prompt, Sampling(max_tokens=3))] * 3)
    assert [emissions[0].restored for emissions in answers] == [0, BLOCK, BLOCK]
    assert len({tuple(tokens_of(emissions)) for emissions in answers}) == 1
