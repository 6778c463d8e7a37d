"""The simulated world against closed forms, conservation laws and the tables that it draws from."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("simpy", reason="the edge extra is not installed")
pytest.importorskip("google.protobuf", reason="the edge extra is not installed")

from specops.economics import Prices
from specops.edge.simulation.outcome import SETTLING, Outcome, outcome, replicate, simulate
from specops.edge.simulation.rounds import Rounds, of_rates
from specops.edge.simulation.setting import EdgeCosts, Log, Setting, straight

DRAFT, VERIFY, OWN = 0.005, 0.030, 0.004
COSTS = EdgeCosts(straight(DRAFT), straight(VERIFY), straight(OWN))
PRICES = Prices(3.6, 0.36)
LEVELS = 8
FOREVER = 10**9
"""Tokens of a request that does not end."""


def sure(run_by: int | None = None) -> Rounds:
    """Everything is accepted; what comes next is run by that pass drafted ahead, or by none."""
    accepted = tuple((*(0.0,) * levels, 1.0) for levels in range(1, LEVELS + 1))
    shares = () if run_by is None else (*(0.0,) * (run_by - 1), 1.0)
    found = tuple(tuple(shares for _ in by_k) for by_k in accepted)
    return Rounds(accepted, {"one": found, "many": found}, "sure")


def chancy(rate: float = 0.8, hit: float = 0.4) -> Rounds:
    return of_rates([rate] * LEVELS, hit=hit, hit_many=hit, source="chancy")


def edge(**fields: object) -> Setting:
    base = Setting("edge", rtt_s=0.015, depth="included:4", heads="none", tokens=FOREVER)
    return replace(base, **fields)  # type: ignore[arg-type]


def seen(setting: Setting, rounds: Rounds, *, costs: EdgeCosts = COSTS, seconds: float = 40.0) -> Outcome:
    return outcome(simulate(setting, costs, rounds, seed=1, seconds=seconds), setting, PRICES)


def periods(log: Log, client: int = 0) -> list[float]:
    """Between the verdicts of a client, but for its first rounds."""
    at = [verdict.time_s for verdict in log.verdicts if verdict.client == client]
    return [later - earlier for earlier, later in pairwise(at[3:])]


@pytest.mark.parametrize("depth", [1, 4, 8])
def test_one_client_drafts_sends_and_waits(depth: int) -> None:
    costs = replace(COSTS, step_s=0.002, round_s=0.001)
    log = simulate(edge(depth=f"included:{depth}"), costs, sure(), seed=1, seconds=10.0)
    period = depth * DRAFT + 0.015 + 0.001 + 0.002 + VERIFY
    assert periods(log) == pytest.approx([period] * len(periods(log)))
    found = outcome(log, edge(), PRICES)
    assert found.itl_ms == pytest.approx(1000 * period / (depth + 1))
    assert found.itl_p50_ms == pytest.approx(found.itl_ms)
    assert found.busy == pytest.approx((0.002 + VERIFY) / period, rel=0.01)
    assert found.tokens_per_verification == depth + 1


def test_no_pass_is_begun_that_the_verdict_would_have_to_wait_for() -> None:
    away = 0.015 + VERIFY  # nine passes of 5 ms, to the very end
    log = simulate(edge(heads="one"), COSTS, sure(), seed=1, seconds=10.0)
    assert periods(log) == pytest.approx([4 * DRAFT + away] * len(periods(log)))
    assert {verdict.ahead for verdict in log.verdicts[2:]} == {9}
    slow = replace(COSTS, draft=straight(0.010))  # the fifth of 10 ms would outlast it
    log = simulate(edge(heads="one"), slow, sure(), seed=1, seconds=10.0)
    assert periods(log) == pytest.approx([4 * 0.010 + away] * len(periods(log)))
    assert {verdict.ahead for verdict in log.verdicts[2:]} == {4}
    assert not any(verdict.hit for verdict in log.verdicts)


def test_a_pass_begun_ahead_is_ended() -> None:
    """Of the first round nothing is expected yet."""
    slow = replace(COSTS, draft=straight(0.010))
    log = simulate(edge(heads="one"), slow, sure(), seed=1, seconds=1.0)
    assert log.verdicts[1].ahead == 5
    assert log.verdicts[1].time_s - log.verdicts[0].time_s == pytest.approx(4 * 0.010 + 5 * 0.010)


@pytest.mark.parametrize(("run_by", "kept"), [(1, 4), (2, 3), (4, 1), (6, 0)])
def test_levels_drafted_ahead_need_not_be_drafted_again(run_by: int, kept: int) -> None:
    slow = replace(COSTS, draft=straight(0.010))
    away = 0.015 + VERIFY  # four passes
    log = simulate(edge(heads="one", depth="included:5"), slow, sure(run_by), seed=1, seconds=10.0)
    assert periods(log) == pytest.approx([(5 - kept) * 0.010 + away] * len(periods(log)))
    deeper = simulate(edge(heads="one", depth="excluded:2"), slow, sure(run_by), seed=1, seconds=10.0)
    assert periods(deeper) == pytest.approx([2 * 0.010 + away] * len(periods(deeper)))
    tokens = {verdict.tokens for verdict in deeper.verdicts[3:]}
    assert tokens == {min(2 + kept, LEVELS) + 1}
    assert {verdict.hit for verdict in log.verdicts[2:]} == {kept > 0}
    assert {verdict.wasted for verdict in log.verdicts[2:]} == {4 - kept}


def test_a_cache_has_room_for_so_many_passes_ahead() -> None:
    log = simulate(edge(heads="one", most_ahead=2), COSTS, sure(1), seed=1, seconds=5.0)
    assert periods(log) == pytest.approx([2 * DRAFT + 0.015 + VERIFY] * len(periods(log)))


@given(
    clients=st.integers(1, 12),
    depth=st.integers(1, 8),
    rtt_ms=st.integers(0, 120),
    verify_ms=st.integers(5, 60),
)
@settings(max_examples=15, deadline=None)
def test_a_closed_queue_of_fixed_times_has_the_throughput_of_its_bound(
    clients: int, depth: int, rtt_ms: int, verify_ms: int
) -> None:
    """D/D/1 with N clients: each thinks for Z, is served for S, and X = min(N / (Z + S), 1 / S)."""
    think, serve = rtt_ms / 1000 + depth * DRAFT, verify_ms / 1000
    costs = replace(COSTS, verify=straight(serve))
    setting = edge(clients=clients, depth=f"included:{depth}", rtt_s=rtt_ms / 1000, max_batch=1)
    cycle = max(think + serve, clients * serve)
    found = seen(setting, sure(), costs=costs, seconds=200 * cycle)
    expected = clients / cycle
    assert found.tokens_per_s / (depth + 1) == pytest.approx(expected, rel=0.02)
    assert found.busy == pytest.approx(expected * serve, rel=0.02)
    assert found.itl_ms == pytest.approx(1000 * cycle / (depth + 1), rel=0.01)


@pytest.mark.parametrize("arm", ["edge", "server-only", "autoregressive"])
def test_conservation(arm: str) -> None:
    """Busy is throughput times service; by Little's law clients are throughput times a round's time."""
    setting = edge(arm=arm, clients=6, heads="one", max_batch=3, tokens=60)
    curve = replace(COSTS, verify=straight(0.02, 0.0004))
    log = simulate(setting, curve, chancy(), seed=5, seconds=80.0)
    began = SETTLING * log.ended
    steps = [step for step in log.steps if step.began >= began]
    found = outcome(log, setting, PRICES)
    assert found.batch is not None
    per_step = sum(step.ended - step.began for step in steps) / len(steps)
    verdicts = [verdict for verdict in log.verdicts if verdict.time_s >= began]
    span = log.ended - began
    assert found.busy == pytest.approx(len(verdicts) / span * per_step / found.batch, rel=0.02)
    assert all(step.trees <= 3 for step in steps)
    assert sum(step.trees for step in log.steps) >= len(log.verdicts)  # some are still on their way
    assert sum(step.trees for step in log.steps) <= len(log.verdicts) + setting.clients
    assert all(earlier.ended <= later.began + 1e-12 for earlier, later in pairwise(log.steps))
    if arm == "edge":  # where a client is always in some round
        spent = sum(verdict.time_s - verdict.since for verdict in verdicts)
        assert spent == pytest.approx(6 * span, rel=0.02)


def test_where_the_server_drafts_its_streams_step_together() -> None:
    costs = EdgeCosts(straight(1.0), straight(0.02, 0.0005), straight(0.003, 0.0001))
    setting = edge(arm="server-only", clients=3, nodes=16, beams=4, max_batch=8, rtt_s=0.2)
    found = seen(setting, sure(), costs=costs)
    drafted = (0.003 + 3 * 0.0001) + 3 * (0.003 + 12 * 0.0001)
    step = drafted + 0.02 + 3 * 17 * 0.0005
    assert found.itl_ms == pytest.approx(1000 * step / 5)
    assert found.batch == pytest.approx(3)
    assert found.busy == pytest.approx(1.0, rel=0.01)  # the last step has not ended
    plain = seen(replace(setting, arm="autoregressive"), sure(), costs=costs)
    assert plain.itl_ms == pytest.approx(1000 * (0.02 + 3 * 0.0005))
    crowded = seen(replace(setting, clients=20, tokens=50), sure(), costs=costs)
    assert crowded.batch == pytest.approx(8, rel=0.02)


def test_static_batches_wait_for_so_many() -> None:
    setting = edge(clients=4, batching="static:4", depth="included:2")
    log = simulate(setting, COSTS, sure(), seed=1, seconds=10.0)
    assert {step.trees for step in log.steps} == {4}
    alone = simulate(
        replace(setting, batching="static:9:50", jitter_s=0.01), COSTS, sure(), seed=1, seconds=10.0
    )
    assert {step.trees for step in alone.steps} == {4}  # as many as there are: nobody waits for a ninth
    late = replace(setting, clients=2, batching="static:2:20", rtt_s=0.0, jitter_s=0.2)
    log = simulate(late, COSTS, sure(), seed=1, seconds=60.0)
    assert {step.trees for step in log.steps} == {1, 2}
    assert max(verdict.waited_s for verdict in log.verdicts) <= 0.020 + VERIFY + 1e-9


def test_a_seed_repeats_a_run_and_another_does_not() -> None:
    setting = edge(clients=3, heads="one", jitter_s=0.01, tokens=80)
    first, again, other = (simulate(setting, COSTS, chancy(), seed=s, seconds=10.0) for s in (1, 1, 2))
    assert first == again
    assert first.verdicts != other.verdicts


def test_what_is_simulated_is_what_the_table_says() -> None:
    rounds = chancy(0.7, 0.3)
    found = seen(edge(depth="included:3"), rounds, seconds=400.0)
    assert found.tokens_per_verification == pytest.approx(rounds.tokens(3), rel=0.03)
    assert rounds.tokens(3) == pytest.approx(1 + 0.7 + 0.49 + 0.343)
    ahead = seen(edge(heads="one", depth="included:3"), rounds, seconds=400.0)
    assert ahead.hit_rate == pytest.approx(rounds.hit_share("one", 3, 9), abs=0.03)
    # What was kept is sent too, be it deeper than three levels.
    assert ahead.tokens_per_verification > rounds.tokens(3)  # type: ignore[operator]


@given(rtt=st.integers(5, 100), more=st.integers(10, 100))
@settings(max_examples=5, deadline=None)
def test_adaptive_goes_deeper_over_longer_links(rtt: int, more: int) -> None:
    near, far = (
        seen(edge(depth="adaptive", rtt_s=ms / 1000), chancy(0.85), seconds=80.0) for ms in (rtt, rtt + more)
    )
    assert near.tokens_per_verification is not None
    assert far.tokens_per_verification is not None
    assert far.tokens_per_verification > near.tokens_per_verification - 0.25


def test_money_is_the_servers_time_and_every_edges() -> None:
    setting = edge(clients=2)
    found = seen(setting, sure())
    an_s = (3.6 + 2 * 0.36) / 3600
    assert found.thousands_per_unit == pytest.approx(found.tokens_per_s / an_s / 1000)
    own = replace(setting, arm="server-only")
    alone = seen(own, sure())
    assert alone.thousands_per_unit == pytest.approx(alone.tokens_per_s / (3.6 / 3600) / 1000)


def test_replications_have_intervals() -> None:
    summary = replicate(edge(heads="one"), COSTS, chancy(), PRICES, seeds=range(4), seconds=20.0)
    interval, mean = summary.interval("itl_ms"), summary.mean("itl_ms")
    assert interval is not None
    assert mean is not None
    assert interval.low < mean < interval.high
    assert interval.n == 4
    assert summary.to_json()["figures"]["itl_ms"]["mean"] == pytest.approx(mean, abs=1e-4)
