"""The client's engine against a server that verifies naively: its greedy output is `generate`'s, whatever it
drafts, however long messages take, and wherever the link breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_link import LocalLink, Logits, logits_of, served
from tiny_models import VOCABULARY, Pair, clear_prompts, drain, load_reference, tokens_of

from specops.edge.client import EdgeEngine
from specops.edge.client_sessions import Stage
from specops.edge.fallback import Fallback
from specops.edge.settings import Adaptive, Depth, Drafting, Excluded, Included
from specops.engine.request import Emission, Sampling
from specops.errors import UsageError

LENGTH = 24
SHORT = 12  # and still longer than whatever a test does on the way
Prompts = list[tuple[list[int], list[int]]]


@pytest.fixture(scope="module")
def logits(llama: Pair) -> Logits:
    return logits_of(llama.reference)


@pytest.fixture(scope="module")
def prompts(llama: Pair) -> Prompts:
    return clear_prompts(llama.reference, [5, 9, 17, 3], LENGTH)


def engine_over(llama: Pair, link: LocalLink, drafting: Drafting, **others: object) -> EdgeEngine:
    return EdgeEngine(link, llama.tokenizer, llama.draft_model, drafting, clock=link.clock, **others)  # type: ignore[arg-type]


def asked(prompts: Prompts, **sampling: object) -> list[tuple[list[int], Sampling]]:
    return [(prompt, Sampling(max_tokens=LENGTH, **sampling)) for prompt, _ in prompts]  # type: ignore[arg-type]


@pytest.mark.quick(5)
@pytest.mark.parametrize("heads", [0, 1, 2, 8])
@pytest.mark.parametrize("depth", [Included(3), Excluded(2), Adaptive()], ids=str)
def test_greedy_output_is_generates(
    heads: int, depth: Depth, llama: Pair, logits: Logits, prompts: Prompts
) -> None:
    link = LocalLink(logits, served(VOCABULARY))
    engine = engine_over(llama, link, Drafting(nodes=12, beams=3, heads=heads, depth=depth))
    outputs = drain(engine, asked(prompts))  # type: ignore[arg-type]
    assert [tokens_of(each) for each in outputs] == [expected for _, expected in prompts]
    assert [each[-1].finish_reason for each in outputs] == ["length"] * len(prompts)
    assert (engine.own.ahead > 0) == (heads > 0)
    assert engine.idle


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_whatever_the_link_does(data: st.DataObject, llama: Pair, logits: Logits, prompts: Prompts) -> None:
    """Random delays, and breaks between any two steps, after which a round or its verdict is missing or the
    server has forgotten everything: no token is lost, doubled or wrong."""
    delays = data.draw(st.lists(st.floats(0.0, 0.3), min_size=1, max_size=7))
    drafting = Drafting(
        nodes=data.draw(st.integers(1, 12)),
        beams=data.draw(st.integers(1, 4)),
        heads=data.draw(st.integers(0, 5)),
        depth=data.draw(st.sampled_from([Included(2), Excluded(2), Adaptive()])),
        streams=data.draw(st.integers(1, 4)),
        chunk=data.draw(st.sampled_from([4, 256])),
        patience_s=1e6,
    )
    cuts = data.draw(st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.booleans()), max_size=4))
    turn = iter(range(10**6))
    link = LocalLink(logits, served(VOCABULARY), delay=lambda: delays[next(turn) % len(delays)])
    engine = engine_over(llama, link, drafting)
    ids = [engine.submit(prompt, Sampling(max_tokens=SHORT)) for prompt, _ in prompts]
    outputs: dict[int, list[int]] = {each: [] for each in ids}
    for step in range(100_000):
        for at, arrived, forget in cuts:
            if at == step:
                link.cut(arrived=arrived, forget=forget)
        for emission in engine.step():
            outputs[emission.sequence_id] += emission.tokens
            assert emission.error is None
        if engine.idle:
            break
    assert [outputs[each] for each in ids] == [expected[:SHORT] for _, expected in prompts]


def test_copies_need_no_model(llama: Pair, logits: Logits, prompts: Prompts) -> None:
    link = LocalLink(logits, served(VOCABULARY))
    engine = EdgeEngine(link, llama.tokenizer, None, Drafting(nodes=4), clock=link.clock)
    repeated = [(prompt * 3, Sampling(max_tokens=8)) for prompt, _ in prompts]
    outputs = drain(engine, repeated)  # type: ignore[arg-type]
    local = drain(llama.engine("none"), repeated)
    assert [tokens_of(each) for each in outputs] == [tokens_of(each) for each in local]
    assert engine.own.passes == 0


# --- who drafts ---------------------------------------------------------------------------------


def test_the_server_drafts_where_the_link_is_bad(llama: Pair, logits: Logits, prompts: Prompts) -> None:
    link = LocalLink(logits, served(VOCABULARY))
    engine = engine_over(llama, link, Drafting(nodes=4), fallback=Fallback.always(server_drafts=True))
    outputs = drain(engine, asked(prompts))  # type: ignore[arg-type]
    assert [tokens_of(each) for each in outputs] == [expected for _, expected in prompts]
    assert link.proposals == []


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_drafting_changes_hands_at_any_time(
    data: st.DataObject, llama: Pair, logits: Logits, prompts: Prompts
) -> None:
    link = LocalLink(logits, served(VOCABULARY), delay=lambda: 0.01)
    engine = engine_over(llama, link, Drafting(nodes=4, heads=2, patience_s=1e6))
    changes = data.draw(st.lists(st.integers(0, 30), max_size=5, unique=True))
    cuts = data.draw(st.lists(st.integers(0, 40), max_size=2))
    ids = [engine.submit(prompt, Sampling(max_tokens=SHORT)) for prompt, _ in prompts]
    outputs: dict[int, list[int]] = {each: [] for each in ids}
    for step in range(100_000):
        if step in changes:
            talks = engine._talks
            talks.fallback = replace(talks.fallback, server_drafts=not talks.fallback.server_drafts)
        if step in cuts:
            link.cut()
        for emission in engine.step():
            outputs[emission.sequence_id] += emission.tokens
        if engine.idle:
            break
    assert [outputs[each] for each in ids] == [expected[:SHORT] for _, expected in prompts]


def test_a_round_that_was_lost_is_sent_when_the_drafting_comes_back(
    llama: Pair, logits: Logits, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server took the drafting over meanwhile, and has drafted nothing yet."""
    link = LocalLink(logits, served(VOCABULARY), delay=lambda: 0.1)  # longer than a step waits
    monkeypatch.setattr(link, "_draft", lambda there: None)
    engine = engine_over(llama, link, Drafting(nodes=12, heads=0, depth=Included(1)))
    (prompt, expected), output = prompts[0], list[int]()
    sequence = engine.submit(prompt, Sampling(max_tokens=LENGTH))

    def step_until(done: Callable[[], bool]) -> None:
        for _ in range(2000):
            for emission in engine.step():
                output.extend(emission.tokens)
            if done():
                return
        raise AssertionError("it came to a halt")

    step_until(lambda: len(link.proposals) == 1)
    engine._talks.fallback = Fallback.always(server_drafts=True)
    link.cut(arrived=False)
    step_until(lambda: engine._talks[sequence].stage is Stage.THERE)
    engine._talks.fallback = Fallback.always(server_drafts=False)
    step_until(lambda: engine.idle)
    assert output == expected
    assert link.proposals[0] == link.proposals[1]


