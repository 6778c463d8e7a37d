"""Traces: put together into windows, kept, made up; and replayed through the guard's own rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_windows import cell, row
from typer.testing import CliRunner

from specops import results
from specops.cli.app import app
from specops.config import load
from specops.errors import UsageError
from specops.guard.policy import GuardRules
from specops.guard.signals import verdicts
from specops.guard.signals.criteria import Baseline, BaselineLevel, Criteria
from specops.guard.signals.noise import VERDICTS
from specops.guard.signals.query import FIGURES, LiveFigures, LiveQuery
from specops.guard.simulation import holdout, traces
from specops.guard.simulation.holdout import at_instant
from specops.guard.simulation.simulate import observed, simulate
from specops.guard.simulation.synthetic import SimulatedIncident, WeekConstants, weeks
from specops.guard.simulation.traces import Answers, LiveTrace, windows
from specops.guard.state import State, Threshold
from specops.load.arrivals import Level as Load
from specops.phases.inputs import inputs_of, settings_of
from specops.results import Result
from specops.serving.vllm.pool import SERIES as VLLM

SPREAD = {"tpot_cv": 0.2, "tpot_error": 0.01, "e2e_cv": 0.2, "e2e_error": 0.01}
SPREAD |= {"whole_cv": 0.5, "whole_error": 0.03}
BASELINE = Baseline(
    (
        BaselineLevel(streams=1, ttft=0.1, tpot=0.02, token=0.02, e2e=4.1, **SPREAD),
        BaselineLevel(streams=32, ttft=0.2, tpot=0.04, token=0.04, e2e=8.2, **SPREAD),
    ),
    "made up",
)
PLAN = Criteria(
    query=LiveQuery("made-up", VLLM, VLLM, {}, scrape_s=15.0, routed=True),
    window_s=300.0,
    min_acceptance=Threshold(value=0.4, source="made up"),
    baseline=BASELINE,
    regression=Threshold(value=1.2, source="made up"),
    max_error_share=Threshold(value=0.05, source="made up"),
    min_requests=None,
)
HOURS = WeekConstants(BASELINE, 0.4, tokens=50.0, length_s=8 * 3600.0, busy=(1.5, 1.6))


COUNTED = (
    '{"trace": 5, "interval_s": 60,'
    ' "effect": {"mode": "requests", "first_end": 60, "bins": 1, "classes": ["a"]'
)


def trace(**figures: list[float]) -> LiveTrace:
    """Of a minute each; what is not given is not there."""
    length = len(next(iter(figures.values())))
    known = {name: np.array(figures.get(name, [np.nan] * length), dtype=float) for name in FIGURES}
    nothing = np.full(length, np.nan)
    ts = 60.0 * np.arange(1, length + 1)
    return LiveTrace(60.0, LiveFigures(ts=ts, **known), Answers(nothing, nothing, nothing), nothing)


def hit(slower: float, *, in_acceptance: bool, seed: int = 3) -> LiveTrace:
    incident = SimulatedIncident(np.array([240]), np.array([slower]), np.array([in_acceptance]))
    return weeks(HOURS, 1, np.random.default_rng(seed), incident).select(0)


WITH_HOLDOUT = replace(PLAN, holdout=0.1)
SHORT = replace(HOURS, length_s=2 * 3600.0, holdout=0.1)


def test_the_effect_decides_first_where_the_baseline_is_of_other_prompts() -> None:
    """Answers now take twice what was measured before, on both pools, and speculation pays all the same."""
    made = weeks(SHORT, 1, np.random.default_rng(2)).select(0)
    halved = tuple(
        replace(level, tpot=level.tpot / 2, token=level.token / 2, e2e=level.e2e / 2, ttft=level.ttft / 2)
        for level in BASELINE.levels
    )
    of_others = replace(WITH_HOLDOUT, baseline=Baseline(halved, "made up"))
    found = simulate(made, of_others, GuardRules())
    without = simulate(replace(made, effect=None), of_others, GuardRules())
    assert (found.fallbacks, found.verdict) == ([], "yes")
    assert found.decided_by["live effect"] > 60
    assert found.verdicts["healthy"] > without.verdicts.get("healthy", 0) + 60
    assert without.decided_by == {"baseline": 120}


@pytest.mark.slow
def test_the_effect_finds_what_is_within_what_the_baseline_allows() -> None:
    """12% slower than without speculation; the rollout file allows 20% beyond the baseline."""
    incident = SimulatedIncident(np.array([240]), np.array([1.12]), np.array([False]))
    made = weeks(replace(HOURS, holdout=0.1), 1, np.random.default_rng(4), incident).select(0)
    found = simulate(made, WITH_HOLDOUT, GuardRules())
    first = found.fallbacks[0]
    assert "that of the holdout" in first.why
    assert "(threshold 1.00×, live effect)" in first.why
    assert first.ts > 240 * 60
    assert simulate(made, PLAN, GuardRules()).fallbacks == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_healthy_time_with_a_holdout_never_falls_back(seed: int) -> None:
    made = weeks(replace(HOURS, holdout=0.05), 1, np.random.default_rng(seed)).select(0)
    found = simulate(made, replace(PLAN, holdout=0.05), GuardRules())
    assert (found.fallbacks, found.verdict) == ([], "yes")


def test_counters_of_before_a_change_of_the_share_are_not_read() -> None:
    counters = weeks(SHORT, 1, np.random.default_rng(2)).select(0).effect
    assert counters is not None
    ts = float(counters.ends[99])
    whole, later = at_instant(counters, ts, None, 1.0), at_instant(counters, ts, ts - 600, 0.5)
    assert (whole.ends[-1], whole.ends.size) == (ts, 100)
    assert later.ends.min() - later.bin_s >= ts - 600
    n = counters.figures["e2e"].n
    assert later.figures["e2e"].n.sum() == pytest.approx(0.5 * n[100 - later.ends.size : 100].sum())


def test_a_window_adds_counts_and_weighs_means() -> None:
    made = trace(finished=[10, 0, 30], tokens=[100, np.nan, 200], restarts=[1, 0, 0])
    seen = windows(made, 2, 3)
    assert np.asarray(seen.finished).tolist() == [10, 10, 30]
    assert np.asarray(seen.tokens).tolist() == [100, 100, 200]
    assert np.asarray(seen.restarts).tolist() == [1, 1, 1]
    assert np.isnan(np.asarray(seen.acceptance)).all()


@given(
    st.lists(st.one_of(st.just(float("nan")), st.floats(0, 1e6)), min_size=1, max_size=30),
    st.integers(1, 40),
)
def test_a_window_s_sum_is_the_sum_of_what_is_there(values: list[float], intervals: int) -> None:
    seen = np.asarray(windows(trace(finished=values), intervals, intervals).finished)
    for at, found in enumerate(seen):
        there = [v for v in values[max(at + 1 - intervals, 0) : at + 1] if v == v]
        assert found == pytest.approx(sum(there), rel=1e-9, abs=1e-9) if there else np.isnan(found)


def test_a_trace_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    made = weeks(SHORT, 1, np.random.default_rng(3)).select(0)
    traces.save(made, tmp_path / "trace.jsonl")
    again = traces.load(tmp_path / "trace.jsonl")
    for name in ("ts", *FIGURES):
        assert np.array_equal(getattr(again.figures, name), getattr(made.figures, name), equal_nan=True), name
    assert np.array_equal(again.playbook.acceptance, made.playbook.acceptance)
    assert np.array_equal(again.slower, made.slower)
    assert made.effect is not None
    assert again.effect is not None
    assert again.effect.ends == pytest.approx(made.effect.ends)
    assert (again.effect.bin_s, again.effect.mode, again.effect.classes) == (60.0, "requests", ("default",))
    for figure in ("tpot", "e2e"):
        for name in holdout.SUMS:
            stored, counted = (getattr(one.effect.figures[figure], name) for one in (again, made))
            assert np.array_equal(stored, counted), (figure, name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: it is empty"),
        ("no json", "line 1: Expecting value"),
        ('{"a": 1}', "line 1: there is no 'trace'"),
        ('{"trace": 9, "interval_s": 60}', "expected 2 to 5"),
        ('{"trace": 2, "interval_s": 60}', "it has no interval"),
        ('{"trace": 2, "interval_s": "nan"}\n{"ts": 1}', "line 1: invalid interval nan s"),
        ('{"trace": 2, "interval_s": 60}\n{"finished": 3}', "line 2: there is no 'ts'"),
        ('{"trace": 2, "interval_s": 60}\n{"ts": 1e30}', "invalid time"),
        (
            '{"trace": 2, "interval_s": 60}\n{"ts": 120}\n{"ts": 60}',
            "line 3: invalid time 60: expected one after 120",
        ),
        ('{"trace": 2, "interval_s": 60}\n{"ts": 1, "speed": 3}', "line 2: unknown: speed"),
        ('{"trace": 2, "interval_s": 60}\n{"ts": 1, "tpot": "fast"}', "line 2: could not convert"),
        ('{"trace": 2, "interval_s": 60}\n[1]', "line 2"),
        (f'{COUNTED}, "bin_s": -1}}}}\n{{"ts": 60}}', "invalid counters"),
        (f'{COUNTED}, "bin_s": 60}}}}\n{{"ts": 60}}\n{{"bin": 0, "class": "a", "e2e": [[1]]}}', "1 sums"),
        (
            f'{COUNTED}, "bin_s": 60}}}}\n{{"ts": 60}}\n{{"bin": 7, "class": "a", "e2e": [[1,1,1,1,1,1]]}}',
            "out of bounds",
        ),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "trace.jsonl").write_text(text)
    with pytest.raises(UsageError, match="invalid trace") as raised:
        traces.load(tmp_path / "trace.jsonl")
    assert said in raised.value.message


@pytest.mark.quick(1)
@pytest.mark.parametrize("in_acceptance", [True, False])
def test_a_regression_is_acted_on_within_the_window_and_three_intervals(in_acceptance: bool) -> None:
    found = simulate(hit(1.3, in_acceptance=in_acceptance), PLAN, GuardRules())
    (first, *_) = found.fallbacks
    assert 0 < first.ts - 240 * 60 <= 300 + 3 * 60
    assert (first.rightly, found.verdict) == ("yes", "yes")
    (detection,) = found.detections
    assert (detection.status, detection.allowed_s) == ("in time", 480)
    assert (detection.acted, detection.delay_s) == (first.ts, first.ts - 240 * 60)
    assert detection.requests > 300


def test_a_fallback_hours_after_an_incident_began_is_late_and_never_correct() -> None:
    """The pool has hardly any traffic at first, so nothing can be known. It counts all the same."""
    made = hit(1.5, in_acceptance=False)
    few = np.where((np.arange(480) >= 240) & (np.arange(480) < 400), 0.002, 1.0)
    counts = {
        name: np.floor(getattr(made.figures, name) * few) for name in traces.COUNTS if name != "restarts"
    }
    found = simulate(replace(made, figures=replace(made.figures, **counts)), PLAN, GuardRules())
    (detection,) = found.detections
    assert detection.status == "late"
    assert detection.delay_s is not None
    assert detection.delay_s > 2 * 3600
    assert (found.fallbacks[0].rightly, found.verdict) == ("late", "no")


def test_one_evaluation_at_a_time_sees_what_all_at_once_do() -> None:
    made = hit(1.4, in_acceptance=False)
    within = windows(made, 5, 10)
    codes = verdicts.overall_verdict(verdicts.judge(PLAN, within))
    for at in range(200, 300):
        alone = observed(made, PLAN, at, within, State(), at + 1).verdict
        assert alone == VERDICTS[codes[at]], at


@pytest.mark.slow
def test_hours_without_traffic_and_without_scrapes_are_not_bad_and_the_playbook_takes_them_so() -> None:
    made = weeks(HOURS, 1, np.random.default_rng(1)).select(0)
    nothing = {name: np.array(getattr(made.figures, name)) for name in FIGURES}
    for name, figures in nothing.items():
        figures[100:130] = np.nan if name not in ("finished", "drafted", "tpot_n", "e2e_n") else 0.0
        figures[200:215] = np.nan
        if name in ("covered", "sampled", "counted"):
            figures[100:130] = 1.0
    answers = replace(made.playbook, acceptance=np.where(np.arange(480) == 0, 0.7, made.playbook.acceptance))
    answers.acceptance[104:130] = 0.0
    quiet = replace(made, figures=LiveFigures(ts=made.ts, **nothing), playbook=answers)
    found = simulate(quiet, PLAN, GuardRules())
    assert found.fallbacks == []
    assert found.verdicts["healthy"] > 300
    assert found.playbook is not None
    assert found.playbook.rightly == "no"
    assert found.playbook_triggers >= 24
    assert traces.falls(answers)[106]


def test_it_comes_back_by_steps_once_the_pool_pays_again() -> None:
    incident = SimulatedIncident(np.array([60]), np.array([1.5]), np.array([True]), intervals=20)
    made = weeks(HOURS, 1, np.random.default_rng(5), incident).select(0)
    found = simulate(made, PLAN, GuardRules())
    events = [step.event for step in found.steps]
    assert events[:2] == ["fell_back", "canary"]
    assert "returned" in events
    assert [one.rightly for one in found.fallbacks] == ["yes"] * len(found.fallbacks)


@pytest.mark.slow
def test_an_incident_that_nothing_was_done_about_is_missed() -> None:
    slow = hit(1.3, in_acceptance=False)
    blind = replace(PLAN, min_requests=None, regression=Threshold(value=1.29, source="made up"))
    tired = replace(
        slow, figures=replace(slow.figures, tpot=slow.figures.tpot * 0.7, e2e=slow.figures.e2e * 0.7)
    )
    asleep = simulate(tired, blind, GuardRules())
    assert [one.status for one in asleep.detections] == ["missed"]
    assert (asleep.detections[0].began, asleep.verdict) == (slow.ts[240] - 60, "no")
    assert [one.status for one in simulate(slow, blind, GuardRules()).detections] == ["in time"]


@pytest.mark.slow
def test_incidents_that_somebody_marks_say_what_was_right() -> None:
    made = replace(hit(1.3, in_acceptance=False), slower=np.full(480, np.nan))
    assert simulate(made, PLAN, GuardRules()).fallbacks[0].rightly == "unknown"
    right = traces.marked(made, ["1970-01-01T04:00/1970-01-01T08:00"])
    wrong = traces.marked(made, ["1970-01-01T00:00+00:00/1970-01-01T01:00+00:00"])
    assert simulate(right, PLAN, GuardRules()).fallbacks[0].rightly == "yes"
    assert simulate(wrong, PLAN, GuardRules()).fallbacks[0].rightly == "no"
    with pytest.raises(UsageError, match="invalid incident"):
        traces.marked(made, ["yesterday"])


@pytest.fixture
def rollout(tmp_path: Path) -> Path:
    rows = [
        row(f"p{n}", "chat", 100 + 20.0 * 200, ttft_ms=100.0, tpot_ms=20.0 + 0.01 * n, tokens=201)
        for n in range(40)
    ]
    cells = [cell(rows, Load(concurrency=streams), 0) for streams in (1, 32)]
    data = {"cells": [one.model_dump(mode="json", by_alias=True) for one in cells]}
    path = tmp_path / "rollout.yaml"
    pool = "{engine: endpoint, base_url: 'http://127.0.0.1:1/v1', model: m}"
    path.write_text(f"rollout: demo\npools: {{standard: {pool}, speculative: {pool}}}\n")
    standard = load(path).pools.standard
    inputs = inputs_of(settings_of(load(path), standard), standard)
    kept = Result(phase="baseline", verdict="yes", reason="measured", data=data, inputs=inputs)
    results.write(tmp_path / "run" / "baseline.json", kept)
    return path


def test_the_command_replays_a_trace_and_says_who_was_right(rollout: Path) -> None:
    path = rollout.parent / "trace.jsonl"
    traces.save(hit(1.5, in_acceptance=False), path)
    asked = ["guard", "simulate", str(rollout), "--out", str(rollout.parent / "run"), "--trace", str(path)]
    shown = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    assert "fell back (correct)" in shown.stdout
    said = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert said["fallbacks"][0]["rightly"] == "yes"


def test_a_baseline_of_another_model_is_not_replayed_by(rollout: Path) -> None:
    path = rollout.parent / "trace.jsonl"
    traces.save(hit(1.5, in_acceptance=False), path)
    rollout.write_text(rollout.read_text().replace("model: m", "model: another"))
    asked = ["guard", "simulate", str(rollout), "--out", str(rollout.parent / "run"), "--trace", str(path)]
    shown = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert "baseline.json is not used as a reference: the settings changed since" in shown.stderr
    assert "latencies are not judged" in shown.stderr
    assert "0 fallbacks" in shown.stdout


def test_the_command_makes_no_week_up_without_a_baseline(rollout: Path) -> None:
    with pytest.raises(UsageError, match="could not generate a week without a baseline"):
        CliRunner().invoke(
            app, ["guard", "simulate", str(rollout), "--out", str(rollout.parent)], catch_exceptions=False
        )


def test_the_command_asks_for_a_prometheus_where_the_rollout_names_none(rollout: Path) -> None:
    with pytest.raises(UsageError, match="names no Prometheus"):
        CliRunner().invoke(app, ["guard", "simulate", str(rollout), "--last", "7"], catch_exceptions=False)
