"""The referee of adaptive pools: simulated servers, whose best fixed setting is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from made_contests import LIMITS, SERVERS, STEPS, Speed, fixed, judged, segments

from specops.config import LoadPhase
from specops.phases.referee.judging import judge
from specops.phases.referee.records import ADAPTIVE, OFF


def with_adaptive(speed: Speed) -> dict[str, Speed]:
    return SERVERS | {ADAPTIVE: speed}


def test_a_pool_that_matches_the_best_setting_everywhere_pays() -> None:
    findings = judged(SERVERS, noise=0.01, pass_noise=0.003)
    assert findings.verdict == "pays"
    assert [phase.verdict for phase in findings.phases] == ["pays", "pays", "even"]
    assert [phase.best for phase in findings.phases] == ["k=5", "k=3", "k=3"]
    assert findings.off is not None
    assert findings.off.low > 1
    assert findings.collapses == []
    assert not any(phase.swings for phase in findings.phases)


@pytest.mark.parametrize("seed", range(4))
def test_the_ratios_agree_with_the_oracle(seed: int) -> None:
    """The adaptive pool is 20% slower than the best setting of each phase."""
    findings = judged(with_adaptive(fixed(1.52, 0.8, 0.4)), seed=seed, requests=48)
    for phase in findings.phases:
        assert phase.regret is not None
        assert phase.regret.low < 0.25 < phase.regret.high
        assert phase.regret.estimate == pytest.approx(0.25, abs=0.03)
    assert findings.verdict == "loses"


def test_equal_settings_do_not_make_regret_look_larger() -> None:
    """Eight equal settings: the fastest of a run is lucky. Its plain ratio is biased; the estimate is not."""
    servers = {OFF: fixed(0.5, 0.5, 0.5), ADAPTIVE: fixed(1, 1, 1)}
    servers |= {f"s{number}": fixed(1, 1, 1) for number in range(8)}
    estimates, lucky, excluded = [], [], 0
    for seed in range(24):
        findings = judged(servers, STEPS[:1], seed=seed, noise=0.3, pass_noise=0.05)
        (phase,) = findings.phases
        assert phase.regret is not None
        estimates.append(phase.regret.estimate)
        excluded += phase.regret.low > 0
        measured = segments(servers, STEPS[:1], seed=seed, noise=0.3, pass_noise=0.05)
        sums = {
            arm: sum(
                answer.e2e_ms
                for segment in measured
                if segment.arm == arm
                for answer in segment.answers.values()
            )
            for arm in servers
        }
        best = min(total for arm, total in sums.items() if arm.startswith("s"))
        lucky.append(sums[ADAPTIVE] / best - 1)
    assert abs(np.mean(estimates)) < 0.02
    assert np.mean(lucky) > 0.025, "without a bias of the plain ratio, nothing was tested"
    assert excluded <= 2


def test_a_collapse_at_a_batch_size_is_named_with_its_threshold() -> None:
    """As vllm#49548: above a threshold it is slower than off and than every fixed setting."""
    phases = [LoadPhase(streams=streams) for streams in (1, 4, 8, 16)]
    servers: dict[str, Speed] = {
        OFF: lambda phase, at_s, number: 1.0,
        "k=3": lambda phase, at_s, number: 1.3,
        ADAPTIVE: lambda phase, at_s, number: 0.4 if (phase.streams or 0) >= 8 else 1.3,
    }
    findings = judged(servers, phases, requests=32)
    assert findings.verdict == "loses"
    assert [phase.collapse for phase in findings.phases] == [False, False, True, True]
    assert findings.collapses == ["collapse between 4 streams and 8 streams"]


def test_a_loss_that_off_shares_is_no_collapse() -> None:
    findings = judged(with_adaptive(fixed(1.9, 1.0, 0.45)), noise=0.01, pass_noise=0.003)
    assert findings.phases[2].verdict == "loses"  # off is better, k=3 and k=5 are worse
    assert findings.collapses == []