def test_patience_begins_with_the_sequence(llama: Pair, logits: Logits, prompts: Prompts) -> None:
    """Not with the break, which may be older than it is."""
    link = LocalLink(logits, served(VOCABULARY))
    engine = engine_over(llama, link, Drafting(nodes=4, patience_s=30.0))
    link.cut(for_s=50.0)
    given_up = engine.submit(prompts[0][0], Sampling(max_tokens=LENGTH))
    engine.step()
    engine.cancel(given_up)
    while link.clock.now < 40.0:
        link.receive(1.0)
    (emissions,) = drain(engine, asked(prompts[:1]))  # type: ignore[arg-type]
    assert tokens_of(emissions) == prompts[0][1]


def test_a_break_is_not_taken_for_slow_drafting(llama: Pair, logits: Logits, prompts: Prompts) -> None:
    link = LocalLink(logits, served(VOCABULARY), delay=lambda: 0.1)
    engine = engine_over(llama, link, Drafting(nodes=4, depth=Included(2)))
    engine.submit(prompts[0][0], Sampling(max_tokens=LENGTH))
    while not link.proposals:
        engine.step()
    link.cut(for_s=20.0, arrived=False)
    while not engine.idle:
        engine.step()
    assert engine.own.resumed == 1
    assert engine.own.draft_s < 1.0  # of the link's clock, which only waiting moves


