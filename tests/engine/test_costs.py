"""From what the probes took to what any tree takes: against a machine whose costs are known."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.engine.load import Pair
from specops.engine.planner import step_costs as measured
from specops.engine.planner.cost_model import Curve
from specops.engine.planner.step_costs import (
    PROBES,
    Costs,
    Probes,
    ProbeStep,
    Reading,
    Readings,
    costs_of,
    sheet_of,
)
from specops.engine.planner.tree_choice import levels
from specops.errors import UsageError
from specops.trees import parse_tree


def known_step(tree: str, *, slow: float = 1.0) -> ProbeStep:
    """A machine in which every part is linear, in seconds."""
    spec = parse_tree(tree)
    if not spec.needs_draft:
        return ProbeStep(0.0, slow * (1.0 + 0.1 * spec.nodes), 0.05, spec.nodes)
    sizes = levels(spec.widths)
    draft = 0.3 + sum(0.2 + 0.01 * nodes for nodes in sizes[:-1])
    forward = slow * (1.0 + 0.1 * sum(sizes)) + 0.02 * (len(sizes) - 1)
    return ProbeStep(draft, forward, 0.15 if max(sizes) > 1 else 0.05, spec.nodes)


def known(*, opens_bare: bool = False, slow: float = 1.0) -> Readings:
    readings = {}
    for tree in PROBES:
        step = known_step(tree, slow=slow)
        reads = 3.0 + (0.5 if parse_tree(tree).needs_draft else 0.0)
        usual = 3 if opens_bare and parse_tree(tree).needs_draft else 4
        nothing_found = ProbeStep(0.0, slow, 0.05, 0)
        steps = (step, step, step, nothing_found, nothing_found, nothing_found)
        kept = steps if tree == measured.COPYING else steps[:3]
        readings[tree] = Reading(reads + usual * step.whole, 4, kept)
    return readings


@pytest.mark.parametrize("opens_bare", [False, True])
def test_known_costs_come_back(opens_bare: bool) -> None:
    found = costs_of([known(opens_bare=opens_bare)] * 3, opens_bare=opens_bare)
    assert found.plain == pytest.approx(known_step("none").whole)
    assert (found.prompt, found.prompt_drafted) == pytest.approx((3.0, 3.5))
    for tree in ("chain:1", "chain:3", "chain:7", "expand:3,1", "expand:2,2,1", "expand:1,1,4", "expand:8"):
        sizes = levels(parse_tree(tree).widths)
        assert found.step(sizes) == pytest.approx(known_step(tree).whole)


def test_one_disturbed_round_of_three_changes_nothing() -> None:
    disturbed = {
        tree: replace(
            reading, opening=9 * reading.opening, steps=tuple(step.over(0.1) for step in reading.steps)
        )
        for tree, reading in known().items()
    }
    calm, found = (
        costs_of(rounds, opens_bare=False) for rounds in ([known()], [known(), disturbed, known()])
    )
    assert found.step((1, 1, 1)) == pytest.approx(calm.step((1, 1, 1)))
    assert (found.plain, found.prompt) == pytest.approx((calm.plain, calm.prompt))


def test_context_lies_between_the_two_that_were_measured() -> None:
    sheet = sheet_of((100, 300), [(known(), known(slow=2.0))], opens_bare=False)
    assert sheet.at_context(100) == sheet.at_context(0) == sheet.at_short
    assert [sheet.at_context(context).plain for context in (300, 500)] == pytest.approx([2.05, 3.05])
    middle = sheet.at_context(200)
    assert middle.plain == pytest.approx(1.55)
    assert middle.target.seconds(3) == pytest.approx(1.8)


def test_copied_drafts_cost_what_they_drafted() -> None:
    sheet = sheet_of((100, 300), [(known(), known())], opens_bare=False)
    assert sheet.copied is not None
    assert [sheet.copied.seconds(count) for count in (0, 4, 8)] == pytest.approx([1.05, 1.45, 1.85])
    nothing = {
        tree: replace(reading, steps=reading.steps[3:]) if tree == measured.COPYING else reading
        for tree, reading in known().items()
    }
    assert sheet_of((100, 300), [(nothing, nothing)], opens_bare=False).copied is None


def test_a_batch_costs_what_as_many_tokens_do() -> None:
    found = costs_of([known()], opens_bare=False)
    # two sequences of chain:2: passes over 2 and 2 nodes, and the target's over 6 tokens
    assert found.step((1, 1), batch=2) == pytest.approx(0.3 + 0.01 + 0.22 + 1.5 + 0.02 + 0.05)
    assert found.step((), batch=5) == pytest.approx(1.4 + 0.05)


@given(st.dictionaries(st.integers(1, 40), st.lists(st.floats(0, 10), min_size=1, max_size=3), min_size=2))
def test_a_curve_never_falls_and_keeps_the_mean(found: dict[int, list[float]]) -> None:
    curve = Curve.rising(found)
    seconds = [value for _, value in curve.points]
    assert [count for count, _ in curve.points] == sorted(found)
    assert all(after >= before - 1e-9 for before, after in pairwise(seconds))
    weighted = sum(len(found[count]) * value for count, value in curve.points)
    assert weighted == pytest.approx(sum(map(sum, found.values())), abs=1e-6)
    assert curve.seconds(0) == pytest.approx(seconds[0])


def test_beyond_its_end_a_curve_goes_on_as_it_ended() -> None:
    curve = Curve(((1, 1.0), (2, 1.5), (4, 3.5)))
    assert [curve.seconds(count) for count in (1, 1.5, 3, 6)] == pytest.approx([1.0, 1.25, 2.5, 5.5])


def test_probes_read_a_real_pair(tiny_pair: tuple[Path, Path]) -> None:
    """Whatever the clock says: every probe took its turns, and prompts of two lengths give a whole sheet."""
    pair = Pair(*tiny_pair)
    probes = Probes(pair, temperature=0.0, longest=40)
    short, long = probes.read([5, 6, 7], 0), probes.read(list(range(40)), 1)
    for readings in (short, long):
        assert set(readings) == set(PROBES)
        assert all(len(reading.steps) == measured.STEPS for reading in readings.values())
        assert all(step.drafted == 8 for step in readings["chain:8"].steps)
    sheet = sheet_of((3, 40), [(short, long)], opens_bare=False)
    assert isinstance(sheet.at_context(20), Costs)
    assert sheet.at_context(20).step((1, 1, 1)) > sheet.at_context(20).commit > 0


def test_a_probe_without_room_is_left_out(tiny_pair: tuple[Path, Path]) -> None:
    """Near the end of what the pair holds, the deep probes have no turn in every lap; the others go on."""
    pair = Pair(*tiny_pair)
    probes = Probes(pair, temperature=0.0, longest=pair.positions)
    readings = probes.read([7] * (pair.positions - 40), 0)
    assert len(readings["none"].steps) == measured.STEPS
    nothing = probes.read([7] * (pair.positions - 3), 0)
    with pytest.raises(UsageError, match="no prompt leaves it room"):
        costs_of([nothing], opens_bare=False)
    assert costs_of([nothing, probes.read([7, 8, 9], 0)], opens_bare=False).plain > 0
