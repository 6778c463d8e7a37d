"""The guard's policy: what it does about what it sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_evaluations import seen

from specops.config.guard import Guard
from specops.guard.policy import Rules, decide, pin, release
from specops.guard.state import Decision, Evaluation, Finding, Override, State

RULES = Rules(interval_s=60, consecutive=3, cooldown_s=600, steps=(5, 50), hold=2, attempts=2, backoff=3.0)


class Played:
    """A guard's decisions, an interval apart."""

    def __init__(self, rules: Rules = RULES, state: State | None = None) -> None:
        self.rules, self.state, self.now = rules, state or State(), 1000.0
        self.last: Decision | None = None

    def see(self, verdict: str, times: int = 1, **more: Any) -> Played:
        for _ in range(times):
            self.now += self.rules.interval_s
            self.last = decide(self.state, seen(verdict, **more), self.now, self.rules)
            self.state = self.last.state
        return self

    @property
    def at(self) -> tuple[str, int]:
        return self.state.mode, self.state.percent

    @property
    def events(self) -> tuple[str, ...]:
        assert self.last is not None
        return self.last.events


def test_three_bad_in_a_row_fall_back_and_two_do_not() -> None:
    played = Played().see("bad", 2)
    assert played.at == ("on", 100)
    assert played.see("bad").at == ("fallen", 0)
    assert played.events == ("fell_back",)


def test_a_bad_window_that_only_shares_samples_with_the_first_is_the_same_observation() -> None:
    played = Played().see("bad", observed_at=1000.0)
    assert (played.state.row_began, played.state.row_last) == (1000.0, 1000.0)
    played.see("bad", 20, repeated=False, observed_at=1060.0)
    assert (played.at, played.state.bad_in_a_row) == (("on", 100), 1)
    assert played.state.row_last == 1000.0
    assert played.last is not None
    assert "since the first bad evaluation are not bad by themselves" in played.last.why
    played.see("bad", repeated=True, observed_at=1120.0)
    assert (played.state.row_began, played.state.row_last) == (1000.0, 1120.0)
    assert played.see("bad", repeated=True, observed_at=1180.0).at == ("fallen", 0)
    assert played.state.row_began is None


def test_a_row_begins_again_where_prometheus_clock_went_back() -> None:
    played = Played().see("bad", observed_at=1000.0).see("bad", repeated=True, observed_at=1060.0)
    played.see("bad", repeated=False, observed_at=500.0)
    assert (played.state.bad_in_a_row, played.state.row_began) == (1, 500.0)


@pytest.mark.parametrize("between", ["healthy", "no_data", "no_traffic", "unknown"])
def test_whatever_is_not_bad_ends_the_row(between) -> None:
    assert Played().see("bad", 2).see(between).see("bad", 2).at == ("on", 100)


@pytest.mark.parametrize("verdict", ["no_data", "no_traffic", "unknown", "healthy"])
def test_nothing_but_bad_changes_what_is_served(verdict) -> None:
    assert Played().see(verdict, 500).at == ("on", 100)


def test_healthy_restores_nothing_before_the_cool_down_and_then_steps() -> None:
    played = Played().see("bad", 3).see("healthy", 9)
    assert played.at == ("fallen", 0)
    assert played.see("no_traffic").at == ("canary", 5)
    assert played.see("healthy", 2, value=0.8).at == ("canary", 50)
    assert played.see("healthy", 2, value=0.8).at == ("canary", 100)
    assert played.see("healthy", 2, value=0.8).at == ("on", 100)


def test_no_step_back_into_a_pool_that_is_not_seen_to_be_well() -> None:
    fallen = Played().see("bad", 3).see("no_traffic", 9)
    for verdict in ("no_data", "unknown", "bad"):
        assert fallen.see(verdict, 5).at == ("fallen", 0)
    assert fallen.see("no_traffic").at == ("canary", 5)


def test_no_traffic_at_a_step_waits_and_keeps_what_was_healthy() -> None:
    step = Played().see("bad", 3).see("no_traffic", 10).see("healthy", value=0.8).see("no_traffic", 50)
    assert step.at == ("canary", 5)
    assert step.see("healthy", value=0.8).at == ("canary", 50)


def test_near_1_the_margin_is_of_what_is_left() -> None:
    strict = Finding.model_validate(
        {
            "signal": "acceptance",
            "verdict": "healthy",
            "value": 0.99,
            "threshold": {"value": 0.97, "source": "the test"},
            "why": "so",
        }
    )
    evaluation = Evaluation(ts=0, verdict="healthy", reason="r", findings=(strict,))
    state = State(mode="canary", percent=5)
    assert decide(state, evaluation, 60.0, RULES).state.healthy_in_a_row == 1


