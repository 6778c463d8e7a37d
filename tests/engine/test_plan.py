"""The planner against brute force: over every tree that can be asked for, and over every tree there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.engine.planner import tree_choice
from specops.engine.tree import Topology
from specops.trees import parse_tree

NODES = 6


@dataclass(frozen=True)
class MadeUp:
    """Seconds: what drafting a level takes, by its nodes, and what verifying takes, by all tokens."""

    fixed: float
    level: float
    node: float
    verify: float

    def step(self, levels: Sequence[int], batch: int = 1) -> float:
        drafting = sum(self.level + self.node * nodes * batch for nodes in levels)
        return self.fixed + drafting + self.verify * batch * (1 + sum(levels))


@st.composite
def tables(draw: st.DrawFn) -> list[list[float]]:
    """Acceptance by depth and rank; a row adds up to at most 1."""
    depth, ranks = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rows = []
    for _ in range(depth):
        weights = [draw(st.floats(0, 1)) for _ in range(ranks)]
        share = draw(st.floats(0, 1)) / max(sum(weights), 1.0)
        rows.append([weight * share for weight in weights])
    return rows


@st.composite
def costs(draw: st.DrawFn) -> MadeUp:
    return MadeUp(*(draw(st.floats(least, 1)) for least in (0.01, 0, 0, 0)))


def expected_along(topology: Topology, rates: Sequence[Sequence[float]]) -> float:
    """By the definition: a node is accepted with the product of the rates on its path."""
    accepted = [1.0]
    for node, parent in enumerate(topology.parents[1:], start=1):
        accepted.append(accepted[parent] * rates[topology.depth[node] - 1][topology.rank[node]])
    return sum(accepted)


def every_tree(nodes: int, depth: int, ranks: int) -> Iterator[Topology]:
    """Every shape of up to so many nodes below the root."""

    def grow(parents: tuple[int, ...], left: int) -> Iterator[tuple[int, ...]]:
        yield parents
        if left:
            for parent in range(max(parents[-1], 0), len(parents)):
                yield from grow((*parents, parent), left - 1)

    for parents in grow((-1,), nodes):
        topology = Topology(parents)
        if max(topology.depth) <= depth and max(map(len, topology.children)) <= ranks:
            yield topology


def test_every_expansion_is_looked_at() -> None:
    found = tree_choice.expansions(NODES, 3, 4)
    every = [w for depth in (1, 2, 3) for w in product(range(1, 5), repeat=depth)]
    assert sorted(found) == sorted(w for w in every if sum(tree_choice.levels(w)) <= NODES)
    assert len(set(found)) == len(found)


@given(tables(), costs(), st.integers(1, 4))
def test_choice_is_the_best_there_is(rates: list[list[float]], made: MadeUp, batch: int) -> None:
    chosen = tree_choice.choose(rates, made, batch=batch, most_nodes=NODES)
    best = 1 / made.step((), batch)
    for depth in range(1, len(rates) + 1):
        for widths in product(range(1, len(rates[0]) + 1), repeat=depth):
            topology = Topology.expansion(widths)
            if len(topology) - 1 > NODES:
                continue
            sizes = [topology.depth.count(level) for level in range(1, depth + 1)]
            best = max(best, expected_along(topology, rates) / made.step(sizes, batch))
    assert chosen.tokens_per_second == pytest.approx(best)
    spec = parse_tree(chosen.tree)
    if spec.kind != "none":
        assert chosen.tokens_per_step == pytest.approx(expected_along(Topology.expansion(spec.widths), rates))
        assert spec.nodes <= NODES


@given(tables(), st.integers(0, NODES))
def test_no_shape_beats_the_ceiling_and_one_reaches_it(rates: list[list[float]], nodes: int) -> None:
    trees = every_tree(nodes, len(rates), len(rates[0]))
    assert tree_choice.ceiling(rates, nodes) == pytest.approx(
        max(expected_along(tree, rates) for tree in trees)
    )


def test_a_tree_that_does_not_pay_is_not_drafted() -> None:
    accepted = [[0.6, 0.1]] * 4
    dear = MadeUp(fixed=1.0, level=0.7, node=0.0, verify=0.0)
    assert tree_choice.choose(accepted, dear).tree == "none"
    cheap = MadeUp(fixed=1.0, level=0.1, node=0.0, verify=0.0)
    assert tree_choice.choose(accepted, cheap).tree.startswith("expand")  # further ranks cost nothing
    wide = MadeUp(fixed=1.0, level=0.1, node=0.0, verify=0.1)
    assert (
        tree_choice.choose(accepted, wide).tree == "chain:2"
    )  # 1.96 tokens in 1.5 s; 2.18 in 1.7 for chain:3


def test_a_batch_that_fills_the_machine_drafts_less() -> None:
    """Where every token costs as much as the next, speculation pays alone and not in a batch."""
    made = MadeUp(fixed=1.0, level=0.05, node=0.0, verify=0.05)
    assert tree_choice.choose([[0.6]] * 5, made, batch=1).tree != "none"
    assert tree_choice.choose([[0.6]] * 5, made, batch=64).tree == "none"


def test_without_rates_there_is_no_draft() -> None:
    assert tree_choice.choose([], MadeUp(1, 1, 1, 1)) == tree_choice.TreeOption("none", 1.0, 2.0)
