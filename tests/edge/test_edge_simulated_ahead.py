"""Rounds sent ahead, simulated: when, as the client's own code has it, and what comes of it, exactly."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("simpy", reason="the edge extra is not installed")
pytest.importorskip("google.protobuf", reason="the edge extra is not installed")

from specops.economics import Prices
from specops.edge.client_metrics import EdgeCounters
from specops.edge.client_sessions import ClientSession, ClientSessions, Stage
from specops.edge.fallback import Fallback
from specops.edge.link import Branch, Proposal
from specops.edge.settings import Included
from specops.edge.simulation.client import Passes, sent_after
from specops.edge.simulation.outcome import Outcome, outcome, simulate
from specops.edge.simulation.rounds import Rounds, of_rates
from specops.edge.simulation.setting import EdgeCosts, Log, Setting, SimulatedVerdict, straight
from specops.engine.request import Counters

DRAFT, VERIFY, RTT = 0.004, 0.030, 0.015
COSTS = EdgeCosts(straight(DRAFT), straight(VERIFY), straight(DRAFT))
IN_TIME = 7
"""Passes that end before the trees after them would be too late: a round is VERIFY at the server."""

LEVELS = 8
FOREVER = 10**9


def sure(run_by: int | None = 1) -> Rounds:
    """Everything is accepted; what comes next is run by that pass drafted ahead, or by none."""
    accepted = tuple((*(0.0,) * levels, 1.0) for levels in range(1, LEVELS + 1))
    shares = () if run_by is None else (*(0.0,) * (run_by - 1), 1.0)
    found = tuple(tuple(shares for _ in by_k) for by_k in accepted)
    return Rounds(accepted, {"one": found, "many": found}, "sure")


def chancy(hit: float, rate: float = 0.8) -> Rounds:
    return of_rates([rate] * LEVELS, hit=hit, hit_many=hit, source="chancy")


def edge(**fields: object) -> Setting:
    base = Setting("edge", rtt_s=RTT, depth="included:5", heads="many", ahead=16, tokens=FOREVER)
    return replace(base, **fields)  # type: ignore[arg-type]


def run(setting: Setting, rounds: Rounds, costs: EdgeCosts = COSTS, seconds: float = 10.0) -> Log:
    return simulate(setting, costs, rounds, seed=1, seconds=seconds)


def seen(setting: Setting, rounds: Rounds, seconds: float = 200.0) -> Outcome:
    return outcome(run(setting, rounds, seconds=seconds), setting, Prices(3.6, 0.36))


def rounds_of(log: Log, client: int = 0) -> list[SimulatedVerdict]:
    """But for a client's first ones, before which nothing can be expected."""
    return [verdict for verdict in log.verdicts if verdict.client == client][3:]


def periods(log: Log) -> list[float]:
    return [later.time_s - earlier.time_s for earlier, later in pairwise(rounds_of(log))]


# --- what is spared -------------------------------------------------------------------------------


def test_a_round_that_was_foreseen_spares_the_way_there_and_back() -> None:
    costs = replace(COSTS, step_s=0.002, round_s=0.001)
    waiting, ahead = (run(edge(ahead=count), sure(), costs) for count in (0, 16))
    assert periods(waiting) == pytest.approx([0.001 + 0.002 + VERIFY + RTT] * len(periods(waiting)))
    assert periods(ahead) == pytest.approx([0.001 + 0.002 + VERIFY] * len(periods(ahead)))
    assert {verdict.used_ahead for verdict in rounds_of(ahead)} == {True}
    assert {verdict.used_ahead for verdict in waiting.verdicts} == {False}
    assert {verdict.waited_s for verdict in rounds_of(ahead)} == {0.0}


