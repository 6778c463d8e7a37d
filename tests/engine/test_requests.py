"""Asking the engine for work: refusals, cancelling, budgets of a step, logprobs, counters, usage."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tiny_models import POSITIONS, VOCABULARY, Pair, drain, reference_logits, tokens_of

from specops.engine.request import Sampling
from specops.errors import UsageError

PROMPT = [11, 90, 3, 207]
TREES = ["none", "chain:3", "expand:3,2,1", "dynamic:8:3", "ngram:4", "chain:3+ngram:4"]


@pytest.mark.parametrize(
    ("prompt", "sampling", "message"),
    [
        ([], Sampling(), "at least one token"),
        ([1] * POSITIONS, Sampling(), f"leaves no room: a sequence holds {POSITIONS} tokens"),
        ([VOCABULARY], Sampling(), f"from 0 to {VOCABULARY - 1}"),
        ([-1], Sampling(), f"from 0 to {VOCABULARY - 1}"),
        ([1], Sampling(max_tokens=0), "max_tokens must be at least 1, not 0"),
        ([1], Sampling(temperature=-0.1), "temperature must be 0 or at least 1e-05, not -0.1"),
        ([1], Sampling(temperature=9e-6), "temperature must be 0 or at least 1e-05, not 9e-06"),
        ([1], Sampling(temperature=float("nan")), "temperature must be 0 or at least 1e-05, not nan"),
        ([1], Sampling(temperature=1.0, top_k=-1), "top_k must be at least 0"),
        ([1], Sampling(temperature=1.0, top_p=0.0), "top_p above 0 and at most 1"),
        ([1], Sampling(temperature=1.0, top_p=1.1), "top_p above 0 and at most 1"),
    ],
)
def test_a_bad_request_is_refused_in_a_sentence(
    prompt: list[int], sampling: Sampling, message: str, llama: Pair
) -> None:
    engine = llama.engine("chain:3")
    with pytest.raises(UsageError, match=message):
        engine.submit(prompt, sampling)
    assert engine.idle


def test_an_idle_engine_does_nothing(llama: Pair) -> None:
    engine = llama.engine("chain:3")
    assert engine.step() == []
    assert (engine.idle, engine.running, engine.waiting, engine.kv_usage) == (True, 0, 0, 0.0)
    assert engine.counters.steps == 0


def test_more_than_the_rows_wait_their_turn_in_order(llama: Pair) -> None:
    engine = llama.engine("none", max_batch=2)
    ids = [engine.submit(PROMPT, Sampling(max_tokens=3)) for _ in range(5)]
    ended: list[int] = []
    assert (engine.running, engine.waiting) == (0, 5)
    engine.step()
    assert (engine.running, engine.waiting) == (2, 3)
    while not engine.idle:
        ended += [e.sequence_id for e in engine.step() if e.finish_reason]
    assert ended == ids


@pytest.mark.parametrize("tree", TREES)
def test_cancelling(tree: str, llama: Pair) -> None:
    """Running, waiting, unknown and twice: its row is free at once, and nothing follows."""
    engine = llama.engine(tree, max_batch=2)
    alone = engine.generate(PROMPT, Sampling(max_tokens=12)).tokens
    first, second, third, fourth = [engine.submit(PROMPT, Sampling(max_tokens=12)) for _ in range(4)]
    found: dict[int, list[int]] = {first: [], second: [], fourth: []}
    for emission in engine.step():
        found[emission.sequence_id] += emission.tokens
    engine.cancel(first)
    engine.cancel(third)
    assert (engine.running, engine.waiting) == (1, 1)
    engine.cancel(first)
    engine.cancel(12345)
    while not engine.idle:
        for emission in engine.step():
            assert emission.sequence_id in (second, fourth)
            found[emission.sequence_id] += emission.tokens
    assert found[second] == found[fourth] == alone
    assert len(found[first]) < 12


def test_leaving_a_stream_cancels_it(llama: Pair) -> None:
    engine = llama.engine("chain:3")
    stream = engine.stream(PROMPT, Sampling(max_tokens=100))
    next(stream)
    assert engine.running == 1
    stream.close()
    assert engine.idle


def test_two_streams_at_a_time_are_refused(llama: Pair) -> None:
    """Each would swallow what the engine emits for the other."""
    engine = llama.engine("chain:3")
    first = engine.stream(PROMPT, Sampling(max_tokens=100))
    next(first)
    with pytest.raises(UsageError, match="one sequence at a time"):
        next(engine.stream(PROMPT, Sampling(max_tokens=100)))
    first.close()
    assert len(engine.generate(PROMPT, Sampling(max_tokens=5, ignore_eos=True)).tokens) == 5


def test_a_long_prompt_does_not_hold_up_who_is_decoding(llama: Pair) -> None:
    """Chunks of a prompt share the steps of others; two prompts share the budget of a step."""
    engine = llama.engine("chain:3", prefill_chunk=10)
    running = engine.submit(PROMPT, Sampling(max_tokens=60))
    engine.step()
    engine.submit([5] * 40, Sampling(max_tokens=5))
    engine.submit([6] * 40, Sampling(max_tokens=5))
    for _ in range(4):
        assert engine.step()[0].sequence_id == running
    drained = {e.sequence_id for _ in range(20) for e in engine.step()}
    assert len(drained) == 3


def test_kv_usage_is_what_committed_tokens_fill(llama: Pair) -> None:
    engine = llama.engine("none", max_batch=2, max_length=20)
    engine.submit([1] * 10, Sampling(max_tokens=5))
    engine.step()
    assert engine.kv_usage == pytest.approx(10 / 40)
    engine.step()
    assert engine.kv_usage == pytest.approx(11 / 40)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("family", ["llama", "opt"])
def test_logprobs_are_the_targets_own(
    family: str, tree: str, temperature: float, pair_of: Callable[[str], Pair]
) -> None:
    """Before temperature and cuts, one for each token, whatever the tree."""
    pair = pair_of(family)
    sampling = Sampling(temperature, top_k=50, seed=3, max_tokens=17, logprobs=4)
    completion = pair.engine(tree).generate(PROMPT, sampling)
    expected = reference_logits(pair.reference, PROMPT + completion.tokens)[len(PROMPT) - 1 : -1]
    expected = expected.log_softmax(-1)
    assert [entry.token for entry in completion.logprobs] == completion.tokens
    for entry, row in zip(completion.logprobs, expected, strict=True):
        assert entry.logprob == pytest.approx(float(row[entry.token]), abs=1e-4)
        assert [value for _, value in entry.top] == pytest.approx(row.topk(4).values.tolist(), abs=1e-4)
        assert [value for _, value in entry.top] == pytest.approx(
            [float(row[token]) for token, _ in entry.top], abs=1e-4
        )


@pytest.mark.parametrize("asked", [None, 0])
def test_no_more_logprobs_than_asked_for(asked: int | None, llama: Pair) -> None:
    completion = llama.engine("chain:3").generate(PROMPT, Sampling(max_tokens=5, logprobs=asked))
    assert len(completion.logprobs) == (0 if asked is None else 5)
    assert all(entry.top == () for entry in completion.logprobs)


@pytest.mark.parametrize("tree", TREES)
def test_counters_add_up(tree: str, llama: Pair) -> None:
    engine = llama.engine(tree, max_batch=3, prefill_chunk=16)
    requests = [(PROMPT * n, Sampling(max_tokens=10 + n)) for n in range(1, 7)]
    steps = 0
    ids = [engine.submit(*request) for request in requests]
    emissions = []
    while not engine.idle:
        emissions += engine.step()
        steps += 1
    counters = engine.counters
    assert counters.steps == steps
    assert counters.prompt_tokens == sum(len(prompt) for prompt, _ in requests)
    assert counters.generated_tokens == len(tokens_of(emissions)) == sum(s.max_tokens for _, s in requests)
    assert counters.accepted_tokens == sum(counters.accepted_per_position)
    assert counters.accepted_per_position == sorted(counters.accepted_per_position, reverse=True)
    # Each emission is the accepted tokens of one verification, and one of the target's own.
    assert counters.generated_tokens == counters.accepted_tokens + len(emissions)
    assert counters.drafts <= len(emissions)
    assert counters.accepted_tokens <= counters.draft_tokens <= counters.drafts * engine._drafter.nodes
    assert {e.sequence_id for e in emissions} == set(ids)
    assert (counters.drafts == 0) == (tree == "none")


def test_acceptance_at_the_first_position_counts_each_draft_once(llama: Pair) -> None:
    engine = llama.engine("chain:3", draft=llama.target_model)
    drain(engine, [(PROMPT, Sampling(max_tokens=12))])
    assert engine.counters.accepted_per_position == [3, 3, 3]
    assert engine.counters.drafts == 3
