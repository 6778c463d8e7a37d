"""Speed-ups of visits: paired by prompt and round, the same however the visits are listed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_visits import ARMS, visits

from specops.load.arrivals import Level
from specops.phases.ab.records import VisitRecord
from specops.phases.ab.speedups import levels_of, pair_up, speedups, throughput

ONE = Level(concurrency=1)
shapes = st.fixed_dictionaries(
    {
        "prompts": st.integers(8, 30),
        "rounds": st.integers(1, 3),
        "design": st.sampled_from(["interleaved", "abba-restart"]),
        "concurrency": st.sampled_from([(1,), (1, 4)]),
        "noise": st.sampled_from([0.0, 0.2]),
        "seed": st.integers(0, 9),
    }
)


def without_row(visit: VisitRecord, prompt: str, **fields: object) -> VisitRecord:
    """The visit with another end of the request for `prompt`."""
    rows = tuple(row.model_copy(update=fields) if row.prompt == prompt else row for row in visit.cell.rows)
    return visit.model_copy(update={"cell": visit.cell.model_copy(update={"rows": rows})})


@given(shapes, st.floats(0.5, 3.0))
def test_swapping_the_arms_inverts_the_speed_up(shape, speed) -> None:
    made = visits(speed, **shape)
    there = speedups(pair_up(made, "standard", "draft", shape["design"]), ONE, 0.95)
    back = speedups(pair_up(made, "draft", "standard", shape["design"]), ONE, 0.95)
    assert there.e2e is not None
    assert back.e2e is not None
    assert there.e2e.estimate == pytest.approx(1 / back.e2e.estimate)
    # The bootstrap's resamples are the same, and its scale is the logarithm's.
    assert there.e2e.low == pytest.approx(1 / back.e2e.high)
    assert there.e2e.high == pytest.approx(1 / back.e2e.low)
    assert there.ttft_change_ms == pytest.approx(-(back.ttft_change_ms or 0))


@given(shapes, st.randoms(use_true_random=False))
def test_the_order_of_the_records_changes_nothing(shape, shuffler: random.Random) -> None:
    made = visits(1.4, **shape)
    shuffled = list(made)
    shuffler.shuffle(shuffled)
    assert pair_up(shuffled, *ARMS, shape["design"]) == pair_up(made, *ARMS, shape["design"])
    found = (throughput(records, *ARMS, ONE, shape["design"], 0.95) for records in (made, shuffled))
    assert next(found) == next(found)


@given(shapes, st.sets(st.integers(0, 200)))
def test_lost_visits_cost_their_pairs_and_no_more(shape, lost) -> None:
    made = visits(2.0, **shape | {"noise": 0.0})
    kept = [visit for number, visit in enumerate(made) if number not in lost]
    pairs = pair_up(kept, *ARMS, shape["design"])
    assert {pair.prompt for pair in pairs.all} <= {row.prompt for visit in kept for row in visit.cell.rows}
    for pair in pairs.all:
        assert pair.mean("e2e")[0] / pair.mean("e2e")[1] == pytest.approx(2.0)
    for level in levels_of(kept):
        found = speedups(pairs, level, 0.95)
        assert found.prompts == len(pairs.at(level).all)
        assert (found.e2e is None) == (found.prompts < 8)


def test_a_round_counts_only_where_both_arms_answered() -> None:
    made = visits(2.0, prompts=8, noise=0.0)
    first = next(visit for visit in made if visit.arm == "draft" and visit.round == 0)
    prompt = first.cell.rows[0].prompt
    spoilt = [
        without_row(visit, prompt, error="cut", e2e_ms=1e6) if visit is first else visit for visit in made
    ]
    pair = next(pair for pair in pair_up(spoilt, *ARMS, "interleaved").all if pair.prompt == prompt)
    assert len(pair.e2e) == 1
    assert pair.mean("e2e")[0] / pair.mean("e2e")[1] == pytest.approx(2.0)


def test_an_answer_that_came_all_at_once_has_no_tpot_to_pair() -> None:
    made = visits(2.0, prompts=9, noise=0.0)
    prompt = made[0].cell.rows[0].prompt
    found = speedups(
        pair_up([without_row(v, prompt, tpot_ms=None) for v in made], *ARMS, "interleaved"), ONE, 0.9
    )
    assert (found.e2e.n, found.tpot.n) == (9, 8)


def test_throughput_is_paired_by_block() -> None:
    made = visits(2.0, prompts=40, noise=0.05)
    found = throughput(made, *ARMS, ONE, "interleaved", 0.95)
    assert found.blocks == 8  # 4 stages of 10, in blocks of 4 and 6
    assert found.ratio.low < 2.0 < found.ratio.high
    assert found.estimate == pytest.approx(found.ratio.estimate, rel=1e-4)
    few = throughput([v for v in made if v.stage == 0], *ARMS, ONE, "interleaved", 0.95)
    assert (few.ratio, round(few.estimate)) == (None, 2)


def test_throughput_leaves_out_visits_that_ended_early() -> None:
    made = visits(2.0, prompts=40, noise=0.0)
    cut = [
        visit.model_copy(update={"cell": visit.cell.model_copy(update={"complete": False, "wall_s": 99.0})})
        if (visit.stage, visit.block) == (0, 0)
        else visit
        for visit in made
    ]
    assert throughput(cut, *ARMS, ONE, "interleaved", 0.95).estimate == pytest.approx(2.0, rel=1e-4)
    nothing = [v.model_copy(update={"cell": v.cell.model_copy(update={"tokens": None})}) for v in made]
    assert throughput(nothing, *ARMS, ONE, "interleaved", 0.95) is None


def test_restarts_widen_the_interval() -> None:
    """Each start of an arm has an effect of its own, which prompts are no independent evidence on."""

    def disturbed(visit, prompt, at):
        return {"slower": 1.3 if visit.arm == "draft" and visit.round else 1.0}

    made = visits(1.5, design="abba-restart", looks=1, answer=disturbed)
    restarted = speedups(pair_up(made, *ARMS, "abba-restart"), ONE, 0.95).e2e
    side_by_side = speedups(pair_up(made, *ARMS, "interleaved"), ONE, 0.95).e2e
    assert restarted.estimate == side_by_side.estimate
    assert restarted.high / restarted.low > 2 * side_by_side.high / side_by_side.low


def test_the_throughput_of_a_stream_counts_its_tokens() -> None:
    made = visits(1.5, prompts=12)
    longer = []
    for visit in made:
        rows = tuple(row.model_copy(update={"tokens": 2 * (row.tokens or 0)}) for row in visit.cell.rows)
        cell = visit.cell.model_copy(update={"rows": rows})
        longer.append(visit.model_copy(update={"cell": cell}) if visit.arm == "draft" else visit)
    same, doubled = (speedups(pair_up(v, *ARMS, "interleaved"), ONE, 0.95) for v in (made, longer))
    assert same.stream_throughput is not None
    assert doubled.stream_throughput is not None
    assert doubled.stream_throughput.estimate == pytest.approx(2 * same.stream_throughput.estimate)
    assert doubled.e2e == same.e2e
