"""Chains that end where their draft is unsure: where they end, and that ending there is lossless."""

from __future__ import annotations

from functools import partial
from math import sqrt

import pytest
from enumeration import total_variation
from joint import PROMPT, continuations, drafted, target_rows, verified
from tables import Prefix, Table, TableModel, random_table
from torch import Tensor

from specops.engine.draft import Drafter
from specops.engine.drafters import make_drafter
from specops.engine.drafters.expansion import Adaptive, PartialTree
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, TokenTree
from specops.engine.verifiers.mss import MultiStep
from specops.engine.verifiers.naive import Naive, verify_greedy
from specops.engine.verifiers.ranked import Ranked
from specops.engine.verifiers.traversal import Traversal
from specops.engine.verifiers.verifier import Verifier

MOST, EXACT = 4, 1e-12
PLAIN, GREEDY = Sampling(temperature=1.0, max_tokens=12), Sampling(temperature=0.0, max_tokens=12)


def drafter_of(q: Table, draw: Draw = Draw.WITHOUT_REPLACEMENT, rows: int = 1) -> Drafter:
    return make_drafter(f"adaptive:{MOST}", draw, [partial(ModelGrower, TableModel(q))], rows, length=12)


def length_by_definition(tokens: list[int], q: Table, acceptance: str) -> int:
    """How many of the tokens after the root are drafted."""
    odds, prefix = 1.0, PROMPT
    for count, token in enumerate(tokens, start=1):
        here = q(prefix)
        odds *= {
            "drawn": (1 + float((here * here).sum())) / 2,
            "sure": float(here.max()),
            "greedy": sqrt(float(here.max())),
        }[acceptance]
        if odds < Adaptive.worth_a_pass or count == MOST:
            return count
        prefix = (*prefix, token)
    raise AssertionError("it ended before it should have")


@pytest.fixture(autouse=True)
def _choosy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft of three tokens is never flat: so that chains end anywhere, more is asked of them."""
    monkeypatch.setattr(Adaptive, "worth_a_pass", 0.7)


@pytest.mark.parametrize(
    ("acceptance", "sampling", "draw"),
    [
        ("drawn", PLAIN, Draw.WITHOUT_REPLACEMENT),
        ("drawn", PLAIN, Draw.IID),
        ("sure", PLAIN, Draw.DETERMINISTIC),
        ("greedy", GREEDY, Draw.WITHOUT_REPLACEMENT),
        ("greedy", GREEDY, Draw.DETERMINISTIC),
    ],
)
def test_it_ends_where_it_is_unsure(acceptance: str, sampling: Sampling, draw: Draw) -> None:
    lengths = set()
    for seed in range(9):
        q = random_table(seed, support=1 + seed % 3)
        for tree, _ in drafted(drafter_of(q, draw), sampling):
            assert len(tree) - 1 == length_by_definition(tree.tokens[1:], q, acceptance)
            lengths.add(len(tree) - 1)
    assert len(lengths) > 1


def test_a_batch_whose_chains_end_one_by_one() -> None:
    """Each gets what it would get alone, whatever its neighbours do."""
    tables = {(0, 1): random_table(3), (1, 0): random_table(4, support=1), (2, 2): random_table(5)}

    def q(prefix: Prefix) -> Tensor:
        return tables[prefix[0], prefix[1]](prefix)

    def trees_of(prompts: list[tuple[int, int]]) -> list[TokenTree]:
        drafter = drafter_of(q, rows=3)
        sequences = []
        for row, prompt in enumerate(prompts):
            sequences.append(
                Sequence(row, list(prompt), GREEDY, room=12, chunk=256, eos=frozenset(), tokenizer=None)
            )
            sequences[-1].row = row
        return drafter.draft(sequences)

    together = trees_of(list(tables))
    alone = [trees_of([prompt])[0] for prompt in tables]
    assert [tree.tokens for tree in together] == [tree.tokens for tree in alone]
    assert len({len(tree) for tree in together}) > 1


@pytest.mark.parametrize(
    ("verifier", "draw"),
    [
        (Traversal(), Draw.IID),
        (Traversal(), Draw.WITHOUT_REPLACEMENT),
        (Ranked(), Draw.WITHOUT_REPLACEMENT),
        (MultiStep(), Draw.WITHOUT_REPLACEMENT),
        (Naive(), Draw.WITHOUT_REPLACEMENT),
        (Naive(), Draw.DETERMINISTIC),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_lossless(verifier: Verifier, draw: Draw) -> None:
    p, lengths = random_table(0), set()
    for seed in (1, 2):
        trees = drafted(drafter_of(random_table(seed), draw), PLAIN)
        found = verified(trees, verifier, p, MOST + 1)
        assert total_variation(found, continuations(p, PROMPT, MOST + 1)) < EXACT
        lengths |= {len(tree) for tree, _ in trees}
    assert len(lengths) > 1


def test_greedily_it_is_argmax_decoding() -> None:
    for seed in range(5):
        p = random_table(seed)
        for tree, _ in drafted(drafter_of(random_table(50 + seed)), GREEDY):
            result = verify_greedy(tree, target_rows(tree, p).argmax(-1).tolist())
            prefix = PROMPT
            for token in [*(tree.tokens[node] for node in result.path), result.bonus]:
                assert token == int(p(prefix).argmax())
                prefix = (*prefix, token)


class Peeking(Adaptive):
    """Ends by what it has just drawn, without it."""

    def branch(self, trees: list[PartialTree], depth: int, logits: Tensor) -> None:
        super().branch(trees, depth, logits)
        for tree in trees:
            if depth and float(tree.q[depth][0][tree.tokens[-1]]) < 0.5:
                tree.tokens.pop()
                tree.plan = tree.plan.to_depth(depth)


def test_to_drop_a_token_for_what_it_is_is_wrong() -> None:
    drafter = Peeking(2, Draw.WITHOUT_REPLACEMENT, partial(ModelGrower, TableModel(random_table(1))), 1, 12)
    p = random_table(0)
    found = verified(drafted(drafter, PLAIN), Traversal(), p, 3)
    assert total_variation(found, continuations(p, PROMPT, 3)) > 0.01