@pytest.mark.parametrize("run_by", range(1, 10))
@pytest.mark.parametrize("depth", [1, 4])
def test_a_tree_goes_as_it_is_at_the_last_moment_if_it_is_deep_enough(run_by: int, depth: int) -> None:
    setting = edge(depth=f"included:{depth}", heads="one")
    log, waiting = run(setting, sure(run_by)), run(replace(setting, ahead=0), sure(run_by))
    levels = IN_TIME - run_by + 1
    if levels < depth:
        assert log == waiting
    else:
        assert periods(log) == pytest.approx([VERIFY] * len(periods(log)))
        assert {verdict.tokens for verdict in rounds_of(log)} == {levels + 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"depth": "excluded:2"},
        {"heads": "none"},
        {"depth": "included:4", "most_ahead": 2},
        {"depth": "adaptive", "most_ahead": 1},
    ],
)
def test_where_nothing_can_be_sent_ahead_all_is_as_without(fields: dict[str, object]) -> None:
    setting = edge(clients=5, jitter_s=0.01, tokens=90, max_batch=2, **fields)
    assert run(setting, chancy(0.5)) == run(replace(setting, ahead=0), chancy(0.5))


def test_what_nobody_foresaw_costs_nothing() -> None:
    setting = edge(clients=3, tokens=90, max_batch=2)
    assert run(setting, sure(None)) == run(replace(setting, ahead=0), sure(None))


def test_over_a_long_way_every_other_round_is_ahead() -> None:
    """The server has verified the second before the client hears of the first."""
    log = run(edge(rtt_s=0.2), sure())
    taken = [verdict.used_ahead for verdict in rounds_of(log)]
    assert all(one != other for one, other in pairwise(taken))
    after = [period for period, had in zip(periods(log), taken, strict=False) if had]
    assert after == pytest.approx([VERIFY] * len(after))
    rest = [period for period, had in zip(periods(log), taken, strict=False) if not had]
    assert rest == pytest.approx([VERIFY + 0.2] * len(rest))


# --- what holds whatever happens ------------------------------------------------------------------


def test_as_many_rounds_are_ahead_as_hit() -> None:
    """Where all that hits is in time and worth it."""
    found = seen(edge(depth="included:3"), chancy(0.4))
    assert found.taken == pytest.approx(0.4, abs=0.02)
    assert found.hit_rate == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize("depth", ["included:4", "adaptive"])
def test_more_hits_are_less_waiting(depth: str) -> None:
    found = [seen(edge(depth=depth), chancy(hit), 60.0) for hit in (0.0, 0.3, 0.6, 0.9)]
    assert all(more.itl_ms < less.itl_ms for less, more in pairwise(found))  # type: ignore[operator]
    assert all(more.taken > less.taken for less, more in pairwise(found))  # type: ignore[operator]


@given(rtt_ms=st.integers(2, 60), hit=st.floats(0.2, 0.9), depth=st.sampled_from(["included:4", "adaptive"]))
@settings(max_examples=5, deadline=None)
def test_a_client_alone_does_not_lose_by_it(rtt_ms: int, hit: float, depth: str) -> None:
    setting = edge(rtt_s=rtt_ms / 1000, depth=depth)
    ahead, waiting = (seen(replace(setting, ahead=count), chancy(hit), 60.0) for count in (16, 0))
    assert ahead.itl_ms < 1.03 * waiting.itl_ms  # type: ignore[operator]


@given(
    clients=st.integers(1, 6),
    rtt_ms=st.integers(0, 120),
    jitter_ms=st.integers(0, 40),
    depth=st.sampled_from(["included:1", "included:4", "adaptive"]),
    round_ms=st.integers(0, 3),
)
@settings(max_examples=10, deadline=None)
def test_conservation(clients: int, rtt_ms: int, jitter_ms: int, depth: str, round_ms: int) -> None:
    setting = edge(
        clients=clients,
        rtt_s=rtt_ms / 1000,
        jitter_s=jitter_ms / 1000,
        depth=depth,
        max_batch=3,
        tokens=60,
    )
    log = run(setting, chancy(0.6), replace(COSTS, round_s=round_ms / 1000), seconds=20.0)
    assert all(earlier.ended <= later.began + 1e-12 for earlier, later in pairwise(log.steps))
    assert all(step.trees <= 3 for step in log.steps)
    # Of each client, a verdict may be on its way while the next round is verified.
    assert 0 <= sum(step.trees for step in log.steps) - len(log.verdicts) <= 2 * clients
    for client in range(clients):
        verdicts = [verdict for verdict in log.verdicts if verdict.client == client]
        brought = 0
        for earlier, later in pairwise(verdicts):
            assert later.since <= later.time_s
            assert later.first or later.since == earlier.time_s
            brought = later.tokens if later.first else brought + later.tokens
            assert not (later.first and earlier.used_ahead)  # nothing follows the end of a request
            assert brought <= 60
        ends = [earlier for earlier, later in pairwise(verdicts) if later.first]
        assert sum(verdict.tokens for verdict in verdicts[: verdicts.index(ends[-1]) + 1]) == 60 * len(ends)