# --- ends ---------------------------------------------------------------------------------------


def test_eos_stop_tokens_and_stop_strings_end_a_sequence(
    llama: Pair, logits: Logits, prompts: Prompts
) -> None:
    prompt, expected = prompts[0]
    ending = expected[7]
    first = expected.index(ending)
    link = LocalLink(logits, served(VOCABULARY, eos=frozenset({ending})))
    engine = engine_over(llama, link, Drafting(nodes=6, heads=3))
    ended = engine.generate(prompt, Sampling(max_tokens=LENGTH))
    assert (ended.tokens, ended.finish_reason) == (expected[: first + 1], "stop")
    ignored = engine.generate(prompt, Sampling(max_tokens=LENGTH, ignore_eos=True))
    assert ignored.tokens == expected
    stopped = engine.generate(
        prompt, Sampling(max_tokens=LENGTH, stop_token_ids=(expected[4],), ignore_eos=True)
    )
    assert stopped.tokens == expected[: expected.index(expected[4]) + 1]
    local = llama.engine("none").generate(prompt, Sampling(max_tokens=LENGTH))
    stop = local.text[3:5]
    with_stop = engine.generate(prompt, Sampling(max_tokens=LENGTH, stop=(stop,), ignore_eos=True))
    assert with_stop.text == local.text[: local.text.index(stop)]
    assert not link.going


def test_a_stop_string_ends_a_sequence_at_a_hit(llama: Pair) -> None:
    """The server knows nothing of it, and what is drafted ahead is right nearly always."""
    link = LocalLink(logits_of(load_reference(llama.draft)), served(VOCABULARY))
    engine = engine_over(llama, link, Drafting(nodes=1, beams=4, heads=24, depth=Included(1)))
    whole = engine.generate([5, 6, 7], Sampling(max_tokens=LENGTH)).text
    assert engine.own.hits > engine.own.misses
    for at in range(0, len(whole) - 2, 2):
        stop = whole[at : at + 2]
        stopped = engine.generate([5, 6, 7], Sampling(max_tokens=LENGTH, stop=(stop,)))
        assert stopped.text == whole[: whole.index(stop)]
    assert not link.going


def test_a_sequence_ends_where_the_server_has_no_more_room(llama: Pair, logits: Logits) -> None:
    link = LocalLink(logits, served(VOCABULARY, max_length=12))
    engine = engine_over(llama, link, Drafting(nodes=6, heads=3))
    assert len(engine.generate([1, 2, 3, 4, 5], Sampling(max_tokens=50)).tokens) == 7


def test_a_cancelled_sequence_leaves_its_place(llama: Pair, logits: Logits, prompts: Prompts) -> None:
    link = LocalLink(logits, served(VOCABULARY))
    engine = engine_over(llama, link, Drafting(nodes=6, streams=1))
    first, second = (engine.submit(*each) for each in asked(prompts[:2]))
    assert (engine.running, engine.waiting) == (0, 2)
    while not engine.step():
        pass
    assert (engine.running, engine.waiting) == (1, 1)
    assert 0 < engine.kv_usage < 1
    engine.cancel(first)
    engine.cancel(999)
    output: list[int] = []
    while not engine.idle:
        for emission in engine.step():
            assert emission.sequence_id == second
            output += emission.tokens
    assert output == prompts[1][1]
    assert engine.kv_usage == 0
    assert not link.going


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["busy", "draining"])
def test_a_busy_server_is_asked_again(reason: str, llama: Pair, logits: Logits, prompts: Prompts) -> None:
    link = LocalLink(logits, served(VOCABULARY))
    link.refusals += [(reason, 0.4), (reason, 0.0)]  # type: ignore[list-item]
    engine = engine_over(llama, link, Drafting(nodes=6))
    assert engine.generate(*asked(prompts)[0]).tokens == prompts[0][1]
    assert link.clock.now > 0.9  # as long as it asked for, and half a second where it did not say


