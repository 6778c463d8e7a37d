"""The order of a comparison is fair whatever is asked for: every arm gets the same, and none goes first."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.config.rollout import Design
from specops.load.arrivals import Level
from specops.phases.ab.visits import FEWEST_BLOCKS, SMALLEST_STAGE, Visit, schedule

LEVELS = [Level(concurrency=n) for n in (1, 2, 3, 8, 16)] + [Level(rate=5.0)]


@st.composite
def asked(draw: st.DrawFn) -> dict:
    classes = draw(st.lists(st.sampled_from(["short", "long", "edit"]), min_size=1, max_size=70))
    return {
        "design": draw(st.sampled_from(get_args(Design))),
        "arms": ["standard", "one", "two", "three"][: draw(st.integers(2, 4))],
        "levels": draw(st.lists(st.sampled_from(LEVELS), min_size=1, max_size=3, unique=True)),
        "prompts": [(f"p{number}", name) for number, name in enumerate(classes)],
        "rounds": draw(st.integers(1, 4)),
        "looks": draw(st.integers(1, 6)),
        "seed": draw(st.integers(0, 9)),
    }


def turns(visits: list[Visit]) -> dict[tuple, list[Visit]]:
    """The visits of each round of each block, which differ in their arms only."""
    found = defaultdict(list)
    for visit in visits:
        found[visit.stage, visit.level, visit.block, visit.round].append(visit)
    return found


@given(asked())
def test_every_arm_gets_every_prompt_in_every_round_of_every_level(plan) -> None:
    given_out = Counter((v.arm, v.level, v.round, p) for v in schedule(**plan) for p in v.prompts)
    wanted = [
        (arm, level, round_, prompt)
        for arm in plan["arms"]
        for level in plan["levels"]
        for round_ in range(plan["rounds"])
        for prompt, _ in plan["prompts"]
    ]
    assert given_out == Counter(wanted)


@given(asked())
def test_pairs_are_complete_and_of_the_same_prompts(plan) -> None:
    for visits in turns(schedule(**plan)).values():
        assert sorted(visit.arm for visit in visits) == sorted(plan["arms"])
        assert len({visit.prompts for visit in visits}) == 1
        assert sorted(visit.order for visit in visits) == list(range(len(plan["arms"])))


@given(asked())
def test_no_visit_comes_twice(plan) -> None:
    visits = schedule(**plan)
    assert len({visit.key for visit in visits}) == len(visits)


@given(asked())
def test_no_arm_goes_first_more_often_by_more_than_one_turn(plan) -> None:
    visits = schedule(**plan)
    # In abba-restart a turn is a period, which holds every block and level.
    by_turn = {(v.stage, v.round) if plan["design"] == "abba-restart" else v.key[:-1]: [] for v in visits}
    for visit in visits:
        key = (visit.stage, visit.round) if plan["design"] == "abba-restart" else visit.key[:-1]
        if visit.arm not in by_turn[key]:
            by_turn[key].append(visit.arm)
    by_level = defaultdict(list)
    for key, arms in by_turn.items():
        by_level[None if plan["design"] == "abba-restart" else key[1]].append(arms)
    for rounds in by_level.values():
        first, last = (Counter(arms[end] for arms in rounds) for end in (0, -1))
        for arm in plan["arms"]:
            assert abs(first[arm] - last[arm]) <= 1
        totals = [sum(arms.index(arm) for arms in rounds) for arm in plan["arms"]]
        assert max(totals) - min(totals) <= len(plan["arms"]) - 1
        if len(rounds) % 2 == 0:
            assert len(set(totals)) == 1


@given(asked())
def test_rounds_go_forwards_and_backwards_in_turn(plan) -> None:
    for (stage, level, block, round_), visits in turns(schedule(**plan)).items():
        if round_:
            before = turns(schedule(**plan))[stage, level, block, round_ - 1]
            assert [v.arm for v in visits] == [v.arm for v in reversed(before)]


@given(asked())
def test_one_period_side_by_side_and_one_arm_a_period_where_servers_restart(plan) -> None:
    visits = schedule(**plan)
    arms_of = [{v.arm for v in period} for _, period in groupby(visits, key=lambda v: v.period)]
    if plan["design"] == "interleaved":
        assert len(arms_of) == 1
    else:
        assert all(len(arms) == 1 for arms in arms_of)
        assert len(arms_of) == len({visit.period for visit in visits})
        stages = 1 + max(visit.stage for visit in visits)
        assert len(arms_of) == stages * plan["rounds"] * len(plan["arms"])


@given(asked())
def test_stages_come_one_after_the_other_with_the_same_mix_of_classes(plan) -> None:
    visits = schedule(**plan)
    stages = [visit.stage for visit in visits]
    assert stages == sorted(stages)
    count = 1 + stages[-1]
    smallest = max(SMALLEST_STAGE, *(level.concurrency or 1 for level in plan["levels"]))
    assert count == max(1, min(plan["looks"], len(plan["prompts"]) // smallest))
    class_of = dict(plan["prompts"])
    prompts: list[set[str]] = [set() for _ in range(count)]
    for visit in visits:
        prompts[visit.stage].update(visit.prompts)
    sizes = [len(names) for names in prompts]
    assert max(sizes) - min(sizes) <= 1
    for name in set(class_of.values()):
        shares = [sum(class_of[prompt] == name for prompt in names) for names in prompts]
        assert max(shares) - min(shares) <= 1


@given(asked())
def test_a_block_fills_the_streams_and_there_are_enough_blocks_where_prompts_suffice(plan) -> None:
    found = schedule(**plan)
    stages = 1 + max(visit.stage for visit in found)
    for level in plan["levels"]:
        blocks = {(v.stage, v.block): len(v.prompts) for v in found if v.level == level}
        streams = level.concurrency or 1
        for (stage, _), size in blocks.items():
            whole = len({p for v in found if v.stage == stage for p in v.prompts})
            assert size >= min(max(2, streams), whole)
        # Uneven stages cost a block each at most.
        enough = len(plan["prompts"]) // max(2, streams)
        assert len(blocks) >= min(FEWEST_BLOCKS, enough - stages)


@pytest.mark.parametrize(
    ("prompts", "streams", "sizes"),
    [
        (64, 1, {4: 16}),
        (64, 8, {8: 8}),  # 16 each would be four blocks
        (128, 8, {16: 8}),
        (64, 4, {8: 8}),
        (32, 1, {4: 8}),
        (16, 1, {2: 8}),
        (16, 8, {8: 2}),  # fewer prompts than streams would not reach the load
        (64, 32, {32: 2}),
    ],
)
def test_the_sizes_of_blocks(prompts, streams, sizes) -> None:
    names = [(f"p{n}", "all") for n in range(prompts)]
    found = schedule("interleaved", ["a", "b"], [Level(streams)], names, rounds=1, looks=4, seed=0)
    assert Counter(len(visit.prompts) for visit in found if visit.arm == "a") == sizes


def test_which_way_a_block_begins_is_drawn_by_lot_one_each_way_of_two() -> None:
    """An order that is known beforehand may keep in step with a machine whose speed is periodic."""

    def begins(seed: int) -> str:
        names = [(f"p{n}", "all") for n in range(64)]
        found = schedule("interleaved", ["a", "b"], [Level(1)], names, rounds=2, looks=4, seed=seed)
        return "".join(v.arm for v in found if v.order == 0 and v.round == 0)

    orders = {begins(seed) for seed in range(40)}
    assert len(orders) > 30
    for order in orders:
        assert all(set(order[at : at + 2]) == {"a", "b"} for at in range(0, 16, 2))


def test_the_seed_alone_decides_the_order() -> None:
    def visits(seed: int) -> list[Visit]:
        prompts = [(f"p{n}", "all") for n in range(32)]
        return schedule("interleaved", ["a", "b"], [Level(1)], prompts, rounds=2, looks=2, seed=seed)

    assert visits(1) == visits(1) != visits(2)


def test_a_b_b_a() -> None:
    prompts = [(f"p{n}", "all") for n in range(8)]
    visits = schedule("abba-restart", ["a", "b"], [Level(1), Level(4)], prompts, rounds=2, looks=2, seed=0)
    periods = ["".join(sorted({v.arm for v in of})) for _, of in groupby(visits, key=lambda v: v.period)]
    assert periods == list("abbabaab")


@pytest.mark.parametrize(("prompts", "sizes"), [(8, [2, 2, 2, 2]), (11, [2, 2, 2, 2, 3]), (3, [3]), (2, [2])])
def test_a_short_rest_joins_the_block_before_it(prompts, sizes) -> None:
    names = [(f"p{n}", "all") for n in range(prompts)]
    visits = schedule("interleaved", ["a"], [Level(2)], names, rounds=1, looks=1, seed=0)
    assert [len(visit.prompts) for visit in visits] == sizes