# --- when, as the client has it -------------------------------------------------------------------


class _Link:
    """Which says when it was used."""

    def __init__(self, client: _Client) -> None:
        self._client = client

    def ahead(self, *_: object) -> None:
        self._client.sent.append(self._client.passes)


class _Client:
    """The client's loop (EdgeEngine.step) around its own rules; passes only take their time. Times are whole
    numbers, and so exact."""

    def __init__(self, passes: Passes, sent_at: float, served: float, way: float, *, taken: bool) -> None:
        self.now, self.passes = passes.since, 0
        self.sent: list[int] = []
        self.ended = [self.now]
        self._told = passes
        tree = Branch(0, 1, Proposal((), ()))
        drafts = SimpleNamespace(ahead=lambda *_: [(tree, 9.0)])
        self._talks = ClientSessions(
            cast(Any, _Link(self)),
            cast(Any, drafts),
            Fallback.always(server_drafts=False),
            Counters(),
            EdgeCounters(),
            patience_s=30.0,
            clock=lambda: self.now,
        )
        self._talks.pacing[True].learn(
            tokens=2, promised=1.0, home_s=0.0, away_s=served + way, served_s=served, way_s=way
        )
        sequence = cast(Any, SimpleNamespace(id=0, greedy=True))
        self._talk = ClientSession(sequence, 1, [], cast(Any, None))
        self._talk.proposal = Proposal((), ())
        self._talk.stage, self._talk.sent_at, self._talk.used_ahead = Stage.AWAY, sent_at, taken
        self._talks._add(self._talk)

    def drafts_until(self, heard: float) -> None:
        talks, pass_s = self._talks, self._told.pass_s
        while self.now < heard:
            talks.send_ahead(16, Included(1), pass_s, at_once=False)
            waits = talks.due_within(pass_s)
            if not waits and self.passes < self._told.most:
                self.now += pass_s
                self.passes += 1
                self._talk.passes += 1
                self.ended.append(self.now)
                continue
            talks.send_ahead(16, Included(1), pass_s, at_once=not waits)
            self.now += 1.0


@given(
    pass_s=st.integers(2, 20).map(float),
    served=st.integers(1, 90).map(float),
    way=st.integers(0, 60).map(float),
    most=st.integers(1, 12),
    busy=st.integers(0, 19).map(float),
    late=st.integers(-80, 80),
    taken=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_passes_and_what_is_sent_are_when_the_client_has_them(
    pass_s: float, served: float, way: float, most: int, busy: float, late: int, taken: bool
) -> None:
    """`busy`: by how much the client was late itself, with a pass. `late`: the verdict, against what was
    expected."""
    since = 100.0 + min(busy, pass_s)
    due = 100.0 + served + (0.0 if taken else way)
    heard = max(since + 1.0, due + late)
    passes = Passes(since, pass_s, most, due)
    client = _Client(passes, 100.0, served, way, taken=taken)
    client.drafts_until(heard)
    assert passes.begun(heard) == client.passes
    assert [passes.ended(count) for count in range(client.passes + 1)] == client.ended
    too_late = 100.0 + served - (way if taken else 0.0)
    sent = [count for count in sent_after(passes, too_late) if passes.ended(count) < heard]
    assert sent == client.sent
