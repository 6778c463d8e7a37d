"""The loop of the verification server: whatever is proposed, when, by whom, each gets the target's output."""

from __future__ import annotations

from functools import partial
from random import Random
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_clients import Clients, Session, guesses, spoil, verifying_engine
from tiny_models import POSITIONS, VOCABULARY, Pair, clear_prompts

from specops.edge.batching import Batching
from specops.edge.link import Proposal
from specops.edge.messages import (
    Begin,
    EngineMessage,
    Failed,
    PackedConnection,
    Propose,
    Ready,
    SequenceRefused,
    StepResults,
)
from specops.edge.server_engine import Remote
from specops.edge.verification_loop import verify_in_thread
from specops.engine.drafters import make_drafter
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.request import Sampling
from specops.engine.step import Engine
from specops.engine.tree import Draw

COUNT = 20
LENGTHS = [1, 2, 9, 23, 40, 64]
NODES = 12
TREES = ["none", "ngram:4", "chain:3", "expand:2,1", "dynamic:6:3", "ngram:4/chain:2", "suffix:4"]
Expected = list[tuple[list[int], list[int]]]


@pytest.fixture(scope="module")
def expected(llama: Pair) -> Expected:
    return clear_prompts(llama.reference, LENGTHS, COUNT)


def engine_of(llama: Pair, tree: str, rows: int, chunk: int) -> Engine:
    grower = partial(ModelGrower, llama.draft_model)
    own = make_drafter(tree, Draw.WITHOUT_REPLACEMENT, [grower], rows, POSITIONS)
    return verifying_engine(
        llama.target_model,
        own,
        llama.tokenizer,
        rows=rows,
        max_length=POSITIONS,
        nodes=NODES,
        chunk=chunk,
    )


def greedy_sessions(expected: Expected, random: Random) -> list[Session]:
    sessions = []
    for key, (prompt, tokens) in enumerate(expected):
        luck = random.choice([0.0, 0.5, 0.9, 1.0])

        def proposes(output: list[int], right: list[int] = tokens, luck: float = luck) -> Proposal:
            return guesses(random, right[len(output) :], random.randint(1, NODES), VOCABULARY, luck)

        session = Session(key, prompt, Sampling(max_tokens=COUNT), proposes, client=key % 3)
        session.server_drafts = random.random() < 0.3
        session.switches = sorted(random.sample(range(12), random.choice([0, 0, 1, 3])))
        sessions.append(session)
    return sessions


def nobody_is_left(engine: Engine) -> bool:
    remote = engine.drafter
    assert isinstance(remote, Remote)
    kept = remote._proposals, remote._paths, remote._itself
    return not (engine._by_id or engine._running or engine._waiting or any(kept))


@given(seed=st.integers(0, 2**32), tree=st.sampled_from(TREES), chunk=st.sampled_from([1, 7, 64]))
@settings(max_examples=30)
def test_greedy_output_is_transformers_own(
    seed: int, tree: str, chunk: int, llama: Pair, expected: Expected
) -> None:
    """Right, wrong and mixed trees; sessions that come and answer in any order; fewer rows than sessions;
    prompts read in chunks; the drafting handed over in the middle, both ways; garbage in every free slot."""
    random = Random(seed)
    max_batch = random.randint(1, 4)
    rows = random.randint(max_batch + 1, len(LENGTHS) + 1)
    batching = random.choice([Batching(), Batching(3, 0.0)])
    clients = Clients(greedy_sessions(expected, random), random, eager=random.choice([0.2, 0.6, 1.0]))
    engine = engine_of(llama, tree, rows, chunk)
    spoil(engine)
    clients.run(engine, max_batch, batching)
    for session, (_, tokens) in zip(clients.sessions.values(), expected, strict=True):
        assert session.output == tokens
        assert session.ended
    assert engine.counters.generated_tokens == COUNT * len(LENGTHS)
    assert engine.counters.prompt_tokens == sum(LENGTHS)
    assert max(len(step.rulings) for step in clients.steps) <= rows
    assert nobody_is_left(engine)


