"""The planner, simulated: what it chooses, when it changes, what it spends on asking."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from specops.engine.planner import tree_choice
from specops.engine.planner.cost_model import BaseCosts, CostModel, Curve
from specops.engine.planner.planner import EXPLORED, NONE, Planner, StepObservation
from specops.engine.planner.tree_choice import Goal
from specops.engine.tree import Topology
from specops.trees import parse_tree

NODES = 8
FORM = BaseCosts(
    target={
        batch: Curve(((batch, 1e-3 + 2e-4 * batch), (17 * batch, 1e-3 + 2e-4 * 17 * batch)))
        for batch in (1, 4, 16)
    },
    first=Curve(((1, 3e-4), (16, 1e-3))),
    level=Curve(((1, 2e-4), (16, 5e-4))),
    rest=Curve(((1, 1e-4), (16, 3e-4))),
)


@dataclass
class World:
    """A machine and a traffic: what a step takes, and what is accepted of its trees."""

    planner: Planner
    first: float = 0.7
    """Accepted of first children; of each further rank a fifth of the one before."""

    copied: float = 0.0
    """Of copied tokens."""

    noise: float = 0.05
    slow: float = 1.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    seconds: float = 0.0
    tokens: int = 0
    usual: Counter[str] = field(default_factory=Counter)
    turns: list[str] = field(default_factory=list)

    def run(self, batch: int, steps: int) -> None:
        for _ in range(steps):
            self._step(batch)

    def _step(self, batch: int) -> None:
        turn = self.planner.turn(batch, behind=lambda: 1)
        usual = turn.common
        self.turns.append(turn.tree)
        tokens, emitted, drafting = batch, batch, self._drafting(usual, batch)
        if turn.alone and turn.trial is not None:
            drafting += self._drafting(turn.trial, 1)
        for place in range(batch):
            tree = turn.trial if place == 0 and turn.alone and turn.trial is not None else usual
            accepted = self._verify(tree)
            nothing = parse_tree(tree).kind == "ngram" and not self.copied
            tokens, emitted = tokens + (0 if nothing else parse_tree(tree).nodes), emitted + accepted
        spec = parse_tree(usual)
        seen = StepObservation(
            batch,
            turn,
            tree_choice.levels(spec.widths) if spec.needs_draft else (),
            tokens,
            emitted,
            draft=self._noisy(drafting),
            verify=self._noisy(FORM.verify(batch, tokens)),
            rest=self._noisy(FORM.rest.seconds(batch)),
        )
        self.planner.learn(seen)
        self.seconds += seen.seconds
        self.tokens += emitted
        right = next((n for n in range(NODES) if self.rng.random() > self.copied), NODES)
        self.planner.copied(NODES if self.copied else 0, right)

    def _drafting(self, tree: str, batch: int) -> float:
        spec = parse_tree(tree)
        if not spec.needs_draft:
            return 0.0
        further = tree_choice.levels(spec.widths)[:-1]
        return FORM.first.seconds(batch) + sum(FORM.level.seconds(batch * nodes) for nodes in further)

    def _verify(self, tree: str) -> int:
        spec = parse_tree(tree)
        if spec.kind == "ngram":
            return next((n for n in range(spec.nodes) if self.rng.random() > self.copied), spec.nodes)
        topology, path, node = Topology.expansion(spec.widths), list[int](), 0
        while topology.children[node]:
            draw, chance = self.rng.random(), self.first
            for child in topology.children[node]:
                draw, chance, hit = draw - chance, chance / 5, draw < chance
                if hit:
                    path.append(child)
                    break
            else:
                break
            node = path[-1]
        if spec.needs_draft:
            self.planner.grown(topology, path)
        return len(path)

    def _noisy(self, seconds: float) -> float:
        return seconds * self.slow * self.rng.lognormvariate(0, self.noise)


def world(first: float = 0.7, *, copied: float = 0.0, noise: float = 0.05, goal: Goal | None = None) -> World:
    planner = Planner(NODES, grows=True, paid=CostModel(FORM), goal=goal or Goal())
    return World(planner, first, copied, noise)


class Truth:
    """What a step takes in the world."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def step(self, levels: tuple[int, ...], batch: int = 1) -> float:
        further = sum(FORM.level.seconds(self.batch * nodes) for nodes in levels[:-1])
        draft = FORM.first.seconds(self.batch) + further if levels else 0.0
        return draft + FORM.verify(self.batch, self.batch * (1 + sum(levels))) + FORM.rest.seconds(self.batch)


