"""The check of what a tree was drawn from is one compiled call: against its plain definition."""

from __future__ import annotations

import pytest
from drawn_nodes import Nodes, put_together
from hypothesis import given
from hypothesis import strategies as some

from specops.edge.link import DrawDistributions
from specops.engine.cpu import ops, reference

VOCABULARY, MOST = 6, 4

numbers = some.integers(0, VOCABULARY)
weights = some.sampled_from([0, 1, 1, 1, 2**16 - 1])


@some.composite
def trees(draw: some.DrawFn) -> tuple[DrawDistributions, tuple[int, ...], tuple[int, ...]]:
    """Good and bad ones: mostly one thing is wrong with them, or none."""
    nodes = draw(some.lists(some.integers(0, 9), min_size=1, max_size=4, unique=True))
    given: Nodes = {}
    for node in nodes:
        tokens = draw(some.lists(some.integers(0, VOCABULARY - 1), min_size=1, max_size=5, unique=True))
        given[node] = tuple(sorted(tokens)), (1,) * len(tokens)
    children = [(node, draw(some.sampled_from(given[node][0]))) for node in nodes]
    at = draw(some.sampled_from(nodes))
    place = draw(some.integers(0, len(given[at][0]) - 1))
    tokens, its = list(given[at][0]), list(given[at][1])
    tokens[place], its[place] = draw(numbers | some.just(tokens[place])), draw(weights)
    given[at] = tuple(tokens), tuple(its)
    children = draw(some.permutations(children))
    del children[: draw(some.sampled_from([0, 0, 0, 1]))]
    return put_together(given), tuple(t for _, t in children), tuple(n for n, _ in children)


def is_sound(
    drawn: DrawDistributions, tokens: tuple[int, ...], parents: tuple[int, ...], vocabulary: int, most: int
) -> bool:
    parts = drawn.nodes, drawn.sizes, drawn.tokens, drawn.weights, tokens, parents
    return ops.draws_are_sound(*parts, vocabulary=vocabulary, most=most)


@given(trees())
def test_it_is_its_plain_definition(tree: tuple[DrawDistributions, tuple[int, ...], tuple[int, ...]]) -> None:
    drawn, *rest = tree
    parts = drawn.nodes, drawn.sizes, drawn.tokens, drawn.weights, *rest
    exact = reference.draws_are_sound(*parts, vocabulary=VOCABULARY, most=MOST)
    assert is_sound(*tree, VOCABULARY, MOST) == exact


@pytest.mark.parametrize(
    ("nodes", "tokens", "parents", "expected"),
    [
        ({0: ((2, 4), (1, 2)), 3: ((4,), (1,))}, (2, 4, 4), (0, 3, 0), True),
        ({0: ((2, 4), (1, 2)), 3: ((4,), (1,))}, (2, 2), (0, 3), False),
        ({0: ((4, 2), (1, 2))}, (2,), (0,), False),
        ({0: ((2, 2), (1, 2))}, (2,), (0,), False),
        ({0: ((2, 4), (1, 0))}, (2,), (0,), False),
        ({0: ((2, 6), (1, 1))}, (2,), (0,), False),
        ({0: ((2, 2**32 - 1), (1, 1))}, (2,), (0,), False),
        ({0: ((0, 1, 2, 3), (1, 1, 1, 1))}, (2,), (0,), True),
        ({0: ((0, 1, 2, 3, 4), (1, 1, 1, 1, 1))}, (2,), (0,), False),
        ({0: ((), ())}, (), (), False),
        ({0: ((2,), (1,))}, (2, 2), (0, 1), False),
        ({0: ((2,), (1,)), 1: ((2,), (1,))}, (2,), (0,), False),
        ({}, (), (), True),
    ],
)
def test_each_thing_that_can_be_wrong(
    nodes: Nodes, tokens: tuple[int, ...], parents: tuple[int, ...], expected: bool
) -> None:
    assert is_sound(put_together(nodes), tokens, parents, VOCABULARY, MOST) == expected


def test_no_client_keeps_the_others_waiting_by_a_long_list() -> None:
    """Each node is held against all before it: of so many that would be minutes."""
    many = 1_000_000
    drawn = DrawDistributions(tuple(range(many)), (1,) * many, bytes(4 * many), b"\1\0" * many)
    assert not is_sound(drawn, (0,), (0,), VOCABULARY, MOST)


def test_the_highest_token_of_the_largest_vocabulary() -> None:
    highest = 2**32 - 2
    assert is_sound(put_together({0: ((0, highest), (1, 1))}), (highest,), (0,), highest + 1, MOST)
    assert not is_sound(put_together({0: ((0, highest), (1, 1))}), (highest,), (0,), highest, MOST)


@pytest.mark.parametrize(
    "drawn",
    [
        DrawDistributions((0, 0), (1, 1), bytes(8), b"\1\0\1\0"),
        DrawDistributions((0,), (1, 1), bytes(8), b"\1\0\1\0"),
        DrawDistributions((0,), (2,), bytes(4), b"\1\0\1\0"),
        DrawDistributions((0,), (1,), bytes(4), b"\1\0\1"),
        DrawDistributions((0,), (1,), bytes(3), b"\1\0"),
    ],
)
def test_what_does_not_fit_together(drawn: DrawDistributions) -> None:
    assert is_sound(DrawDistributions((0,), (1,), bytes(4), b"\1\0"), (0,), (0,), VOCABULARY, MOST)
    assert not is_sound(drawn, (0,), (0,), VOCABULARY, MOST)
