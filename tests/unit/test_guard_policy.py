"""The guard's policy: what it does about what it sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_evaluations import seen

from specops.config.guard import Guard
from specops.guard.policy import GuardRules, decide, pin, release
from specops.guard.state import Evaluation, GuardDecision, Override, Probe, SignalFinding, State

RULES = GuardRules(
    interval_s=60, consecutive=3, cooldown_s=600, steps=(5, 50), hold=2, attempts=2, backoff=3.0
)


class Played:
    """A guard's decisions, an interval apart."""

    def __init__(self, rules: GuardRules = RULES, state: State | None = None) -> None:
        self.rules, self.state, self.now = rules, state or State(), 1000.0
        self.last: GuardDecision | None = None

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
    strict = SignalFinding.model_validate(
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
    assert GuardRules(cooldown_s=600, backoff=100, max_wait_s=86400).wait_s(20) == 86400
    assert GuardRules(cooldown_s=600, max_wait_s=60).wait_s(0) == 600


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
    whole = GuardRules.from_settings(
        Guard.model_validate({"actions": [{"kind": "http", "url": "http://flags.test/api"}]})
    )
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
    assert release(State(), "ada", "go", 0.0, RULES, observed_percent=0).state.percent == 5
    assert release(State(), "ada", "go", 0.0, RULES, observed_percent=5).state.percent == 50
    assert release(State(), "ada", "go", 0.0, RULES, observed_percent=100).state.percent == 100


def test_handed_back_at_a_step_it_comes_up_from_what_was_found_and_never_beyond_the_step() -> None:
    step = State(mode="canary", percent=50)
    assert release(step, "ada", "go", 0.0, RULES, observed_percent=0).state.percent == 5
    assert release(step, "ada", "go", 0.0, RULES, observed_percent=50).state == step.model_copy(
        update={"at": 0.0}
    )
    override = Override(pool="speculative", by="ada", why="a new draft", left_s=None)
    pinned = State(mode="canary", percent=5, override=override)
    assert release(pinned, "ada", "go", 0.0, RULES, observed_percent=50).state.percent == 5
    on = State(override=override)
    assert release(on, "ada", "go", 0.0, RULES, observed_percent=0).state.percent == 5, (
        "another hand had switched one"
    )


def test_handing_back_says_whether_there_was_an_override() -> None:
    pinned = pin(
        State(), Override(pool="standard", by="ada", why="so", left_s=None), 10.0, GuardRules()
    ).state
    handed = release(pinned, "ada", "done", 20.0, GuardRules())
    assert (handed.events, handed.state.override) == (("released",), None)
    again = release(handed.state, "ada", "twice", 30.0, GuardRules())
    assert again.events == ()
    assert "had it already" in again.why


def findings(**verdicts: str) -> tuple[SignalFinding, ...]:
    """Findings of the whole pool by signal; `_` before a verdict: nothing was measured to compare with."""
    made = []
    for signal, word in verdicts.items():
        limit = None if word.startswith("_") else {"value": 1.2, "source": "the test"}
        value = 1.0 if word == "healthy" else None
        made.append(
            SignalFinding.model_validate(
                {
                    "signal": signal,
                    "verdict": word.removeprefix("_"),
                    "value": value if signal != "acceptance" else 2.0,
                    "threshold": limit,
                    "why": f"{signal}: {word}",
                }
            )
        )
    return tuple(made)


def judged(verdict: str, probe: Probe | None = None, **verdicts: str) -> Evaluation:
    known = {"acceptance": "healthy", "errors": "healthy", "tpot": "healthy", "e2e": "healthy"} | verdicts
    return Evaluation.model_validate(
        {"ts": 0, "verdict": verdict, "reason": "r", "findings": findings(**known), "probe": probe}
    )


def after(state: State, evaluation: Evaluation, times: int = 1, rules: GuardRules = RULES) -> State:
    now = state.at or 0.0
    for _ in range(times):
        now += rules.interval_s
        state = decide(state, evaluation, now, rules).state
    return state


def fallen(signal: str = "tpot") -> State:
    state = after(State(), judged("bad", **{signal: "bad"}), 3)
    assert (state.mode, state.fell_for) == ("fallen", (signal,))
    return after(state, judged("no_traffic"), 10)


def test_a_step_needs_the_signal_that_it_fell_for_whatever_the_others_say() -> None:
    step = fallen("tpot")
    assert (step.mode, step.percent) == ("canary", 5)
    for word in ("unknown", "no_traffic", "no_data", "_unknown"):
        waiting = after(step, judged("healthy", tpot=word), 200)
        assert (waiting.mode, waiting.percent) == ("canary", 5), word
    assert after(step, judged("healthy"), 2).percent == 50
    back = after(step, judged("healthy"), 6)
    assert (back.mode, back.fell_for) == ("on", ())


def test_a_step_needs_every_signal_that_has_a_reference_and_no_bad_part() -> None:
    step = fallen("acceptance")
    for verdict, verdicts in (
        ("unknown", {"tpot": "unknown"}),
        ("no_data", {"errors": "no_data"}),
        ("no_traffic", {"e2e": "no_traffic"}),
    ):
        assert after(step, judged(verdict, **verdicts), 200).percent == 5, verdicts
    replica = SignalFinding.model_validate(
        {"signal": "tpot", "replica": "a:1", "verdict": "bad", "why": "slow"}
    )
    degraded = judged("degraded")
    degraded = degraded.model_copy(update={"findings": (*degraded.findings, replica)})
    assert after(step, degraded, 200).percent == 5
    uncovered = judged("no_data").model_copy(update={"not_covered": ("a:1: 0% of the scrapes",)})
    assert after(step, uncovered, 200).percent == 5
    # Nothing was measured that latency could be compared with, and it did not fall for it.
    assert after(step, judged("unknown", tpot="_unknown", e2e="_unknown"), 2).percent == 50


def test_an_attempt_begins_with_the_share_that_gives_a_verdict_within_a_cool_down() -> None:
    rules = replace(RULES, steps=(5, 25, 50))
    state = after(State(), judged("bad", tpot="bad"), 3, rules)
    for rate, percent in ((10.0, 5), (1.0, 25), (0.5, 50), (0.001, 50), (0.0, 50)):
        probe = Probe(eligible_per_s=rate, requests=120.0)  # of 600 s
        assert after(state, judged("no_traffic", probe=probe), 10, rules).percent == percent, rate
    light = Probe(eligible_per_s=10.0, requests=120.0, least_share=0.3)
    assert after(state, judged("no_traffic", probe=light), 10, rules).percent == 50, "too light a load"
    assert after(state, judged("no_traffic"), 10, rules).percent == 5, "nobody counts them"


def test_traffic_that_gets_too_thin_is_named_and_changes_the_share_once_a_cool_down() -> None:
    rules = replace(RULES, steps=(5, 25, 50))
    state = after(State(), judged("bad", tpot="bad"), 3, rules)
    busy = Probe(eligible_per_s=10.0, requests=120.0)
    step = after(state, judged("no_traffic", probe=busy), 10, rules)
    thin = judged("no_traffic", probe=Probe(eligible_per_s=1.0, requests=120.0), tpot="no_traffic")
    decision = decide(step, thin, (step.at or 0.0) + 60, rules)
    assert decision.state.percent == 5
    assert "120 requests take about 40 min at 3.0 a minute" in decision.why
    assert after(step, thin, 9, rules).percent == 5
    moved = decide(after(step, thin, 9, rules), thin, (step.at or 0.0) + 600, rules)
    assert (moved.state.percent, moved.events) == (25, ("probe",))
    assert moved.state.healthy_in_a_row == 0, "a share that suffices is not a step that was earned"
    assert after(moved.state, thin, 500, rules).percent == 25


WORDS = st.sampled_from(
    (
        *["healthy"] * 12,
        *["_unknown"] * 4,
        "bad",
        "no_data",
        "no_traffic",
        "unknown",
    )  # most rows are nearly well
)
SIGNALS = ("acceptance", "tpot", "e2e", "errors")


@given(
    st.sets(st.sampled_from(SIGNALS), min_size=1),
    st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS), min_size=1, max_size=40),
)
def test_up_step_and_returned_never_come_without_the_signals_that_it_fell_for(fell_for, words) -> None:
    state = State(mode="canary", percent=5, fell_for=tuple(sorted(fell_for)), at=0.0)
    proofs = 0
    for number, row in enumerate(words, 1):
        verdicts = dict(zip(SIGNALS, row, strict=True))
        verdict = "bad" if "bad" in row else "healthy"  # whatever the evaluation says of itself
        decision = decide(state, judged(verdict, **verdicts), 60.0 * number, RULES)
        well = all(verdicts[signal] == "healthy" for signal in fell_for)
        proofs = proofs + 1 if well and "bad" not in row else proofs
        if {"step", "returned"} & set(decision.events):
            assert well
            assert proofs >= RULES.hold
            proofs = 0
        if decision.state.mode != "canary":
            break
        state = decision.state


def test_it_is_blind_from_the_first_evaluation_without_a_verdict_to_the_next_with_one() -> None:
    state = after(State(at=0.0), judged("unknown", tpot="unknown"), 5)
    assert state.blind_since == 60.0
    assert after(state, judged("no_data", tpot="no_data")).blind_since == 60.0
    for verdict in ("healthy", "no_traffic", "bad", "degraded"):
        assert after(state, judged(verdict)).blind_since is None
    partly = judged("bad", tpot="bad").model_copy(update={"not_covered": ("a:1: away",)})
    assert after(state, partly).blind_since == 60.0, "a part that nobody sees"
    both = judged("unknown").model_copy(update={"both_slow": True})
    assert after(state, both).blind_since is None, "that is a verdict, with an alert of its own"