@pytest.mark.parametrize(
    ("signal", "barely", "well"),
    [("acceptance", 0.41, 0.43), ("tpot", 1.19, 1.1), ("errors", 0.049, 0.01)],
)
def test_at_a_step_healthy_is_better_than_the_threshold_by_a_margin(signal, barely, well) -> None:
    step = Played().see("bad", 3, signal=signal).see("no_traffic", 10)
    assert step.see("healthy", 20, signal=signal, value=barely).at == ("canary", 5)
    assert step.last is not None
    assert "is not 5%" in step.last.why
    assert step.see("healthy", 2, signal=signal, value=well).at == ("canary", 50)


def test_a_class_that_is_bad_alone_holds_a_step_and_does_not_fall_back() -> None:
    on = Played().see("bad", 50, signal="tpot", of="code")
    assert on.at == ("on", 100)
    assert on.last is not None
    assert "only these parts are bad: class code;" in on.last.why
    step = Played().see("bad", 3).see("no_traffic", 10)
    assert step.see("bad", 20, signal="tpot", of="code").at == ("canary", 5)


@pytest.mark.parametrize("verdict", ["bad", "healthy"])
def test_no_class_is_called_bad_alone_where_all_traffic_is_or_none(verdict) -> None:
    assert "only these parts" not in str(Played().see(verdict).last)


def test_attempts_are_bounded_and_each_wait_is_longer() -> None:
    played = Played().see("bad", 3)
    waits = [played.state.wait_s]
    for _ in range(2):
        played.see("no_traffic", int(played.state.wait_s / 60) + 1)
        assert played.state.mode == "canary"
        played.see("bad", 3)
        waits.append(played.state.wait_s)
    assert waits == [600, 1800, 0]
    assert played.at == ("held", 0)
    assert played.events == ("fell_back", "gave_up")
    assert played.see("healthy", 500).at == ("held", 0)


def test_attempts_are_forgotten_once_it_is_on_for_good() -> None:
    played = Played().see("bad", 3).see("no_traffic", 10).see("healthy", 6, value=0.8)
    assert (played.at, played.state.attempts) == (("on", 100), 1)
    assert played.see("healthy", 10).state.attempts == 0
    assert played.events == ("settled",)


def test_the_longest_wait() -> None:
    assert Rules(cooldown_s=600, backoff=100, max_wait_s=86400).wait_s(20) == 86400
    assert Rules(cooldown_s=600, max_wait_s=60).wait_s(0) == 600


def test_what_the_standard_pool_cannot_carry_stays_unless_requests_fail() -> None:
    rules = RULES.keeping(20)
    fallen = Played(rules).see("bad", 3)
    assert fallen.at == ("fallen", 20)
    assert Played(rules).see("bad", 3, signal="errors").at == ("fallen", 0)
    assert fallen.see("bad", 3, signal="errors").at == ("fallen", 0)
    held = Played(replace(rules, attempts=0)).see("bad", 3)
    assert held.at == ("held", 20)
    assert held.see("bad", 3, signal="errors").at == ("held", 0)
    back = Played(rules).see("bad", 3).see("healthy", 10)
    assert back.at == ("canary", 50), "a step goes up"


def test_what_is_switched_as_a_whole_has_no_steps_and_no_floor() -> None:
    whole = Rules.of(Guard.model_validate({"actions": [{"kind": "http", "url": "http://flags.test/api"}]}))
    assert whole.steps == ()
    assert whole.keeping(40).floor == 0
    assert Played(whole).see("bad", 3).see("no_traffic", 30).at == ("canary", 100)


def test_evaluations_that_alerts_bring_forward_count_half_an_interval_apart() -> None:
    state, now = State(), 0.0
    for apart in (60, 1, 1, 1, 28):
        now += apart
        state = decide(state, seen("bad"), now, RULES).state
    assert state.bad_in_a_row == 2, "the first, and the one 31 s after it"


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_a_clock_that_jumps_restores_nothing_early_and_does_not_hang(jump) -> None:
    played = Played().see("bad", 3).see("no_traffic", 4)
    played.now += jump
    left = played.see("no_traffic").state.wait_s
    assert left >= 600 - 5 * 60
    assert played.see("no_traffic", int(left / 60)).at == ("canary", 5)


