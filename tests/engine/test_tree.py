"""Everything that a topology precomputes equals its definition, beyond one 64-bit word as well."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import ancestors, parents

from specops.engine.tree import Draw, TokenTree, Topology


@given(parents())
def test_children_depth_rank(shape: tuple[int, ...]) -> None:
    topology = Topology(shape)
    assert len(topology) == len(shape)
    for node, parent in enumerate(shape):
        children = [other for other, above in enumerate(shape) if above == node]
        assert topology.children[node] == tuple(children)
        assert topology.depth[node] == len(ancestors(shape, node)) - 1
        if parent >= 0:
            assert topology.children[parent][topology.rank[node]] == node
    assert topology.rank[0] == 0
    assert topology.depths.tolist() == list(topology.depth)


@given(parents())
def test_sees_is_the_node_and_its_ancestors(shape: tuple[int, ...]) -> None:
    topology = Topology(shape)
    for node in range(len(shape)):
        assert topology.sees[node].nonzero().flatten().tolist() == sorted(ancestors(shape, node))
    assert torch.equal(topology.mask.sees, topology.sees)


@settings(max_examples=30)
@given(parents(max_nodes=200))
def test_ancestor_words_hold_the_same_bits(shape: tuple[int, ...]) -> None:
    topology = Topology(shape)
    words = topology.ancestors
    assert words.dtype == torch.int64
    assert words.shape == (len(shape), -(-len(shape) // 64))
    for node, row in enumerate(words.tolist()):
        # Python's shift of a negative number keeps its sign, so bit 63 reads like any other.
        bits = [64 * place + bit for place, word in enumerate(row) for bit in range(64) if word >> bit & 1]
        assert bits == sorted(ancestors(shape, node))


def test_the_last_bit_of_a_word_is_its_sign() -> None:
    chain = Topology.expansion((1,) * 63)
    assert chain.ancestors.tolist()[63] == [-1]
    assert Topology.expansion((1,) * 64).ancestors.tolist()[64] == [-1, 1]


@given(parents(max_nodes=30), st.data())
def test_a_level_mask_is_a_part_of_sees(shape: tuple[int, ...], data: st.DataObject) -> None:
    topology = Topology(shape)
    start = data.draw(st.integers(1, len(shape)))
    stop = data.draw(st.integers(start, len(shape)))
    mask = topology.level_mask(start, stop)
    assert mask.sees.tolist() == topology.sees[start:stop, 1:stop].tolist()
    assert topology.level_mask(start, stop) is mask


@given(st.lists(st.integers(1, 4), max_size=4))
def test_expansion_has_k_children_at_each_level(widths: list[int]) -> None:
    topology = Topology.expansion(tuple(widths))
    for node, depth in enumerate(topology.depth):
        expected = widths[depth] if depth < len(widths) else 0
        assert len(topology.children[node]) == expected
    assert list(topology.depth) == sorted(topology.depth)  # level by level


@given(parents(max_nodes=40))
def test_level_order_is_the_same_shape(shape: tuple[int, ...]) -> None:
    topology = Topology.from_parents(shape)
    ordered = topology.level_order
    assert list(ordered.depth) == sorted(topology.depth)
    assert ordered.level_order is ordered
    # Siblings stand side by side in their order: from the root down, both have the same children.
    pairs = [(0, 0)]
    for node, other in pairs:
        children = ordered.children[other]
        assert len(children) == len(topology.children[node])
        assert list(children) == list(range(children[0], children[-1] + 1)) if children else True
        pairs += zip(topology.children[node], children, strict=True)
    assert len({other for _, other in pairs}) == len(shape)


@given(parents(max_nodes=30), st.data())
def test_without_cuts_off_what_is_below(shape: tuple[int, ...], data: st.DataObject) -> None:
    cut = data.draw(st.sets(st.integers(1, len(shape)), max_size=4))
    left = Topology.from_parents(shape).without(cut)
    kept = [node for node in range(len(shape)) if not cut & set(ancestors(shape, node))]
    assert left.parents[0] == -1
    assert [kept[parent] for parent in left.parents[1:]] == [shape[node] for node in kept[1:]]


def test_expansion_of_two_levels() -> None:
    assert Topology.expansion((2, 2)).parents == (-1, 0, 0, 1, 1, 2, 2)
    assert Topology.expansion(()).parents == (-1,)


def test_one_shape_is_one_object() -> None:
    """Rows of a batch are attended together where they share a mask: it must be the same one."""
    assert Topology.from_parents((-1, 0, 1)) is Topology.expansion((1, 1))
    assert Topology.from_parents((-1, 0, 1)).mask is Topology.expansion((1, 1)).mask


@given(parents(max_nodes=40))
def test_path_to_a_node_runs_from_below_the_root(shape: tuple[int, ...]) -> None:
    tree = TokenTree(Topology(shape), list(range(len(shape))), Draw.DETERMINISTIC)
    for node in range(len(shape)):
        assert tree.path_to(node) == ancestors(shape, node)[::-1][1:]


def test_a_tree_has_a_token_for_each_node() -> None:
    with pytest.raises(ValueError, match="2 tokens for a tree of 3 nodes"):
        TokenTree(Topology.expansion((2,)), [1, 2], Draw.DETERMINISTIC)


def test_a_bare_tree_is_its_root() -> None:
    tree = TokenTree.bare(5)
    assert (len(tree), tree.tokens, tree.topology.children) == (1, [5], ((),))
