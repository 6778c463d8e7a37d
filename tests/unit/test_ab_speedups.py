"""Speed-ups of visits: paired by prompt and round, the same however the visits are listed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_visits import ARMS, visits

from specops.load.arrivals import Level
from specops.phases.ab.speedups import Pair, levels_of, pair_up, speedups, throughput
from specops.phases.ab.visits import VisitRecord

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
    # The interval is symmetric on the logarithm's scale.
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
        blocks = {pair.cluster for pair in pairs.at(level).all}
        if found.prompts < 8 or len(blocks) < 2:
            assert found.e2e is None


def spoil(
    visits_: list[VisitRecord], prompt: str, arm: str, round_: int, **fields: object
) -> list[VisitRecord]:
    return [
        without_row(visit, prompt, **fields) if (visit.arm, visit.round) == (arm, round_) else visit
        for visit in visits_
    ]


def pair_of(visits_: list[VisitRecord], prompt: str) -> Pair:
    return next(pair for pair in pair_up(visits_, *ARMS, "interleaved").all if pair.prompt == prompt)


def test_a_round_counts_where_both_arms_were_sent_the_prompt() -> None:
    made = visits(2.0, prompts=8, noise=0.0)
    gone = next(visit for visit in made if visit.arm == "draft" and visit.round == 0)
    pair = pair_of([visit for visit in made if visit is not gone], gone.cell.rows[0].prompt)
    assert len(pair.e2e) == 1
    assert pair.mean("e2e")[0] / pair.mean("e2e")[1] == pytest.approx(2.0)


def test_a_request_that_failed_fast_counts_as_the_slowest_answer_of_its_class() -> None:
    made = visits(2.0, prompts=12, noise=0.0)
    rows = [row for visit in made for row in visit.cell.rows if row.prompt != "p000"]
    slowest = max(row.e2e_ms for row in rows if row.traffic_class == "edit")
    failed = {"error": "http_500", "e2e_ms": 1.0, "e2e_with_retries_ms": 1.0, "text": "", "tokens": None}
    pair = pair_of(spoil(made, "p000", "draft", 0, **failed), "p000")
    ours = pair.e2e[0][0]
    assert pair.e2e[0] == (ours, max(slowest, ours))
    assert len(pair.e2e) == 2
    assert len(pair.answered) == len(pair.tpot) == len(pair.tokens) == len(pair.characters) == 1
    standard = pair_of(spoil(made, "p000", "standard", 0, **failed), "p000")
    assert standard.e2e[0][0] == max(slowest, *standard.e2e[1])  # neither arm gains by failing


def test_a_request_that_hung_counts_as_long_as_it_lasted() -> None:
    made = visits(2.0, prompts=12, noise=0.0)
    hung = {"error": "timeout", "e2e_ms": 9e5, "e2e_with_retries_ms": 9.5e5}
    assert pair_of(spoil(made, "p000", "draft", 1, **hung), "p000").e2e[1][1] == 9.5e5


def test_the_wait_for_a_refused_attempt_counts() -> None:
    made = visits(2.0, prompts=12, noise=0.0)
    late = spoil(made, "p000", "draft", 1, retries=1, e2e_with_retries_ms=5000.0)
    assert pair_of(late, "p000").e2e[1][1] == 5000.0


def test_prompts_of_a_block_are_one_cluster_of_the_interval() -> None:
    def disturbed(visit, prompt, at):
        return {"slower": 1.4 if visit.arm == "draft" and visit.block % 2 else 1.0}

    pairs = pair_up(visits(1.5, prompts=64, looks=1, noise=0.01, answer=disturbed), *ARMS, "interleaved")
    assert len({pair.cluster for pair in pairs.all}) == 16
    alone = replace(pairs, all=tuple(replace(pair, block=None) for pair in pairs.all))
    by_block, by_prompt = pairs.ratio("e2e", 0.95), alone.ratio("e2e", 0.95)
    assert by_block.estimate == by_prompt.estimate
    assert by_block.high / by_block.low > 1 + 1.5 * (by_prompt.high / by_prompt.low - 1)


def test_a_first_request_is_not_compared_with_a_repeat() -> None:
    made = visits(2.0, prompts=12, looks=1)
    lost = [v for v in made if not (v.arm == "draft" and v.round == 0 and v.block == 0)]
    gone = {row.prompt for v in made if v.block == 0 for row in v.cell.rows}
    pairs = pair_up(lost, *ARMS, "interleaved", first_only={"e2e"})
    assert {pair.prompt for pair in pairs.all} == {f"p{n:03}" for n in range(12)} - gone


def test_only_first_requests_count_where_that_is_wanted() -> None:
    made = visits(2.0, prompts=12, concurrency=(1, 4))
    pairs = pair_up(made, *ARMS, "interleaved", first_only={"e2e", "tpot"}, sent_before={"p003"})
    assert {pair.level.concurrency for pair in pairs.all} == {1}  # at 4 streams all are repeats
    assert {pair.prompt for pair in pairs.all} == {f"p{n:03}" for n in range(12)} - {"p003"}
    assert {(len(pair.e2e), len(pair.tpot), len(pair.ttft)) for pair in pairs.all} == {(1, 1, 2)}
    for pair in pairs.all:
        first = min(
            (v for v in made if pair.prompt in {r.prompt for r in v.cell.rows}), key=lambda v: v.began
        )
        took = {row.prompt: row.e2e_ms for row in first.cell.rows}[pair.prompt]
        assert took in pair.e2e[0]


def test_an_answer_that_came_all_at_once_has_no_tpot_to_pair() -> None:
    made = visits(2.0, prompts=9, looks=1, noise=0.0)
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


def equal_lengths(ours: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[float, ...]]:
    """`equal_length` of one prompt that both arms answered in 120 ms, the first token after 20 ms."""
    fields = {"standard": ours, "draft": theirs}
    usual = {"ttft_ms": 20.0, "e2e_ms": 120.0, "e2e_with_retries_ms": 120.0}
    made = visits(1.0, prompts=8, rounds=1, looks=1, answer=lambda visit, *_: usual | fields[visit.arm])
    return list(pair_up(made, "standard", "draft", "interleaved").all[0].equal_length)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({"tokens": 10}, {"tokens": 10}, [(120.0, 120.0)]),
        ({"tokens": 10}, {"tokens": 20}, [(170.0, 95.0)]),  # 15 tokens: 20 + 1.5 × 100, 20 + 0.75 × 100
        ({"tokens": None, "text": "a" * 40}, {"tokens": 9, "text": "a" * 10}, [(82.5, 270.0)]),
        ({"tokens": 10}, {"tokens": 0}, []),
        ({"tokens": 10, "error": "timeout"}, {"tokens": 10}, []),
        ({"tokens": 10, "ttft_ms": None}, {"tokens": 20}, [(180.0, 95.0)]),
        ({"tokens": 10, "ttft_ms": 130.0}, {"tokens": 20}, [(120.0, 95.0)]),  # a damaged row
    ],
)
def test_times_at_equal_length_scale_what_follows_the_first_token(
    ours: dict[str, Any], theirs: dict[str, Any], expected: list[tuple[float, float]]
) -> None:
    assert equal_lengths(ours, theirs) == [pytest.approx(pair) for pair in expected]