@pytest.mark.parametrize("traffic", ["", "short:1"])
def test_a_collapse_at_the_lightest_load_has_no_lower_threshold(traffic: str) -> None:
    mix = {"short": 1.0} if traffic else None
    phases = [LoadPhase(streams=1, mix=mix), LoadPhase(streams=4, mix=mix)]
    findings = judged(with_adaptive(fixed(0.5, 1.0, 1.0)), phases)
    (collapse,) = findings.collapses
    assert collapse.startswith("collapse at 1 stream")
    assert "the lightest load" in collapse
    assert ("short" in collapse) == bool(traffic)


@pytest.mark.parametrize("after_s", [4.0, 10.0, 17.0])
def test_the_time_to_adapt_is_that_of_the_change(after_s: float) -> None:
    phases = [LoadPhase(streams=1), LoadPhase(streams=2)]
    servers: dict[str, Speed] = {
        OFF: lambda phase, at_s, number: 1.0,
        "k=3": lambda phase, at_s, number: 1.5,
        ADAPTIVE: lambda phase, at_s, number: 1.5 if at_s >= after_s or phase.streams == 1 else 1.0,
    }
    findings = judged(servers, phases, requests=64)
    adaptation = findings.phases[1].adaptation
    assert adaptation is not None
    assert adaptation.outcome == "adapts"
    assert adaptation.time_s == pytest.approx(after_s, abs=1.5)
    assert adaptation.change is not None
    assert adaptation.change.low > 1.2


def test_a_pool_that_never_adapts_is_reported_with_the_observed_time() -> None:
    findings = judged(with_adaptive(fixed(1.9, 0.7, 0.3)), noise=0.01)
    adaptation = findings.phases[1].adaptation
    assert adaptation is not None
    assert (adaptation.outcome, adaptation.time_s) == ("not observed", None)
    assert adaptation.observed_s > 1


def test_a_pool_that_is_right_from_the_start_adapts_at_once() -> None:
    findings = judged(SERVERS, noise=0.01, pass_noise=0.003)
    assert [phase.adaptation and phase.adaptation.outcome for phase in findings.phases] == ["at once"] * 3


def test_without_a_change_of_load_there_is_no_time_to_adapt() -> None:
    assert judged(SERVERS, STEPS[:1]).phases[0].adaptation is None


def swinging(period_s: float) -> Speed:
    """Fast and slow in turn; each pass begins elsewhere in the period."""

    def speed(phase: LoadPhase, at_s: float, number: int) -> float:
        return 1.6 if math.sin(2 * math.pi * at_s / period_s + 1.7 * number) > 0 else 1.0

    return speed


@pytest.mark.parametrize("period_s", [6.0, 9.0])
def test_a_swing_of_the_speed_is_found_with_its_period(period_s: float) -> None:
    servers = {OFF: fixed(1, 1, 1), "k=3": fixed(1.3, 1.3, 1.3), ADAPTIVE: swinging(period_s)}
    (phase,) = judged(servers, STEPS[:1], requests=64, noise=0.08).phases
    (swing,) = phase.swings
    assert swing.figure == "speed"
    assert swing.period_s == pytest.approx(period_s, rel=0.25)
    assert 0.2 < swing.size < 0.9


def test_a_swing_of_the_drafts_is_found_where_the_speed_is_even() -> None:
    servers = {OFF: fixed(1, 1, 1), "k=3": fixed(1.3, 1.3, 1.3), ADAPTIVE: fixed(1.3, 1.3, 1.3)}
    (phase,) = judged(servers, STEPS[:1], requests=64, drafting=swinging(6.0)).phases
    assert [swing.figure for swing in phase.swings] == ["drafting"]


def test_noise_and_unequal_requests_are_no_swing() -> None:
    swinging_runs = 0
    for seed in range(30):
        findings = judged(SERVERS, STEPS[:1], seed=seed, noise=0.3, requests=48)
        swinging_runs += bool(findings.phases[0].swings)
    assert swinging_runs <= 3


