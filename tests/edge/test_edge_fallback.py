"""Who drafts: the policy alone, on links that are told to it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.edge.fallback import Fallback, FallbackRules

RULES = FallbackRules()


@dataclass(frozen=True)
class World:
    """What a stream gets, whoever drafts."""

    rtt: float
    tokens: int = 4  # of a round at the edge
    draft_s: float = 0.01
    step_s: float = 0.04  # of the server, which gives one token a step by itself

    @property
    def edge_rate(self) -> float:
        return self.tokens / (self.draft_s + self.step_s + self.rtt)

    @property
    def server_rate(self) -> float:
        return 1 / self.step_s


class Run:
    """Plays a world to a policy, event by event."""

    def __init__(self, policy: Fallback, now: float = 0.0) -> None:
        self.policy, self.now = policy, now
        self.changes: list[tuple[float, bool]] = []
        self.verdicts = 0

    def play(self, world: World, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            before = self.policy.server_drafts
            if before:
                self.now += world.step_s
                self.policy = self.policy.streamed(self.now, tokens=1, seconds=world.step_s)
                if self.policy.server_drafts and self.policy.due(self.now):
                    self.policy = self.policy.pinged(self.now, world.rtt)
            else:
                took = world.draft_s + world.step_s + world.rtt
                self.now += took
                self.policy = self.policy.round(
                    self.now, tokens=world.tokens, seconds=took, rtt=world.rtt, step=world.step_s
                )
            self.verdicts += 1
            if self.policy.server_drafts != before:
                self.changes.append((self.now, self.policy.server_drafts))


worlds = st.builds(
    World,
    rtt=st.floats(0.0005, 1.0),
    tokens=st.integers(1, 9),
    draft_s=st.floats(0, 0.1),
    step_s=st.floats(0.02, 0.2),
)


@settings(max_examples=20)
@given(worlds.filter(lambda w: w.edge_rate > 1.05 * w.server_rate))
def test_a_good_link_is_never_left(world: World) -> None:
    run = Run(Fallback())
    run.play(world, 100)
    assert run.changes == []


@settings(max_examples=20)
@given(worlds.filter(lambda w: w.edge_rate * (1 + RULES.margin) < 0.95 * w.server_rate))
def test_a_bad_one_is_left_at_once_and_for_good(world: World) -> None:
    """Unless its drafts alone are to blame: those are tried again, ever more seldom."""
    run = Run(Fallback())
    run.play(world, 200)
    first, to_server = run.changes[0]
    took = world.draft_s + world.step_s + world.rtt
    assert to_server
    assert first <= max((RULES.dwell_rounds + 1) * took, RULES.dwell_s + 2 * took)
    without_way = world.tokens / (world.draft_s + world.step_s)
    if without_way > 1.05 * world.server_rate * (1 + RULES.margin):
        assert len(run.changes) == 1
        assert run.policy.switches == {"link": 1}
    else:
        assert run.policy.switches.get("trial", 0) <= 12


@settings(max_examples=20)
@given(
    st.lists(st.tuples(worlds, st.floats(0.1, 30)), min_size=1, max_size=8),
    st.booleans(),
)
def test_it_never_flaps(stretches: list[tuple[World, float]], begins_there: bool) -> None:
    run = Run(Fallback(server_drafts=begins_there))
    for world, seconds in stretches:
        run.play(world, seconds)
    times = [time for time, _ in run.changes]
    assert all(later - earlier >= RULES.dwell_s for earlier, later in pairwise(times))
    assert sum(run.policy.switches.values()) == len(run.changes)
    assert [to for _, to in run.changes] == [
        begins_there ^ bool(number % 2 == 0) for number in range(len(run.changes))
    ]


@settings(max_examples=15)
@given(st.floats(0.3, 2.0), st.floats(0.001, 0.03))
def test_a_link_that_heals_is_come_back_to(bad: float, good: float) -> None:
    run = Run(Fallback())
    run.play(World(rtt=0.015), 20)
    assert run.changes == []
    run.play(World(rtt=bad), 60)
    assert [to for _, to in run.changes] == [True]
    run.play(World(rtt=good), 60)
    assert [to for _, to in run.changes] == [True, False]
    assert run.policy.switches == {"link": 1, "healed": 1}


def test_one_slow_round_is_no_bad_link() -> None:
    run = Run(Fallback())
    run.play(World(rtt=0.01), 30)
    run.policy = run.policy.round(run.now, tokens=4, seconds=0.35, rtt=0.3, step=0.04)
    run.play(World(rtt=0.01), 30)
    assert run.changes == []


def test_poor_drafts_are_tried_again_and_kept_once_they_are_better() -> None:
    poor, better = World(rtt=0.005, tokens=1), World(rtt=0.005, tokens=5)
    run = Run(Fallback())
    run.play(poor, 20)
    assert "drafts" in run.policy.switches
    assert "link" not in run.policy.switches
    run.play(better, 2 * RULES.longest_s)
    assert not run.policy.server_drafts
    run.play(better, 60)
    assert not run.policy.server_drafts


def test_a_return_that_does_not_last_is_tried_more_seldom() -> None:
    run = Run(Fallback())
    run.play(World(rtt=0.005, tokens=1), 1000)
    returns = [time for time, to_server in run.changes if not to_server]
    gaps = [later - earlier for earlier, later in pairwise(returns)]
    assert all(later > 0.99 * earlier for earlier, later in pairwise(gaps))
    assert gaps[-1] > 10 * gaps[0]


@pytest.mark.parametrize("server_drafts", [False, True])
def test_what_was_decided_already_stays(server_drafts: bool) -> None:
    run = Run(Fallback.always(server_drafts=server_drafts))
    run.play(World(rtt=2.0), 60)
    run.play(World(rtt=0.001), 60)
    assert run.changes == []
    assert run.policy.switches == {}
    assert not run.policy.due(1e9)


def test_a_server_that_began_is_taken_over_from_on_trial() -> None:
    run = Run(Fallback(server_drafts=True))
    run.play(World(rtt=0.01), 30)
    assert run.policy.switches == {"trial": 1}
    assert not run.policy.server_drafts


def test_a_link_is_probed_only_while_the_server_drafts() -> None:
    assert not Fallback().due(0.0)
    policy = Fallback(server_drafts=True)
    assert policy.due(0.0)
    policy = policy.pinged(10.0, 0.01)
    assert not policy.due(10.0 + 0.9 * RULES.probe_s)
    assert policy.due(10.0 + 1.1 * RULES.probe_s)