@pytest.mark.parametrize(("away_s", "wanted"), [(599.0, 0), (601.0, 100)])
def test_an_override_s_time_runs_while_no_guard_does(away_s: float, wanted: int) -> None:
    override = Override(pool="standard", by="ada", why="a look", left_s=600)
    state = pin(State(), override, 1000.0, RULES).state
    decision = decide(state, seen("healthy"), 1000.0 + away_s, RULES)
    assert decision.state.target_percent == wanted, (
        "all of the time that passed counts, not an interval of it"
    )
    if decision.state.override is not None:
        assert decision.state.override.left_s == pytest.approx(1.0)
    else:
        assert decision.events == ("released",)


def test_an_override_loses_no_time_to_a_clock_that_went_back_nor_to_another_pin() -> None:
    override = Override(pool="standard", by="ada", why="a look", left_s=600)
    state = pin(State(at=5000.0), override, 5000.0, RULES).state
    back = decide(state, seen("healthy"), 1000.0, RULES).state
    assert back.override == override
    later = pin(back, override.model_copy(update={"left_s": 300.0}), 1100.0, RULES).state
    assert later.override is not None
    assert later.override.left_s == 300.0, "the time of a new pin begins with it"


def test_a_persons_override_comes_first_and_ends_by_itself() -> None:
    played = Played()
    override = Override(pool="standard", by="ada", why="a look", left_s=600)
    played.state = pin(played.state, override, played.now, RULES).state
    assert played.state.target_percent == 0
    assert played.see("healthy", 9).state.target_percent == 0
    assert played.see("healthy").state.target_percent == 100
    assert played.events == ("released",)


def test_pinned_to_speculation_bad_does_not_fall_until_it_ends() -> None:
    played = Played()
    override = Override(pool="speculative", by="ada", why="a look", left_s=None)
    played.state = pin(played.state, override, played.now, RULES).state
    assert played.see("bad", 50).state.target_percent == 100
    played.state = release(played.state, "ada", "seen enough", played.now, RULES).state
    assert played.see("bad").at == ("fallen", 0)


def test_pinned_to_speculation_and_well_it_is_on_afterwards() -> None:
    played = Played().see("bad", 3)
    override = Override(pool="speculative", by="ada", why="a new draft", left_s=None)
    played.state = pin(played.state, override, played.now, RULES).state
    played.see("healthy", 2)
    played.state = release(played.state, "ada", "it is well", played.now, RULES).state
    assert played.at == ("on", 100)


def test_handed_back_what_was_held_is_tried_again_once() -> None:
    held = State(mode="held", percent=0, attempts=2)
    handed = release(held, "ada", "repaired", 0.0, RULES)
    assert (handed.state.mode, handed.state.percent, handed.state.attempts) == ("canary", 5, 0)
    again = release(handed.state, "ada", "repaired", 0.0, RULES)
    assert again.state == handed.state, "saying it twice is saying it once"


def test_handed_back_routers_that_another_hand_switched_come_up_by_steps() -> None:
    assert release(State(), "ada", "go", 0.0, RULES, found=0).state.percent == 5
    assert release(State(), "ada", "go", 0.0, RULES, found=5).state.percent == 50
    assert release(State(), "ada", "go", 0.0, RULES, found=100).state.percent == 100


def test_handed_back_at_a_step_it_comes_up_from_what_was_found_and_never_beyond_the_step() -> None:
    step = State(mode="canary", percent=50)
    assert release(step, "ada", "go", 0.0, RULES, found=0).state.percent == 5
    assert release(step, "ada", "go", 0.0, RULES, found=50).state == step.model_copy(update={"at": 0.0})
    override = Override(pool="speculative", by="ada", why="a new draft", left_s=None)
    pinned = State(mode="canary", percent=5, override=override)
    assert release(pinned, "ada", "go", 0.0, RULES, found=50).state.percent == 5
    on = State(override=override)
    assert release(on, "ada", "go", 0.0, RULES, found=0).state.percent == 5, "another hand had switched one"


def test_handing_back_says_whether_there_was_an_override() -> None:
    pinned = pin(State(), Override(pool="standard", by="ada", why="so", left_s=None), 10.0, Rules()).state
    handed = release(pinned, "ada", "done", 20.0, Rules())
    assert (handed.events, handed.state.override) == (("released",), None)
    again = release(handed.state, "ada", "twice", 30.0, Rules())
    assert again.events == ()
    assert "had it already" in again.why