def failures(engine: EdgeEngine, prompts: Prompts) -> list[Emission]:
    return [each[-1] for each in drain(engine, asked(prompts))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("refusals", "said"),
    [
        ([("busy", 0.5)] * 100, "did not go on: it is busy"),
        ([("draining", 0.5)] * 100, "did not go on: it is draining"),
        ([("unknown", 0.0)] * 9, "refused: it is unknown"),
        ([("nonsense", 0.0)], "refused: it is nonsense"),
        ([("too large", 0.0)], "refused: it is too large"),
        ([("failed", 0.0)], "refused: it is failed"),
    ],
)
def test_what_the_server_will_not_have_fails_alone(
    refusals: list[tuple[str, float]], said: str, llama: Pair, logits: Logits, prompts: Prompts
) -> None:
    link = LocalLink(logits, served(VOCABULARY))
    link.refusals += refusals  # type: ignore[arg-type]
    engine = engine_over(llama, link, Drafting(nodes=6, patience_s=10.0))
    (failed,) = failures(engine, prompts[:1])
    assert failed.finish_reason == "cancelled"
    assert failed.error is not None
    assert said in failed.error
    link.refusals.clear()
    assert engine.generate(*asked(prompts)[1]).tokens == prompts[1][1]


def test_a_server_out_of_reach_for_too_long(llama: Pair, logits: Logits, prompts: Prompts) -> None:
    link = LocalLink(logits, served(VOCABULARY))
    engine = engine_over(llama, link, Drafting(nodes=6, patience_s=20.0))
    link.cut(for_s=25.0)
    (failed,) = failures(engine, prompts[:1])
    assert failed.error == "the verification server did not go on: cut"
    assert engine.unavailable == "the verification server is out of reach: cut"
    assert not engine.extra.connected
    link.clock.now += 10
    engine.step()
    assert engine.unavailable is None
    assert engine.generate(*asked(prompts)[1]).tokens == prompts[1][1]


@pytest.mark.parametrize(
    ("path", "tokens", "number"),
    [([99], [1, 2], 1), ([2, 1], [1, 2, 3], 1), ([1], [1], 1), ([], [], 1), ([], [1, 2], 1), ([], [1], 7)],
)
def test_a_verdict_that_cannot_be_is_refused(
    path: list[int], tokens: list[int], number: int, llama: Pair, logits: Logits, prompts: Prompts
) -> None:
    link = LocalLink(logits, served(VOCABULARY))
    engine = engine_over(llama, link, Drafting(nodes=6))
    hear = engine._talks.hear
    engine._talks.hear = lambda events: hear(  # type: ignore[method-assign]
        [
            replace(event, path=path, tokens=tokens, number=number)
            if getattr(event, "number", 0) == 1
            else event
            for event in events
        ]
    )
    (failed,) = failures(engine, prompts[:1])
    assert failed.error is not None
    assert failed.error.startswith("could not take the server's verdict: ")


@pytest.mark.parametrize("taken", [1, 9])
def test_a_server_that_goes_on_with_what_it_was_never_sent_is_refused(
    taken: int, llama: Pair, logits: Logits, prompts: Prompts
) -> None:
    engine = engine_over(llama, LocalLink(logits, served(VOCABULARY)), Drafting(nodes=6, ahead=0))
    hear = engine._talks.hear
    engine._talks.hear = lambda events: hear(  # type: ignore[method-assign]
        [replace(event, version=taken) if getattr(event, "number", 0) == 1 else event for event in events]
    )
    (failed,) = failures(engine, prompts[:1])
    assert failed.error == "could not take the server's verdict: it continues with a tree that was not sent"


def test_rounds_sent_ahead_are_taken_and_not_sent_again(
    llama: Pair, logits: Logits, prompts: Prompts
) -> None:
    link = LocalLink(logits, served(VOCABULARY))
    engine = engine_over(llama, link, Drafting(nodes=6, beams=4))
    for prompt, expected in prompts:
        assert engine.generate(*asked([(prompt, expected)])[0]).tokens == expected
    own = engine.own
    assert 0 < own.taken == len(link.taken) <= own.hits
    assert own.rounds == len(link.taken) + len(link.proposals)


def test_bad_requests_are_refused(llama: Pair, logits: Logits) -> None:
    engine = engine_over(llama, LocalLink(logits, served(VOCABULARY)), Drafting())
    for prompt, sampling, said in [
        ([], Sampling(), "at least one token"),
        ([VOCABULARY], Sampling(), "token ids"),
        ([1] * 160, Sampling(), "no room"),
        ([1], Sampling(max_tokens=0), "max_tokens"),
        ([1], Sampling(top_p=0.0), "top_p"),
        ([1], Sampling(logprobs=1), "logprobs"),
    ]:
        with pytest.raises(UsageError, match=said):
            engine.submit(prompt, sampling)
