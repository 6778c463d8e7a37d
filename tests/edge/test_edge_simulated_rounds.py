"""What rounds bring, what is read back, and what follows from the paper's costs."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest

pytest.importorskip("simpy", reason="the edge extra is not installed")
pytest.importorskip("google.protobuf", reason="the edge extra is not installed")

from benchmark_scripts import load_benchmark

from specops.edge.simulation.outcome import outcome, round_bytes, simulate
from specops.edge.simulation.planning import crossing
from specops.edge.simulation.rounds import RoundOutcome, Rounds, Text, of_rates, of_texts
from specops.edge.simulation.setting import EdgeCosts, Setting, straight
from specops.errors import FileError, UsageError

paper = load_benchmark("specedge")
COSTS = EdgeCosts(straight(0.005), straight(0.030), straight(0.004))
LEVELS = 8
FOREVER = 10**9
"""Tokens of a request that does not end."""


def chancy(rate: float = 0.8, hit: float = 0.4) -> Rounds:
    return of_rates([rate] * LEVELS, hit=hit, hit_many=hit, source="chancy")


def test_draws_are_those_of_the_table() -> None:
    rounds, chance, count = chancy(0.6, 0.25), random.Random(3), 40_000
    fates = [rounds.draw(chance, 2, "one") for _ in range(count)]
    for accepted, share in enumerate((0.4, 0.24, 0.36)):
        drawn = sum(fate.accepted == accepted for fate in fates) / count
        assert abs(drawn - share) < 5 * math.sqrt(share * (1 - share) / count)
    hits = sum(fate.run_by == 2 for fate in fates) / count
    assert abs(hits - 0.25) < 5 * math.sqrt(0.25 * 0.75 / count)
    assert {rounds.draw(chance, 0, "one") for _ in range(9)} == {RoundOutcome(0, None)}
    assert {rounds.draw(chance, 3, "none").run_by for _ in range(99)} == {None}


def text() -> Text:
    """Five roots, trees of one level and of two."""
    accepted = ((1, 0, 1, 1, 0), (2, 0, 1, 2, 0))
    one = ((2, 0, 0, 2, 0), (0, 2, 0, 1, 0))
    return Text(accepted, {"one": one, "many": one})


def test_shares_of_texts_are_counted_where_rounds_have_their_roots() -> None:
    rounds = of_texts([text()], "by hand")
    # One level: roots 0, 2, 4. Two: 0, 3.
    assert rounds.accepted == (pytest.approx((1 / 3, 2 / 3)), pytest.approx((0.0, 0.0, 1.0)))
    assert rounds.hit_share("one", 1, 1) == 0.0
    assert rounds.hit_share("one", 1, 2) == pytest.approx(1 / 3)
    assert rounds.hit_share("one", 2, 1) == pytest.approx(1 / 2)
    assert rounds.tokens(2) == pytest.approx(3.0)
    assert Rounds.of_json(json.dumps(rounds.to_json()), "rounds.json") == rounds
    for broken in ([[1, 0], [2]], [[2, 0], [2, 0]], [[], []]):
        read = rounds.to_json() | {"texts": [{"accepted": broken, "run_by": {"one": broken, "many": broken}}]}
        with pytest.raises(FileError, match="invalid rounds"):
            Rounds.of_json(json.dumps(read), "rounds.json")


def test_a_stream_walks_a_text() -> None:
    rounds = of_texts([text()], "by hand")
    setting = Setting(depth="included:1", heads="one", rtt_s=0.0, tokens=FOREVER)
    found = simulate(setting, replace(COSTS, draft=straight(0.015)), rounds, seed=1, seconds=5.0)
    rounds_seen = [verdict for verdict in found.verdicts if not verdict.first]
    # Root 0: 1 of 1, run by the second of two passes, which leaves a level: that is sent from root 2.
    # It has nothing to go on by, and a level is drafted from root 4, after which the text begins again.
    assert [verdict.tokens for verdict in rounds_seen[:6]] == [2, 2, 1, 2, 2, 1]
    assert [verdict.hit for verdict in rounds_seen[:6]] == [True, False, False] * 2
    gaps = [later.time_s - earlier.time_s for earlier, later in pairwise(rounds_seen[:6])]
    assert gaps == pytest.approx([0.030, 0.045, 0.045, 0.030, 0.045])


def test_a_greedy_round_of_32_nodes_is_small() -> None:
    assert 32 * 2 < round_bytes(32, 151_936) < 1000


def test_costs_and_rounds_are_read_back_and_others_refused() -> None:
    assert EdgeCosts.of_json(json.dumps(COSTS.to_json()), "costs.json") == COSTS
    assert Rounds.of_json(json.dumps(chancy().to_json()), "rounds.json") == chancy()
    for broken in ("", "[]", "{}", '{"schema": 2}', '{"schema": 1, "draft_s": [[1, 0.1]]}'):
        with pytest.raises(FileError, match=r"invalid costs of edge drafting in costs\.json"):
            EdgeCosts.of_json(broken, "costs.json")
        with pytest.raises(FileError, match=r"invalid rounds in rounds\.json"):
            Rounds.of_json(broken, "rounds.json")
    less = chancy().to_json() | {"accepted": [[0.5, 0.4]]}
    with pytest.raises(FileError):
        Rounds.of_json(json.dumps(less), "rounds.json")
    with pytest.raises(UsageError):
        of_rates([1.0], hit=0.1, hit_many=0.1, source="")
    with pytest.raises(UsageError):
        of_rates([0.5], hit=0.2, hit_many=0.1, source="")
    with pytest.raises(UsageError):
        Setting("server-only", depth="adaptive")
    with pytest.raises(UsageError):
        EdgeCosts(straight(0.0), straight(1.0), straight(1.0))


def test_the_paper_s_inferences_give_back_what_they_were_inferred_from() -> None:
    assert {rtt: paper.depth_at(rtt) for rtt in paper.DEPTHS} == paper.DEPTHS
    for server_draft_s in paper.SERVER_DRAFTS_S:
        rate = paper.acceptance(server_draft_s)
        depth = paper.server_only_depth(rate, server_draft_s)
        setting = Setting(
            "server-only", 1, depth=f"included:{depth}", nodes=paper.NODES, max_batch=1, tokens=FOREVER
        )
        found = outcome(
            simulate(setting, paper.costs(server_draft_s), paper.rounds(rate), seed=1, seconds=2000.0),
            setting,
            paper.PRICES,
        )
        assert found.thousands_per_unit is not None
        assert 1000 / found.thousands_per_unit == pytest.approx(paper.DOLLARS["server-only"], rel=0.03)
    plain = replace(setting, arm="autoregressive")
    log = simulate(plain, paper.costs(), paper.rounds(0.5), seed=1, seconds=500.0)
    found = outcome(log, plain, paper.PRICES)
    assert found.thousands_per_unit is not None
    assert 1000 / found.thousands_per_unit == pytest.approx(paper.DOLLARS["autoregressive"], rel=0.01)


def test_the_paper_s_throughput_follows_from_the_pass_that_is_fitted_to_it() -> None:
    case = paper.cases()[1]
    found = paper.figures(case, seeds=(0,), seconds=300.0)
    assert found.throughput == pytest.approx(paper.THROUGHPUT, rel=0.05)
    assert found.cost_efficiency == pytest.approx(paper.COST_EFFICIENCY, rel=0.08)
    assert found.idle < 0.02


@pytest.mark.parametrize(("published", "within", "where"), [(2.0, True, "within"), (9.0, False, "outside")])
def test_the_paper_is_judged_by_what_is_not_fitted_to_it(published: float, within: bool, where: str) -> None:
    simulated = [paper.figures(case, seeds=(0,), seconds=20.0) for case in paper.cases()]
    answer, reason = paper.judge(simulated, published)
    assert answer is within
    assert f"throughput is {where} the" in reason
    assert f"{simulated[0].throughput:.2f}×" in "\n".join(paper.page(simulated))


def test_crossing() -> None:
    rising = [(0.01, 10.0), (0.02, 20.0), (0.05, 50.0)]
    assert crossing(rising, 35.0) == pytest.approx(0.035)
    assert crossing(rising, 5.0) is None
    assert crossing(rising, 60.0) == math.inf
