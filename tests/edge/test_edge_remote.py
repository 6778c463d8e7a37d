"""The edge as a drafter: a proposal becomes the tree that was drawn; the server's own drafter keeps up."""

from __future__ import annotations

from collections.abc import Sequence as Batch
from dataclasses import replace
from functools import partial
from random import Random

import pytest
import torch
from drawn_nodes import put_together
from enumeration import outcomes, total_variation
from joint import PROMPT, WeighedTrees, continuations, verified
from scripted_clients import Clients, Session, verifying_engine
from tables import VOCABULARY, Prefix, Table, TableHead, TableModel, TableRecurrent, random_table
from test_edge_lossless_server import TOKENIZER, drawn_tree
from tiny_models import Pair

from specops.edge.link import Proposal
from specops.edge.server_engine import EngineSettings, Remote, load_verifier, row_bytes
from specops.engine.draft import MakeGrower
from specops.engine.drafters import Autoregressive, make_drafter
from specops.engine.drafters.compound import CopyFirst
from specops.engine.drafters.ngram import NGram
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.heads.eagle import EagleGrower
from specops.engine.heads.recurrent import RecurrentGrower
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree, Topology
from specops.engine.verifiers import ByDraw
from specops.engine.verifiers.naive import Naive
from specops.engine.verifiers.ranked import Ranked
from specops.engine.verifiers.verifier import Verifier
from specops.errors import UsageError

SHAPES: list[tuple[int, ...]] = [(2, 1), (1, 2), (1, 1), (3,)]
WARM = Sampling(temperature=1.0)


def sequence_of(prompt: Batch[int], sampling: Sampling = WARM, chunk: int = 8) -> Sequence:
    sequence = Sequence(5, list(prompt), sampling, room=20, chunk=chunk, eos=frozenset(), tokenizer=None)
    sequence.row = 0
    return sequence


def tree_of(proposal: Proposal, sampling: Sampling = WARM, vocabulary: int = VOCABULARY) -> TokenTree:
    remote = Remote(Autoregressive(), 8, vocabulary)
    remote.put(5, proposal)
    (tree,) = remote.draft([sequence_of(PROMPT, sampling)])
    return tree


def proposed(q: Table, widths: tuple[int, ...], draw: Draw, support: int) -> WeighedTrees:
    """Every tree that a client may propose after the prompt, as the server takes it, with its probability."""
    return list(outcomes(lambda chance: tree_of(drawn_tree(q, chance, PROMPT, widths, draw, support))))


def doubled(tree: TokenTree) -> TokenTree:
    """The same numbers in float64, so that what is computed with them is not rounded to float32."""
    q = tree.q
    assert q is not None
    return replace(tree, q=tuple(tuple(row.double() for row in q[node]) for node in range(len(tree))))


@pytest.mark.parametrize("verifier", [ByDraw(), ByDraw(Ranked()), ByDraw(Naive())])
@pytest.mark.parametrize("draw", [Draw.WITHOUT_REPLACEMENT, Draw.IID])
@pytest.mark.parametrize("widths", SHAPES)
def test_deep_trees_exactly(widths: tuple[int, ...], draw: Draw, verifier: Verifier) -> None:
    p = random_table(0)
    expected = continuations(p, PROMPT, len(widths) + 1)
    for support in (2, 3):
        trees = proposed(random_table(1), widths, draw, support)
        found = verified([(doubled(tree), weight) for tree, weight in trees], verifier, p, len(widths) + 1)
        assert total_variation(found, expected) < 1e-12


def test_a_round_becomes_its_tree() -> None:
    drawn = put_together({2: ((0, 3), (3, 1)), 0: ((1, 4, 6), (2, 5, 1))})
    tree = tree_of(Proposal((4, 1, 3), (0, 0, 2), Draw.WITHOUT_REPLACEMENT, drawn), vocabulary=8)
    assert tree.tokens == [PROMPT[-1], 4, 1, 3]
    assert tree.topology.parents == (-1, 0, 0, 2)
    assert tree.draw is Draw.WITHOUT_REPLACEMENT
    assert tree.q is not None
    assert [len(tree.q[node]) for node in range(4)] == [1, 0, 1, 0]
    expected = torch.tensor([0, 2 / 8, 0, 0, 5 / 8, 0, 1 / 8, 0])
    assert torch.equal(tree.q[0][0], expected)
    assert torch.equal(tree.q[2][0], torch.tensor([3 / 4, 0, 0, 1 / 4, 0, 0, 0, 0]))


def test_a_greedy_sequence_needs_no_distributions() -> None:
    proposal = Proposal((1,), (0,), Draw.WITHOUT_REPLACEMENT, put_together({0: ((1,), (1,))}))
    tree = tree_of(proposal, Sampling())
    assert (tree.q, tree.draw, tree.tokens) == (None, Draw.DETERMINISTIC, [PROMPT[-1], 1])


@pytest.mark.parametrize("draw", list(Draw))
def test_nothing_proposed_is_a_bare_root(draw: Draw) -> None:
    assert len(tree_of(Proposal((), (), draw))) == 1


def test_a_tree_waits_while_its_sequence_is_read_again() -> None:
    remote = Remote(Autoregressive(), 8, VOCABULARY)
    sequence = sequence_of([0, 1, 2, 0, 1], chunk=2)
    remote.put(5, Proposal((1, 2), (0, 1)))
    for _ in range(2):
        assert [len(tree) for tree in remote.draft([sequence])] == [1]
        remote.commit(sequence, [], None)
        sequence.cached += 2
    (tree,) = remote.draft([sequence])
    assert tree.tokens == [1, 1, 2]
    remote.commit(sequence, [1], None)
    assert remote.accepted(5) == [1]
    assert remote.accepted(5) == []
    assert len(remote.draft([sequence])[0]) == 1


