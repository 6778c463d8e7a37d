"""What the planner knows: what was accepted, what steps took, and what is predicted from both."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_planner import FORM, NODES, Truth, world

from specops.engine.planner import tree_choice
from specops.engine.planner.acceptance_counts import MEMORY, CopyAcceptance, Lengths, TreeAcceptance
from specops.engine.planner.cost_model import MOST_KINDS, CostModel, Curve
from specops.engine.planner.planner import NONE
from specops.engine.planner.tree_choice import Goal
from specops.engine.tree import Topology


def test_what_it_remembers_has_a_bound() -> None:
    paid = CostModel(FORM)
    for batch in range(1, 60):
        for tokens in range(batch, batch * 17, batch):
            paid.verified(batch, tokens, 1e-3, ragged=tokens % 2 == 0)
    assert paid.observed_kinds <= 2 * MOST_KINDS


def test_copies_of_one_sequence_cost_what_a_chain_does() -> None:
    """What ragged trees of a batch take says nothing of one sequence alone."""
    paid = CostModel(FORM)
    for _ in range(9):
        paid.verified(8, 24, 10 * FORM.verify(8, 24), ragged=True)
        paid.verified(1, 1, FORM.verify(1, 1), ragged=False)
    here = paid.batch_costs(1, NODES)
    assert here.copied == here.verify
    assert paid.batch_costs(8, NODES).copied[2] == pytest.approx(10 * FORM.verify(8, 24))


def test_copies_of_a_batch_never_take_less_than_even_trees() -> None:
    """Short copies that were cheap say little of long ones."""
    paid = CostModel(FORM)
    for _ in range(9):
        paid.verified(8, 9, 0.1 * FORM.verify(8, 9), ragged=True)
    here = paid.batch_costs(8, NODES)
    assert here.copied == here.verify


def test_copies_of_one_sequence_take_what_their_lengths_do() -> None:
    """Half of the look-ups give four tokens and half none: the mean of those passes, not that of the mean."""
    copies = CopyAcceptance(4)
    for number in range(8 * MEMORY):
        copies.see(4, 2) if number % 2 else copies.see(0, 0)
    lengths = copies.lengths(4)
    assert lengths == pytest.approx([0.5, 0, 0, 0, 0.5], abs=0.03)
    concave = replace(FORM, target={1: Curve(((1, 1e-3), (2, 2e-3), (5, 2e-3)))})
    here = CostModel(concave).batch_costs(1, 4)
    assert here.copying(2.0, lengths) == pytest.approx(1.5e-3 + here.rest, rel=0.03)


def test_prompts_that_a_draft_has_to_read_are_its_cost() -> None:
    planner = world(0.7).planner
    short, long = Lengths(prompt=8, written=400), Lengths(prompt=2000, written=8)
    chosen = []
    for lengths in (short, long):
        planner.lengths = lengths
        options = planner.options(1)
        chosen.append(options[0].tree)
        assert next(each for each in options if each.tree == NONE).seconds_per_step == Truth(1).step(())
    assert chosen[0] != NONE
    assert chosen[1] == NONE


def test_reading_is_measured() -> None:
    paid = CostModel(FORM)
    growing = FORM.first.seconds(2) + FORM.level.seconds(2)
    for _ in range(9):
        paid.grew(2, (1, 1), growing)
        paid.caught_up(2, (1, 1), 100, growing + 7e-3)
    assert paid.read(100) == pytest.approx(7e-3)


def test_a_gain_within_the_errors_is_none() -> None:
    """What would gain a little is not drafted, what gains much is; and what is drafted is none the slower."""
    planner = world().planner
    none = tree_choice.TreeOption(NONE, 1.0, 1e-3)
    for gain, wanted in ((1.02, NONE), (1.3, "chain:1")):
        options = planner._to_beat([none, tree_choice.TreeOption("chain:1", gain * 2, 2e-3)], 1)
        assert max(options, key=Goal().worth).tree == wanted


def test_a_slowness_that_is_over_is_not_held_against_the_others() -> None:
    """A tree first seen right after the machine was slow would else make all others look slow for ever."""
    paid = CostModel(FORM)
    for slow in (1, 6):
        for _ in range(9):
            paid.verified(1, 1, slow * FORM.verify(1, 1), ragged=False)
    assert paid.slowness == pytest.approx(6)
    for _ in range(12):
        paid.verified(1, 5, FORM.verify(1, 5), ragged=False)
    assert paid.slowness == pytest.approx(1)
    assert paid.batch_costs(1, NODES).plain == pytest.approx(Truth(1).step(()))


def test_rates_follow_what_is_seen_level_by_level() -> None:
    grown, chain = TreeAcceptance(3), Topology.expansion((1, 1, 1))
    for number in range(4 * MEMORY):
        grown.see(chain, [1, 2] if number % 2 else [1])
    (root, *_), (second, *_), (third, *_) = grown.rates
    assert root == pytest.approx(1.0, abs=0.03)
    assert second == pytest.approx(0.5, abs=0.03)
    assert third == pytest.approx(0.0, abs=0.04)
    for row in grown.rates:
        assert sum(row) <= 1 + 1e-12


def test_unseen_depths_are_like_the_one_above() -> None:
    grown, leaf = TreeAcceptance(4), Topology.expansion((1,))
    for number in range(2000):
        grown.see(leaf, [1] if number % 10 else [])
    assert grown.rates[3][0] == pytest.approx(grown.rates[0][0])
    assert grown.rates[0][0] == pytest.approx(0.9, abs=0.03)


def test_copies_say_what_any_number_of_them_brings() -> None:
    copies = CopyAcceptance(8)
    for number in range(4 * MEMORY):
        copies.see(6, 4) if number % 2 else copies.see(0, 0)
    tokens, drafted = copies.expected(3)
    assert tokens == pytest.approx(1 + 3 / 2, abs=0.1)
    assert drafted == pytest.approx(3 / 2, abs=0.1)
    tokens, drafted = copies.expected(8)
    assert tokens == pytest.approx(1 + 4 / 2, abs=0.1)
    assert drafted == pytest.approx(6 / 2, abs=0.15)


def test_break_even_is_where_the_tree_gives_as_much() -> None:
    rates = [[0.5, 0.2], [0.4, 0.1]]
    at = tree_choice.break_even(rates, (2, 1), 2.0)
    assert at is not None
    scaled = [[rate * at / 0.5 for rate in row] for row in rates]
    assert tree_choice.expected_tokens(scaled, (2, 1)) == pytest.approx(2.0)
    assert tree_choice.break_even(rates, (1, 1), 3.5) is None
