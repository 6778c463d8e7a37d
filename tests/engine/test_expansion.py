"""Trees of any shape: lossless by enumeration, and no more run through the draft than has children."""

from __future__ import annotations

from collections.abc import Sequence as Batch
from functools import partial

import pytest
from enumeration import total_variation
from hypothesis import given, settings
from hypothesis import strategies as st
from joint import PROMPT, continuations, drafted, verified
from shapes import parents
from tables import TableModel, random_table
from torch import Tensor

from specops.engine.draft import Level
from specops.engine.drafters import make_drafter
from specops.engine.heads.draft_model import ModelGrower
from specops.engine.request import Sampling
from specops.engine.sequence import Sequence
from specops.engine.tree import Draw, Topology
from specops.engine.verifiers.mss import MultiStep
from specops.engine.verifiers.naive import Naive
from specops.engine.verifiers.ranked import Ranked
from specops.engine.verifiers.traversal import Traversal
from specops.engine.verifiers.verifier import Verifier
from specops.trees import parse_tree

PLAIN = Sampling(temperature=1.0)
DRAWN = [Draw.IID, Draw.WITHOUT_REPLACEMENT]
UNEVEN = ["shape:0,0,1", "shape:0,0,2", "shape:0,1,0,2"]
"""The first child goes on, the second does; and one whose nodes are not numbered level by level."""


@pytest.mark.parametrize(
    "verifier", [Ranked(), Traversal(), MultiStep(), Naive()], ids=lambda verifier: verifier.name
)
@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.name.lower())
@pytest.mark.parametrize("spec", UNEVEN)
def test_uneven_shapes_are_lossless(spec: str, draw: Draw, verifier: Verifier) -> None:
    for support in (
        3,
        2,
        1,
    ):  # with fewer tokens than children, what was to follow the missing ones is missing
        draft = partial(ModelGrower, TableModel(random_table(1, support=support)))
        trees = drafted(make_drafter(spec, draw, [draft], rows=1, length=12), PLAIN)
        assert sum(weight for _, weight in trees) == pytest.approx(1.0)
        p = random_table(0)
        depth = parse_tree(spec).depth
        found = verified(trees, verifier, p, depth + 1)
        assert total_variation(found, continuations(p, PROMPT, depth + 1)) < 1e-12


def test_what_a_short_distribution_leaves_of_a_shape() -> None:
    """Two of three children exist, so the third is missing with all that was to be below it."""
    draft = partial(ModelGrower, TableModel(random_table(1, support=2)))
    drafter = make_drafter("shape:0,0,0,1,3,3", Draw.WITHOUT_REPLACEMENT, [draft], rows=1, length=12)
    for tree, _ in drafted(drafter, PLAIN):
        assert tree.topology.parents == (-1, 0, 0, 1)
        assert tree.q is not None
        assert [len(q) for q in tree.q] == [1, 1, 0, 0]


class Spy(ModelGrower):
    """Counts what is run to grow trees."""

    rows: int = 0

    def grow(self, levels: Batch[Level]) -> Tensor:
        Spy.rows += sum(len(level.tokens) for level in levels)
        return super().grow(levels)


@settings(max_examples=40, deadline=None)
@given(parents(max_nodes=12), st.sampled_from([*DRAWN, Draw.DETERMINISTIC]), st.integers(0, 5))
def test_a_tree_has_the_shape_that_was_asked_for(shape: tuple[int, ...], draw: Draw, room: int) -> None:
    """As deep as the sequence has room for; only nodes that have children are run, each once."""
    topology = Topology.from_parents(shape)
    if len(shape) == 1 or max(map(len, topology.children)) > 3:  # of a vocabulary of three
        return
    spec = "shape:" + ",".join(map(str, shape[1:]))
    model = TableModel(random_table(1), max_positions=24)
    drafter = make_drafter(spec, draw, [partial(Spy, model)], rows=1, length=24)
    sampling = Sampling(temperature=1.0, max_tokens=room + 1, seed=0)
    sequence = Sequence(0, [0, 1], sampling, room=20, chunk=256, eos=frozenset(), tokenizer=None)
    sequence.row, Spy.rows = 0, 0
    (tree,) = drafter.draft([sequence])
    levels = topology.level_order
    kept = [parent for node, parent in enumerate(levels.parents) if levels.depth[node] <= room]
    assert tree.topology == Topology(tuple(kept))
    inner = [node for node in range(1, len(tree)) if tree.topology.children[node]]
    assert len(inner) == Spy.rows
    for node, children in enumerate(tree.topology.children):
        found = [tree.tokens[child] for child in children]
        if draw is not Draw.IID:
            assert len(set(found)) == len(found)
        if draw is Draw.DETERMINISTIC:
            prefix = (0, 1, *(tree.tokens[step] for step in tree.path_to(node)))
            assert found == random_table(1)(prefix).argsort(descending=True)[: len(found)].tolist()
