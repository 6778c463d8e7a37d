"""The guard's policy, whatever comes, in whatever order, against the plainest bookkeeping beside it."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from made_evaluations import VERDICTS, seen

from specops.guard.policy import GuardRules, decide, pin, release
from specops.guard.state import FULL, GuardDecision, Override, State


class Policy(RuleBasedStateMachine):
    @initialize(
        consecutive=st.integers(1, 4),
        steps=st.sampled_from([(), (5,), (5, 25, 50)]),
        hold=st.integers(1, 3),
        attempts=st.integers(0, 3),
        cooldown=st.sampled_from([60.0, 300.0, 1000.0]),
        floor=st.sampled_from([0, 0, 30]),
    )
    def begin(self, consecutive, steps, hold, attempts, cooldown, floor) -> None:
        self.guard_rules = GuardRules(
            interval_s=60,
            consecutive=consecutive,
            steps=steps,
            hold=hold,
            attempts=attempts,
            cooldown_s=cooldown,
        ).keeping(floor)
        self.state = State()
        self.truly = self.clock = 1e6
        self.row = 0
        self.fell_at: float | None = None
        self.owed = 0.0

    @rule(
        verdict=st.sampled_from(VERDICTS),
        well=st.booleans(),
        apart=st.sampled_from([60.0, 60.0, 61.0, 300.0]),
    )
    def observe(self, verdict, well, apart) -> None:
        self.truly += apart
        self.clock += apart
        before = self.state
        decision = decide(before, seen(verdict, value=0.9 if well else 0.4), self.clock, self.guard_rules)
        self.state = decision.state
        self.row = self.row + 1 if verdict == "bad" else 0
        self._moved_as_it_may(before, decision)

    @rule(seconds=st.sampled_from([-1e6, -500.0, -30.0, 500.0, 1e6]))
    def jump(self, seconds) -> None:
        self.clock += seconds

    @rule(pool=st.sampled_from(["standard", "speculative"]), left=st.sampled_from([None, 120.0, 1e4]))
    def person_pins(self, pool, left) -> None:
        override = Override(pool=pool, by="ada", why="so", left_s=left)
        self.state = pin(self.state, override, self.clock, self.guard_rules).state
        self.row = 0

    @rule(found=st.sampled_from([None, 0, 5, 60, FULL]))
    def person_hands_back(self, found) -> None:
        before = self.state
        decision = release(before, "ada", "so", self.clock, self.guard_rules, found)
        if before.mode != "held":
            assert decision.state.percent <= before.percent, "to hand it back proves nothing"
        if "canary" in decision.events:
            self.row = 0
        self.state = decision.state

    @rule()
    def is_kept_and_read(self) -> None:
        self.state = State.model_validate_json(self.state.model_dump_json())

    def _moved_as_it_may(self, before: State, decision: GuardDecision) -> None:
        after, events = decision.state, decision.events
        if "fell_back" in events:
            assert self.row >= self.guard_rules.consecutive, "only bad ones in a row fall back"
            assert before.override is None or after.override is None, "not against a person"
            self.row, self.fell_at, self.owed = 0, self.truly, after.wait_s
        elif after.percent < before.percent:
            raise AssertionError("only a fallback lowers it")
        if after.mode == "canary" and before.mode == "fallen":
            assert self.fell_at is not None
            assert self.truly - self.fell_at >= self.owed - 1e-6, "never before the cool-down is over"
            self.row = 0
        if after.percent > before.percent and before.override is None:
            assert after.percent == self.guard_rules.above(before.percent), "up the ladder, a step at a time"

    @invariant()
    def a_person_is_obeyed(self) -> None:
        if hasattr(self, "state") and self.state.override is not None:
            assert self.state.target_percent == (FULL if self.state.override.pool == "speculative" else 0)

    @invariant()
    def attempts_are_bounded(self) -> None:
        if hasattr(self, "state"):
            assert self.state.attempts <= self.guard_rules.attempts
            assert self.state.percent in {0, self.guard_rules.floor, *self.guard_rules.steps, FULL}
            assert (self.state.mode == "on") <= (self.state.percent == FULL)


Policy.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestPolicy = Policy.TestCase
