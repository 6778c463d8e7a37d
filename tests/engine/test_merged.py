"""The union of several drafts: all their paths are in it, and verifying it changes no distribution."""

from __future__ import annotations

from functools import cache, partial

import pytest
from enumeration import total_variation
from hypothesis import given
from hypothesis import strategies as st
from joint import WeighedTrees, continuations, drafted, expected_accepted, verified
from shapes import parents
from tables import TableModel, random_table

from specops.engine.draft import Drafter
from specops.engine.drafters import make_drafter
from specops.engine.drafters.compound import merge
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.request import Sampling
from specops.engine.tree import Draw, TokenTree, Topology
from specops.engine.verifiers.mss import MultiStep
from specops.engine.verifiers.naive import Naive
from specops.engine.verifiers.ranked import Ranked
from specops.engine.verifiers.traversal import Traversal
from specops.engine.verifiers.verifier import Verifier
from specops.errors import UsageError

PLAIN = Sampling(temperature=1.0)
REPEATS = (0, 1, 2, 0, 1)  # so that n-grams find something
VERIFIERS = [MultiStep(), Traversal(), Ranked(), Naive()]
SPECS = [
    "chain:2+ngram:2",
    "ngram:2+expand:2,1",
    "chain:1+chain:2",
    "expand:2+chain:2",
    "dynamic:3:2+expand:2",
    "expand:3+expand:3",
]


def drafter_of(spec: str, draw: Draw, *seeds: int, support: int = 3) -> Drafter:
    drafts = [partial(ModelGrower, TableModel(random_table(seed, support=support))) for seed in seeds]
    return make_drafter(spec, draw, drafts, rows=1, length=12)


@cache
def trees_of(spec: str, draw: Draw, *seeds: int) -> WeighedTrees:
    """For all verifiers: to draw every tree takes longer than to verify it."""
    return drafted(drafter_of(spec, draw, *seeds), PLAIN, REPEATS)


@pytest.mark.quick(16)
@pytest.mark.parametrize("verifier", VERIFIERS, ids=lambda verifier: verifier.name)
@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT], ids=lambda draw: draw.name.lower())
@pytest.mark.parametrize("spec", SPECS)
def test_lossless(spec: str, draw: Draw, verifier: Verifier) -> None:
    drafts = spec.count("chain") + spec.count("expand") + spec.count("dynamic")
    models = 1 if spec == "expand:3+expand:3" else 2  # independent draws of which are 729 trees
    for seed in range(models):
        trees = trees_of(spec, draw, *range(10 * seed + 1, 10 * seed + 1 + drafts))
        p = random_table(seed)
        found = verified(trees, verifier, p, 3, REPEATS)
        assert total_variation(found, continuations(p, REPEATS, 3)) < 1e-12


@pytest.mark.parametrize("verifier", VERIFIERS, ids=lambda verifier: verifier.name)
def test_lossless_where_a_draft_knows_few_tokens(verifier: Verifier) -> None:
    """What one drew the other may draw again, and what is left of a distribution may be nothing."""
    for support, of_target in ((1, 3), (2, 3), (2, 2), (1, 1)):
        drafter = drafter_of("expand:3+expand:2+ngram:2", Draw.WITHOUT_REPLACEMENT, 1, 2, support=support)
        p = random_table(0, support=of_target)
        found = verified(drafted(drafter, PLAIN, REPEATS), verifier, p, 3, REPEATS)
        assert total_variation(found, continuations(p, REPEATS, 3)) < 1e-12


def test_a_second_draft_adds_to_what_is_accepted() -> None:
    p = random_table(0)
    for verifier in VERIFIERS:
        for spec in ("chain:2", "expand:2"):
            alone = drafted(drafter_of(spec, Draw.WITHOUT_REPLACEMENT, 1), PLAIN)
            both = drafted(drafter_of(f"{spec}+chain:2", Draw.WITHOUT_REPLACEMENT, 1, 2), PLAIN)
            assert expected_accepted(both, verifier, p) > expected_accepted(alone, verifier, p) + 0.01


@given(st.data())
def test_the_union_has_every_path_once(data: st.DataObject) -> None:
    trees = []
    for _ in range(data.draw(st.integers(1, 4))):
        shape = data.draw(parents(max_nodes=14))
        tokens = data.draw(st.lists(st.integers(0, 2), min_size=len(shape), max_size=len(shape)))
        trees.append(TokenTree(Topology.from_parents(shape), [0, *tokens[1:]], Draw.DETERMINISTIC))
    union, numbers = merge(trees)
    paths = [path_of(union, node) for node in range(len(union))]
    assert len(set(paths)) == len(paths)
    assert set(paths) == {path_of(tree, node) for tree in trees for node in range(len(tree))}
    for tree, number in zip(trees, numbers, strict=True):
        assert [paths[number[node]] for node in range(len(tree))] == [
            path_of(tree, node) for node in range(len(tree))
        ]
    for node in range(len(union)):
        assert sorted(child for child, _ in union.turns(node)) == list(union.topology.children[node])


def path_of(tree: TokenTree, node: int) -> tuple[int, ...]:
    return tuple(tree.tokens[step] for step in tree.path_to(node))


def test_what_two_drafts_drew_alike_is_one_node_with_two_turns() -> None:
    drafter = drafter_of("expand:3+expand:3", Draw.WITHOUT_REPLACEMENT, 1, 2)
    for tree, _ in drafted(drafter, PLAIN):
        assert len(tree) == 4  # of three tokens each drew all
        assert sorted(child for child, _ in tree.turns(0)) == [1, 1, 2, 2, 3, 3]
        assert [source for _, source in tree.turns(0)] == [0, 0, 0, 1, 1, 1]


def test_trees_that_are_drawn_unlike_are_not_merged() -> None:
    with pytest.raises(ValueError, match="cannot be merged"):
        merge(
            [
                TokenTree(Topology.from_parents((-1,)), [0], draw)
                for draw in (Draw.IID, Draw.WITHOUT_REPLACEMENT)
            ]
        )


def test_as_many_drafts_as_parts_that_need_one() -> None:
    for seeds in ((1,), (1, 2)):
        assert drafter_of("chain:2+ngram:3+chain:1", Draw.IID, *seeds).nodes == 6
    with pytest.raises(UsageError, match="needs 2 drafts, not 3"):
        drafter_of("chain:2+ngram:3+chain:1", Draw.IID, 1, 2, 3)
    with pytest.raises(UsageError, match="needs a draft model"):
        drafter_of("chain:2+ngram:3", Draw.IID)
