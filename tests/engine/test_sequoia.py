"""Sequoia's programme finds the best tree there is: by looking at all trees, and by the planner's ceiling."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.engine.planner import tree_choice
from specops.engine.planner.tree_choice import best_tree, shape_spec
from specops.engine.tree import Topology
from specops.trees import parse_tree

Forest = tuple["Forest", ...]
"""The children of a node, each as its own children."""


@cache
def forests(nodes: int) -> tuple[Forest, ...]:
    """Every ordered forest of exactly so many nodes."""
    if nodes == 0:
        return ((),)
    return tuple(
        (first, *others)
        for below in range(nodes)
        for first in forests(below)
        for others in forests(nodes - 1 - below)
    )


def topology_of(forest: Forest) -> Topology:
    parents = [-1]

    def add(children: Forest, parent: int) -> None:
        for child in children:
            parents.append(parent)
            add(child, len(parents) - 1)

    add(forest, 0)
    return Topology.from_parents(tuple(parents))


@st.composite
def rates(draw: st.DrawFn, depth: int = 4, ranks: int = 4) -> list[list[float]]:
    rows = draw(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=ranks), max_size=depth))
    return [[rate / max(1.0, sum(row)) for rate in row] for row in rows]


def reaches(rates: list[list[float]], tree: Topology) -> Iterator[bool]:
    for node, parent in enumerate(tree.parents[1:], start=1):
        yield tree.depth[parent] < len(rates) and tree.rank[node] < len(rates[tree.depth[parent]])


def tokens_of_shape(rates: list[list[float]], tree: Topology) -> float:
    """Expected tokens of a step with a tree of this shape, the target's own token included. Children
    beyond a row of the rates, and nodes below the last row, are never accepted."""
    reached = [1.0]
    for node, parent in enumerate(tree.parents[1:], start=1):
        depth, rank = tree.depth[parent], tree.rank[node]
        known = depth < len(rates) and rank < len(rates[depth])
        reached.append(reached[parent] * rates[depth][rank] if known else 0.0)
    return sum(reached)


def test_there_are_as_many_trees_as_catalan_says() -> None:
    assert [len(forests(nodes)) for nodes in range(8)] == [1, 1, 2, 5, 14, 42, 132, 429]


@pytest.mark.parametrize("nodes", range(8))
@pytest.mark.parametrize(
    "table",
    [
        [[0.6, 0.2, 0.1]] * 4,
        [[0.9], [0.5, 0.4], [0.3, 0.3, 0.3]],
        [[0.3, 0.6], [0.1, 0.8, 0.05], [0.7], [0.99]],  # ranks need not fall
        [[0.0, 0.5], [0.4]],
        [],
    ],
)
def test_no_tree_is_better(table: list[list[float]], nodes: int) -> None:
    best = max(tokens_of_shape(table, topology_of(forest)) for n in range(nodes + 1) for forest in forests(n))
    found = best_tree(table, nodes)
    assert tokens_of_shape(table, found) == pytest.approx(best, abs=1e-12)
    assert len(found) <= nodes + 1


@given(rates(), st.integers(0, 24))
def test_it_reaches_the_ceiling(table: list[list[float]], nodes: int) -> None:
    tree = best_tree(table, nodes)
    assert tokens_of_shape(table, tree) == pytest.approx(tree_choice.ceiling(table, nodes), abs=1e-12)
    assert len(tree) <= nodes + 1
    assert all(reaches(table, tree))
    assert tree.level_order is tree


@given(rates(depth=3, ranks=3), st.lists(st.integers(1, 3), max_size=3))
def test_expected_tokens_of_an_expansion_are_the_planners(
    table: list[list[float]], widths: list[int]
) -> None:
    widths = widths[: len(table)]
    expected = tree_choice.expected_tokens(table, tuple(widths))
    assert tokens_of_shape(table, Topology.expansion(tuple(widths))) == pytest.approx(expected)


@given(rates(), st.integers(1, 24))
def test_a_rollout_file_can_carry_it(table: list[list[float]], nodes: int) -> None:
    tree = best_tree(table, nodes)
    if len(tree) == 1:
        assert shape_spec(tree) == "none"
    else:
        read = parse_tree(shape_spec(tree))
        assert Topology.from_parents(read.parents) is tree
        assert (read.nodes, read.depth) == (len(tree) - 1, max(tree.depth))