def test_rows_are_lent_out_and_what_they_held_is_read_again(llama: Pair, expected: Expected) -> None:
    random = Random(1)
    clients = Clients(greedy_sessions(expected, random), random, eager=0.5)
    engine = engine_of(llama, "none", rows=2, chunk=64)
    clients.run(engine, max_batch=1)
    assert [session.output for session in clients.sessions.values()] == [tokens for _, tokens in expected]
    again = [ruling for session in clients.sessions.values() for ruling in session.rulings if ruling.evicted]
    assert engine.counters.evictions >= len(again) > 10
    for session in clients.sessions.values():
        had = len(session.prompt) - 1
        for ruling in session.rulings:
            assert ruling.evicted in (0, had)
            had += len(ruling.tokens)


@pytest.mark.parametrize("batching", [Batching(), Batching(4, 60.0)])
def test_a_step_takes_a_batch(batching: Batching, llama: Pair, expected: Expected) -> None:
    """Static batches are full as long as there are sessions enough to fill them, and none waits in vain."""
    sessions = greedy_sessions(expected, Random(2))
    for session in sessions:
        session.switches, session.server_drafts = [], False
        session.sampling = Sampling(max_tokens=8)
        session.proposes = lambda output: Proposal((0,), (0,))
    clients = Clients(sessions, Random(3), eager=0.3)
    clients.run(engine_of(llama, "none", rows=12, chunk=256), 4, batching)
    assert [session.output for session in sessions] == [tokens[:8] for _, tokens in expected]
    begun, alive, sizes = 0, len(sessions), []
    for step in clients.steps:
        later = [ruling for ruling in step.rulings if ruling.number > 0]
        if later and begun == len(sessions) and alive >= 4:
            sizes.append(len(later))
        begun += len(step.rulings) - len(later)
        alive -= sum(ruling.ended for ruling in step.rulings)
    assert max(sizes) <= 4
    assert (set(sizes) == {4}) == (batching.least == 4)


def test_prompts_are_read_beside_verifications(llama: Pair, expected: Expected) -> None:
    """A long prompt takes many steps; the others have a ruling in each of them."""
    (short, _), *_, (long, _) = expected
    sessions = [
        Session(key, prompt, Sampling(max_tokens=15), lambda output: Proposal((0,), (0,)), client=key)
        for key, prompt in enumerate([short, short, long])
    ]
    clients = Clients(sessions)
    clients.run(engine_of(llama, "none", rows=4, chunk=8), max_batch=2)
    ruled = [[ruling.key for ruling in step.rulings] for step in clients.steps]
    first = next(number for number, keys in enumerate(ruled) if 2 in keys)
    assert first >= len(long) // 8
    assert all(sorted(keys) == [0, 1] for keys in ruled[1:first])


def test_what_is_not_read_yet_takes_no_row(llama: Pair) -> None:
    """Prompts of 9 tokens, of which a chunk holds one: each takes a row, and another's, when it is read."""
    sessions = [
        Session(key, [key + 1] * 9, Sampling(max_tokens=3), lambda output: Proposal((0,), (0,)), client=key)
        for key in range(6)
    ]
    clients = Clients(sessions)
    clients.run(engine_of(llama, "none", rows=12, chunk=16), max_batch=2)
    begun = 0
    for step in clients.steps:
        begun += sum(ruling.number == 0 for ruling in step.rulings)
        assert step.running <= begun
    assert [step.rulings[-1].key for step in clients.steps[:6]] == list(range(6))


def test_sessions_that_are_taken_back(llama: Pair, expected: Expected) -> None:
    random = Random(4)
    sessions = greedy_sessions(expected, random)
    for key, after in ((0, 0), (2, 2), (4, 5)):
        sessions[key].ends_after = after
        sessions[key].switches = []
    clients = Clients(sessions, random, eager=0.5)
    engine = engine_of(llama, "chain:3", rows=3, chunk=16)
    clients.run(engine, max_batch=2)
    for session, (_, tokens) in zip(sessions, expected, strict=True):
        assert session.output == tokens[: len(session.output)]
        assert session.ended == (session.ends_after is None)
    assert nobody_is_left(engine)