def best_there_is(first: float, batch: int) -> list[tree_choice.TreeOption]:
    rates = [[first, first / 5, first / 25, first / 125]] * 8
    return tree_choice.ranked(rates, Truth(batch), batch=batch, most_nodes=NODES)


@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("first", [0.2, 0.5, 0.9])
def test_what_it_settles_on_is_near_the_best_there_is(first: float, batch: int) -> None:
    made = world(first)
    made.run(batch, 1500)
    made.seconds = made.tokens = 0
    made.run(batch, 500)
    best = best_there_is(first, batch)[0]
    assert made.tokens / made.seconds > 0.95 * batch * best.tokens_per_second


def test_copies_are_drafted_where_they_hold_and_only_there() -> None:
    made = world(0.3, copied=0.9)
    made.run(1, 600)
    assert made.turns[-1].startswith("ngram")
    made.copied = 0.05
    made.run(1, 2000)
    assert not made.turns[-1].startswith("ngram")


def test_noise_alone_changes_nothing_for_long() -> None:
    """The best few trees are within a percent of each other here, and the clock is off by a tenth."""
    made = world(0.6, noise=0.1)
    made.run(4, 1000)
    made.turns.clear()
    made.run(4, 2000)
    plans = made.turns
    changes = sum(one != other for one, other in itertools.pairwise(plans))
    assert changes <= 20


@pytest.mark.parametrize(("first", "batch"), [(0.7, 1), (0.1, 1), (0.3, 4), (0.5, 16)])
def test_asking_costs_no_more_than_its_share(first: float, batch: int) -> None:
    made = world(first)
    made.run(batch, 3000)
    longest = 0.05  # one question may be on its way
    assert made.planner.trial_seconds <= EXPLORED * made.planner.seconds + longest
    assert made.planner.trial_seconds > 0


def test_it_finds_out_that_drafts_have_become_better() -> None:
    made = world(0.05)
    made.run(1, 1000)
    assert made.turns.count(NONE) > 800
    assert made.turns[-1] == NONE
    made.first = 0.9
    made.run(1, 4000)
    assert made.turns[-1] != NONE


def test_without_asking_it_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above tests the questions."""
    monkeypatch.setattr("specops.engine.planner.planner.EXPLORED", 0.0)
    made = world(0.05)
    made.run(1, 1000)
    made.first = 0.9
    made.run(1, 4000)
    assert made.turns[-1] == NONE


def test_drafts_that_have_become_worse_are_dropped() -> None:
    made = world(0.9)
    made.run(1, 500)
    assert made.turns[-1] != NONE
    made.first = 0.05
    made.run(1, 1500)
    assert made.turns[-1] == NONE


@pytest.mark.parametrize("first", [0.5, 0.6, 0.7, 0.8])
def test_a_machine_that_slows_down_changes_little(first: float) -> None:
    """Twice as long for every tree is no reason to take a slower one."""
    made = world(first, noise=0.02)
    made.run(1, 1000)
    speeds = []
    for made.slow in (1.0, 2.0):
        made.seconds, made.tokens = 0.0, 0
        made.run(1, 1000)
        speeds.append(made.tokens / made.seconds)
    assert speeds[1] > 0.95 * speeds[0] / 2


def test_each_batch_size_has_its_own_tree() -> None:
    made = world(0.7)
    for _ in range(40):
        made.run(1, 40)
        alone = made.turns[-1]
        made.run(16, 40)
    assert parse_tree(alone).nodes > parse_tree(made.turns[-1]).nodes


def test_a_limit_on_the_gap_rules_out_long_steps() -> None:
    free, held = world(0.9), world(0.9, goal=Goal(gap=2e-3))
    free.run(1, 1000)
    held.run(1, 1000)
    deep, shallow = parse_tree(free.turns[-1]), parse_tree(held.turns[-1])
    assert 0 < shallow.nodes < deep.nodes
    assert held.planner.options(1)[0].seconds_per_step <= 2e-3