def test_a_tree_that_was_put_goes_before_the_own() -> None:
    """Also where the server is told to draft while it waits."""
    remote = Remote(NGram(3), 8, VOCABULARY)
    sequence = sequence_of([0, 1, 2, 0, 1, 2, 0, 1])
    remote.put(5, Proposal((1,), (0,)))
    remote.draft_itself(5, True)
    for expected in ([1, 1], [1, 2, 0, 1]):
        (tree,) = remote.draft([sequence])
        assert tree.tokens == expected
        remote.commit(sequence, [1], None)
    assert remote.accepted(5) == [1]
    remote.draft_itself(5, False)
    assert len(remote.draft([sequence])[0]) == 1


def test_the_verifier_asked_for_is_taken_where_it_is_lossless() -> None:
    """Ranked is not for deterministic trees: those are the naive one's."""
    p = random_table(0)
    likeliest = tree_of(Proposal((2, 1, 0), (0, 0, 1)))
    for verifier in (ByDraw(Ranked()), ByDraw()):
        found = verified([(likeliest, 1.0)], verifier, p, 3)
        assert total_variation(found, continuations(p, PROMPT, 3)) < 1e-12


P = random_table(7)
OWN: list[MakeGrower] = [
    pytest.param(partial(ModelGrower, TableModel(P, 24)), id="draft model"),  # type: ignore[list-item]
    pytest.param(partial(EagleGrower, TableHead(P, 24)), id="head"),  # type: ignore[list-item]
    pytest.param(lambda rows, *_: RecurrentGrower(TableRecurrent(P, 24), rows), id="recurrent head"),  # type: ignore[list-item]
]


@pytest.mark.parametrize("tree", ["chain:3", "expand:2,1", "ngram:3/chain:2", "chain:2+ngram:2"])
@pytest.mark.parametrize("grower", OWN)
def test_the_own_drafter_catches_up(grower: MakeGrower, tree: str) -> None:
    """It is the target itself, so whatever it grows from the right tokens and features is accepted whole. It
    drafts now and then, between clients' trees, in rows that come and go; heads' tables refuse features that
    are not those of their very prefix."""
    rows, length, nodes = 2, 16, 4
    full = 0
    for seed in range(6):
        random = Random(seed)
        own = make_drafter(tree, Draw.DETERMINISTIC, [grower], rows, length)
        engine = verifying_engine(
            TableModel(P, 24), own, TOKENIZER, rows=rows, max_length=length, nodes=nodes, chunk=2
        )

        def proposes(output: list[int], random: Random = random) -> Proposal:
            return Proposal((random.randrange(3), random.randrange(3)), (0, 1))

        sessions = [
            Session(key, prompt, Sampling(max_tokens=10), proposes, switches=switches)
            for key, (prompt, switches) in enumerate(
                [([0, 1], [1, 2, 4]), ([2, 2, 0, 1], [0, 3]), ([1], [2])]
            )
        ]
        Clients(sessions, random, eager=0.5).run(engine, max_batch=1)
        for session in sessions:
            prefix: Prefix = tuple(session.prompt)
            for token in session.output:
                assert token == int(P(prefix).argmax())
                prefix = (*prefix, token)
            written = 0
            for ruling in session.rulings:
                wanted = min(own.depth + 1, 10 - written)
                written += len(ruling.tokens)
                # A copy may be wrong; heads read what was evicted before they draft again.
                if ruling.number not in session.sent and ruling.number > 0 and "ngram" not in tree:
                    assert len(ruling.tokens) == wanted or ruling.evicted
                    full += len(ruling.tokens) == wanted > 1
                elif "ngram" in tree:
                    full += ruling.number not in session.sent and len(ruling.tokens) >= 3
    assert full >= 6


class Grows(Autoregressive):
    nodes = depth = 1

    def draft(self, sequences: Batch[Sequence]) -> list[TokenTree]:
        shape = Topology.from_parents((-1, 0))
        return [TokenTree(shape, [sequence.tokens[-1], 0], Draw.DETERMINISTIC) for sequence in sequences]


def test_what_clients_proposed_says_nothing_of_the_own_trees() -> None:
    """One or the other, by what each brought: turns that others drafted for do not count."""
    either, sequence = CopyFirst(NGram(2), Grows()), sequence_of(PROMPT)
    either.commit(sequence, [], None)
    either.draft([sequence])
    either.commit(sequence, [1], None)
    record = replace(either._records[sequence.id])
    either.commit(sequence, [], None)
    assert either._records[sequence.id] == record


def test_settings_that_cannot_be(llama: Pair) -> None:
    def refused(**changes: object) -> str:
        with pytest.raises(UsageError) as caught:
            load_verifier(EngineSettings(llama.target, **changes))  # type: ignore[arg-type]
        return caught.value.message

    assert "the tree auto is unsupported" in refused(tree="auto")
    assert "needs a draft" in refused(tree="chain:3")
    assert "at least 1" in refused(max_batch=0)
    assert "max_length" in refused(max_length=1000)
    assert "too small" in refused(rows=8, max_batch=8)
    assert "too small" in refused(kv_mb=0.1)
    assert "a number of MiB" in refused(kv_mb=float("inf"))
    assert "invalid verifier" in refused(verifier="none such")


def test_rows_by_memory(llama: Pair) -> None:
    engine = load_verifier(EngineSettings(llama.target, max_batch=2, max_length=100, max_nodes=28, kv_mb=1))
    one = row_bytes(engine.target.shape, 100, 28)
    assert one == engine._cache.data[:, 0].numel() * engine._cache.data.itemsize
    assert engine.max_batch == 2**20 // one
    assert load_verifier(EngineSettings(llama.target, "chain:2", llama.draft, rows=9)).max_batch == 9