def test_handing_over_is_told_once(llama: Pair, expected: Expected) -> None:
    prompt, tokens = expected[3]
    session = Session(7, prompt, Sampling(max_tokens=COUNT), lambda output: Proposal((0,), (0,)))
    session.server_drafts, session.switches = True, [2, 5, 6]
    clients = Clients([session])
    clients.run(engine_of(llama, "none", rows=2, chunk=16), max_batch=1)
    assert session.output == tokens
    # A step of its own is under way when it is asked for the turn: it is told after it.
    assert [held.number for held in session.held] == [4, 8]


def test_what_cannot_be_held_is_refused(llama: Pair, expected: Expected) -> None:
    prompt, tokens = expected[1]
    sessions = [
        Session(0, [], Sampling(), lambda output: Proposal((0,), (0,))),
        Session(1, [1] * POSITIONS, Sampling(), lambda output: Proposal((0,), (0,))),
        Session(2, prompt, Sampling(max_tokens=4), lambda output: Proposal((0,), (0,))),
    ]
    Clients(sessions).run(engine_of(llama, "none", rows=2, chunk=16), max_batch=1)
    assert [session.refused is not None for session in sessions] == [True, True, False]
    assert sessions[2].output == tokens[:4]


def test_over_a_connection(llama: Pair, expected: Expected) -> None:
    """As a process has it: told over a pipe, it says what came of it, and ends when it is told to."""
    worker = verify_in_thread(engine_of(llama, "none", rows=3, chunk=16), max_batch=2)
    assert worker.ready == Ready(POSITIONS, rows=3, vocabulary=VOCABULARY, eos=frozenset())
    channel = PackedConnection[EngineMessage](worker.connection, EngineMessage)
    say, hear = channel.send, channel.recv
    (prompt, tokens), output, last = expected[2], [], 0.0
    say(
        [
            Begin(9, 0, prompt, Sampling(max_tokens=COUNT), server_drafts=False),
            Begin(8, 0, [], Sampling(), server_drafts=False),
            Propose(77, 0, Proposal((1,), (0,)), perf_counter()),  # whom nobody knows
        ]
    )
    refused = []
    while len(output) < COUNT:
        said = hear()
        if isinstance(said, SequenceRefused):
            refused.append(said.key)
            continue
        assert isinstance(said, StepResults)
        assert said.started <= said.ended
        for ruling in said.rulings:
            output += ruling.tokens
            right = tuple(tokens[len(output) : len(output) + 4])
            say([Propose(9, 0, Proposal((0,), (0,)), perf_counter())])  # a number that is not due
            say([Propose(9, ruling.number + 1, Proposal(right, tuple(range(len(right)))), perf_counter())])
        spent = said.idle.busy + said.idle.starved + said.idle.empty
        assert last < spent
        last = spent
    assert output == tokens
    assert refused == [8]
    assert said.rulings[0].number == 4, "four of a round are right, and a bonus follows"
    assert (said.running, said.parked) == (0, 0)
    say(None)
    worker.join()


def test_an_engine_that_breaks_says_so(llama: Pair) -> None:
    engine = engine_of(llama, "none", rows=2, chunk=16)

    def breaks(*_: object) -> None:
        raise LookupError("no such layer")

    engine._forward = breaks  # type: ignore[assignment,method-assign]
    worker = verify_in_thread(engine, max_batch=1)
    channel = PackedConnection[EngineMessage](worker.connection, EngineMessage)
    channel.send([Begin(0, 0, [1, 2], Sampling(), server_drafts=False)])
    assert channel.recv() == Failed("LookupError('no such layer')")
    worker.join()