def test_a_machine_that_swings_makes_swings_unknown() -> None:
    """A pool that is slowed down with off, while a fixed setting is not, proves nothing."""
    machine = swinging(6.0)
    servers: dict[str, Speed] = {
        OFF: machine,
        "k=3": lambda phase, at_s, number: 1.9,
        ADAPTIVE: machine,
    }
    (phase,) = judged(servers, STEPS[:1], requests=64).phases
    assert phase.swings == []
    assert phase.swings_unknown is not None


def test_too_few_passes_or_requests_are_unknown() -> None:
    few = judged(SERVERS, passes=3)
    assert {phase.verdict for phase in few.phases} == {"unknown"}
    assert (few.verdict, few.off) == ("unknown", None)
    short = judged(SERVERS, requests=6)
    assert "too short: 6 requests" in short.phases[0].why
    assert short.verdict == "unknown"


def test_noise_is_undecided_and_not_a_yes() -> None:
    findings = judged(SERVERS, noise=0.8, pass_noise=0.3)
    assert findings.verdict in ("undecided", "loses")
    assert findings.phases[1].verdict == "undecided"


def test_shorter_answers_are_not_a_gain() -> None:
    findings = judged(with_adaptive(fixed(3, 3, 3)), tokens={ADAPTIVE: 50})
    assert findings.verdict == "unknown"
    assert "0.50 times the tokens" in findings.phases[0].why


def test_failures_of_the_adaptive_pool_alone_lose() -> None:
    findings = judged(with_adaptive(fixed(3, 3, 3)), failures={ADAPTIVE: 4})
    assert findings.verdict == "loses"
    assert "24 of 144 requests failed" in findings.phases[0].why


def test_a_few_failures_of_the_adaptive_pool_alone_are_not_a_yes() -> None:
    findings = judged(SERVERS, requests=48, failures={ADAPTIVE: 1}, noise=0.01, pass_noise=0.003)
    assert {phase.verdict for phase in findings.phases} == {"undecided"}
    failures = {ADAPTIVE: 1, OFF: 1}
    shared = judged(SERVERS, passes=12, requests=48, failures=failures, noise=0.01, pass_noise=0.003)
    assert shared.verdict == "pays"


def test_failures_without_speculation_are_unknown() -> None:
    findings = judged(with_adaptive(fixed(3, 3, 3)), failures={ADAPTIVE: 4, OFF: 4})
    assert findings.verdict == "unknown"


def test_a_static_setting_that_fails_is_left_out() -> None:
    findings = judged(SERVERS, failures={"k=5": 12}, noise=0.01, pass_noise=0.003)
    assert findings.verdict == "pays"
    assert all(phase.best == "k=3" and "k=5" in phase.left_out for phase in findings.phases)


def test_a_static_setting_with_other_answers_leaves_the_phase_unknown() -> None:
    findings = judged(SERVERS, tokens={"k=5": 50}, noise=0.01, pass_noise=0.003)
    assert findings.verdict == "unknown"
    assert "k=5 was not compared" in findings.phases[0].why


def test_a_segment_that_the_client_limited_does_not_count() -> None:
    measured = segments(SERVERS)
    limited = [
        replace(segment, unusable="busy") if segment.arm == ADAPTIVE and segment.pass_number < 3 else segment
        for segment in measured
    ]
    findings = judge(limited, STEPS, ["k=3", "k=5"], LIMITS)
    assert findings.verdict == "unknown"
    assert "3 of 6 passes can be used, expected 4: busy" in findings.phases[0].why


def test_off_as_fast_as_adaptive_is_not_a_yes() -> None:
    """Adapting that gains nothing anywhere does not pay."""
    same = fixed(1, 1, 1)
    findings = judged({OFF: same, "k=3": same, ADAPTIVE: same}, noise=0.01, pass_noise=0.003)
    assert {phase.verdict for phase in findings.phases} == {"even"}
    assert findings.verdict == "undecided"
