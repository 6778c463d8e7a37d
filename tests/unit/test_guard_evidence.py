"""From a baseline and a window to findings: expectations by load, plans from files, words, and classes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_windows import cell, row

from specops import results
from specops.config import Rollout
from specops.errors import FileError
from specops.guard.signals import criteria, verdicts
from specops.guard.signals.criteria import Baseline, Criteria, Missing
from specops.guard.signals.noise import VERDICTS
from specops.guard.signals.observation import BadRow, LiveWindow, evaluate, repeated
from specops.guard.signals.query import FIGURES, LiveClassFigures, LiveFigures, LiveQuery, combine, read
from specops.guard.signals.replicas import Replica, not_covered, pool_figures
from specops.guard.state import Evaluation, Threshold
from specops.load.arrivals import Level
from specops.load.record import CellRecord
from specops.phases.guard import criteria_of
from specops.phases.run_folder import RunFolder
from specops.prometheus.api import Sample
from specops.results import Result
from specops.serving.vllm.pool import SERIES as VLLM

TOKEN_MS = {1: 20.0, 4: 26.0, 8: 40.0}


def measured(**changes: Any) -> list[CellRecord]:
    """A TTFT of 100 ms, answers of 51 and 151 tokens, by class; the time of a token by the load and a little
    by the prompt."""
    found = []
    for streams, token in TOKEN_MS.items():
        rows = []
        for number in range(40):
            of, tokens = ("short", 51) if number % 2 else ("long", 151)
            tpot = token * (1 + 0.1 * math.sin(number))
            e2e = 100 + tpot * (tokens - 1)
            fields = {"ttft_ms": 100.0, "tpot_ms": tpot, "tokens": tokens} | changes
            rows.append(row(f"p{number}", of, e2e, **fields))
        found.append(cell(rows, Level(concurrency=streams), 0))
    return found


def kept(cells: list[CellRecord], verdict: str = "yes") -> Result:
    data = {"cells": [one.model_dump(mode="json", by_alias=True) for one in cells]}
    return Result(phase="baseline", verdict=verdict, reason="measured", data=data)  # type: ignore[arg-type]


def rollout(**sections: Any) -> Rollout:
    pools = {
        name: {"engine": "endpoint", "base_url": f"http://127.0.0.1:{port}/v1", "model": "m"}
        for name, port in (("standard", 8000), ("speculative", 8001))
    }
    return Rollout.model_validate({"rollout": "demo", "pools": pools, **sections})


@pytest.fixture
def plan(tmp_path: Path) -> Criteria:
    results.write(tmp_path / "baseline.json", kept(measured()))
    return criteria_of(rollout(), RunFolder(tmp_path))


def seen(**changes: Any) -> LiveFigures:
    """Healthy: 4 requests at a time, 0.7 times the baseline's 26 ms."""
    known = {
        "ts": 1000.0, "finished": 900.0, "drafted": 60_000.0, "acceptance": 0.7, "tpot": 0.0182,
        "tpot_n": 900.0, "e2e": 1.92, "e2e_n": 900.0, "tokens": 101.0, "load": 4.0, "spread": 0.0,
        "gauged": 20.0, "restarts": 0.0, "targets": 1.0, "up": 1.0, "requests": 900.0, "failed": 0.0,
        "cancelled": 0.0, "standard_requests": 100.0, "standard_failed": 0.0,
        "covered": 1.0, "sampled": 1.0, "counted": 1.0,
    }  # fmt: skip
    return LiveFigures(**known | changes)


def test_the_baseline_s_own_mean_is_what_is_expected_of_its_own_answers() -> None:
    found = criteria.of_cells(measured(), "baseline.json")
    assert isinstance(found, Baseline)
    for level in found.levels:
        expected = found.e2e(level.streams, level.streams, 101.0)
        assert float(expected.low) == float(expected.high) == pytest.approx(level.e2e)
        assert float(found.tpot(level.streams, level.streams).low) == pytest.approx(level.tpot)
    # Beside their length E2E varies as the time of a token does; with it, by much more.
    assert found.levels[0].e2e_cv < 0.15 < found.levels[0].whole_cv
    assert [name for name, _ in found.classes] == ["long", "short"]


@given(st.floats(0.1, 20.0), st.floats(0.0, 5.0))
def test_an_expectation_brackets_every_load_it_may_be_of(low: float, wide: float) -> None:
    found = criteria.of_cells(measured(), "baseline.json")
    assert isinstance(found, Baseline)
    expected = found.tpot(low, low + wide)
    assert float(expected.low) <= float(expected.high)
    assert (float(expected.low) == 0.0) == (low < 1 / criteria.REACH)
    assert math.isinf(float(expected.high)) == (low + wide > 8 * criteria.REACH)


def test_what_the_baseline_lacks_is_said() -> None:
    assert criteria.of_cells(measured(tokens=None), "b") == Missing(
        "b has no level of streams with two prompts whose tokens are known"
    )


def test_thresholds_come_from_the_rollout_file_then_a_measurement_then_the_playbook(tmp_path: Path) -> None:
    assert criteria_of(rollout(), RunFolder(tmp_path)).min_acceptance == Threshold(
        value=0.4, source="default; no sweep measured break-even"
    )
    deployed = rollout().pools.speculative.model_dump(mode="json")
    swept = Result(
        phase="sweep",
        verdict="yes",
        reason="",
        settings={"settings": {"k5": deployed}},
        data={"steps": [{"setting": "k5", "break_even_acceptance": 0.31}]},
        recommendation={"break_even_acceptance": 0.2},
    )
    results.write(tmp_path / "sweep.json", swept)
    measured_ = criteria_of(rollout(), RunFolder(tmp_path)).min_acceptance
    assert isinstance(measured_, Threshold)
    assert measured_.value == 0.31
    assert criteria_of(rollout(), RunFolder(tmp_path)).break_even_known_to == 0.05
    assert criteria_of(rollout(guard={"min_acceptance": 0.6}), RunFolder(tmp_path)).break_even_known_to == 0.0
    assert results.sha256(tmp_path / "sweep.json")[:12] in measured_.source
    asked = criteria_of(rollout(guard={"min_acceptance": 0.6}), RunFolder(tmp_path)).min_acceptance
    assert isinstance(asked, Threshold)
    assert (asked.value, asked.source) == (0.6, "guard.min_acceptance of the rollout file")


def test_break_even_is_of_the_setting_that_is_deployed(tmp_path: Path) -> None:
    file = rollout()
    deployed = file.pools.speculative.model_dump(mode="json")
    swept = Result(
        phase="sweep",
        verdict="yes",
        reason="",
        settings={"settings": {"k3": {"engine": "other"}, "k5": deployed}},
        data={"steps": [
            {"setting": "k3", "break_even_acceptance": 0.2}, {"setting": "k5", "break_even_acceptance": 0.35}
        ]},
        recommendation={"break_even_acceptance": 0.2},
    )  # fmt: skip
    results.write(tmp_path / "sweep.json", swept)
    found = criteria_of(file, RunFolder(tmp_path)).min_acceptance
    assert isinstance(found, Threshold)
    assert found.value == 0.35
    # A setting that was not swept breaks even at nobody knows what: not at what another one does.
    results.write(tmp_path / "sweep.json", swept.model_copy(update={"settings": {"settings": {}}}))
    unswept = criteria_of(file, RunFolder(tmp_path)).min_acceptance
    assert isinstance(unswept, Threshold)
    assert unswept.value == 0.4


def test_a_tree_that_branches_has_no_threshold_but_a_measured_one(tmp_path: Path) -> None:
    pools = {
        "standard": {"engine": "embedded"},
        "speculative": {"engine": "embedded", "speculation": {"tree": "expand:3,1,1"}},
    }
    file = Rollout.model_validate({"rollout": "demo", "pools": pools})
    found = criteria_of(file, RunFolder(tmp_path)).min_acceptance
    assert isinstance(found, Missing)
    assert "a tree that branches" in found.why


@pytest.mark.parametrize(("verdict", "said"), [("no", "is not used: measured"), ("partial", "is not used")])
def test_a_baseline_that_is_no_yes_is_none(tmp_path: Path, verdict: str, said: str) -> None:
    results.write(tmp_path / "baseline.json", kept(measured(), verdict))
    found = criteria_of(rollout(), RunFolder(tmp_path)).baseline
    assert isinstance(found, Missing)
    assert said in found.why


def test_a_damaged_baseline_is_named(tmp_path: Path) -> None:
    broken = kept(measured())
    broken.data["cells"][0]["rows"][3]["tpot_ms"] = "fast"
    results.write(tmp_path / "baseline.json", broken)
    with pytest.raises(FileError, match=r"baseline\.json is damaged: data\.cells\.0\.rows\.3\.tpot_ms"):
        criteria_of(rollout(), RunFolder(tmp_path))


def test_a_finding_says_its_figures_and_where_they_come_from(plan: Criteria) -> None:
    found = evaluate(plan, seen(acceptance=0.15), 1000.0)
    assert found.verdict == "bad"
    assert found.reason == ("acceptance 0.15 ± 0.02 (threshold 0.40, default; no sweep measured break-even)")
    tpot = next(one for one in found.findings if one.signal == "tpot")
    assert tpot.value == pytest.approx(0.7, abs=0.01)
    assert "0.70× ± 0.0" in tpot.why
    assert "baseline.json" in tpot.why
    assert tpot.threshold is not None
    assert tpot.threshold.value == pytest.approx(1.2)


def test_a_baseline_of_few_prompts_says_what_it_cannot_see(tmp_path: Path) -> None:
    few = [one.model_copy(update={"rows": one.rows[1:5]}) for one in measured()]
    results.write(tmp_path / "baseline.json", kept(few))
    found = evaluate(criteria_of(rollout(), RunFolder(tmp_path)), seen(), 1000.0)
    assert "and more is detectable" in next(one.why for one in found.findings if one.signal == "tpot")


def test_of_classes_the_verdict_is_a_finding_of_its_own(plan: Criteria) -> None:
    classes = {
        "long": LiveClassFigures(9.0, 4000.0),
        "short": LiveClassFigures(1.0, 4000.0),
        "new": LiveClassFigures(9.0, 900.0),
    }
    found = evaluate(plan, seen(classes=classes), 1000.0)
    by_class = {one.traffic_class: one.verdict for one in found.findings if one.traffic_class}
    assert by_class == {"long": "bad", "short": "healthy"}
    assert found.verdict == "degraded"
    assert "long" in next(one.why for one in found.findings if one.verdict == "bad")


def test_an_infinite_mean_of_a_class_is_no_data_and_holds_no_step(plan: Criteria) -> None:
    of = {"specops_signal": "class_e2e", "class": "long"}, {"specops_signal": "class_n", "class": "long"}
    live = read([Sample(of[0], math.inf, 1000.0), Sample(of[1], 4000.0, 1000.0)], plan.query, 300.0)
    found = evaluate(plan, seen(classes=live.classes), 1000.0)
    assert [one.verdict for one in found.findings if one.traffic_class] == ["no_data"]


def test_few_errors_alone_are_not_healthy(plan: Criteria) -> None:
    found = evaluate(plan, seen(finished=20.0, tpot_n=20.0, e2e_n=20.0), 1000.0)
    assert found.verdict == "no_traffic"
    assert found.reason.startswith("acceptance: 20 requests in 300 s, a verdict needs 100; TPOT")
    failing = seen(finished=0.0, tpot_n=0.0, e2e_n=0.0, drafted=0.0, failed=800.0)
    assert evaluate(plan, failing, 1000.0).verdict == "bad"


def test_the_rollout_file_may_ask_for_fewer_requests(tmp_path: Path) -> None:
    results.write(tmp_path / "baseline.json", kept(measured()))
    eager = criteria_of(rollout(guard={"min_requests": 10}), RunFolder(tmp_path))
    few = seen(finished=12.0, tpot_n=12.0, e2e_n=12.0, drafted=800.0, acceptance=0.0)
    assert evaluate(eager, few, 1000.0).verdict == "bad"


@settings(max_examples=40)
@given(st.data())
def test_a_window_among_many_is_judged_as_alone(data: st.DataObject) -> None:
    times = criteria.of_cells(measured(), "b")
    plan = replace(criteria_of(rollout(), RunFolder(Path("/nowhere"))), baseline=times)
    odd = st.one_of(st.just(math.nan), st.just(0.0), st.floats(0.001, 2000.0))
    windows = [
        seen(**{name: data.draw(odd) for name in ("finished", "tpot", "tpot_n", "e2e", "load", "spread")},
             acceptance=data.draw(st.one_of(st.just(math.nan), st.floats(0, 1))),
             restarts=data.draw(st.sampled_from([0.0, 1.0, math.nan])))
        for _ in range(3)
    ]  # fmt: skip
    together_ = LiveFigures(**{name: np.array([getattr(one, name) for one in windows]) for name in FIGURES})
    judged = verdicts.judge(plan, together_)
    many = verdicts.overall_verdict(judged, together_.missing)
    alone = [evaluate(plan, one, float(one.ts)).verdict for one in windows]
    assert [VERDICTS[code] for code in many] == alone


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        (
            {"covered": 1.0, "sampled": 0.5},
            "a:1: 50% of the samples of its series are there",
        ),
        ({"covered": 0.5, "sampled": 0.5}, "a:1: 50% of the scrapes of the last 300 s succeeded"),
        ({"covered": 1.0}, "a:1: it is scraped, and has no vllm:e2e_request_latency_seconds_count"),
        ({"covered": 1.0, "sampled": 3.0}, "3.0× the expected samples (one every 15 s)"),
        ({"covered": 3.0, "sampled": 1.0}, "3.0× the expected samples (one every 15 s)"),
    ],
)
def test_no_data_says_which_scrapes_are_missing_or_too_many(
    plan: Criteria, shares: dict[str, float], said: str
) -> None:
    replica = Replica(**{"running": 4.0, **shares})
    pool = {"covered": 1.0, "sampled": math.nan, **shares}
    live = seen(up=1.0, targets=1.0, **pool, replicas={"a:1": replica})
    found = evaluate(plan, live, 1000.0)
    assert found.verdict == "no_data"
    assert said in found.reason


def test_other_buckets_after_an_upgrade_change_nothing(plan: Criteria) -> None:
    """The guard falls back by sums and counts. Buckets are read for the slowest requests alone."""
    expressions = plan.query.expressions(300.0, 600.0)
    of_buckets = {name for name, expression in expressions.items() if "_bucket" in expression}
    assert of_buckets == {
        f"{prefix}bucket_{name}" for prefix in ("", "standard_") for name in ("tpot", "e2e")
    }


def test_one_query_s_answer_is_told_apart_by_its_label(plan: Criteria) -> None:
    assert combine({"a": "x", "b": "y"}) == (
        'label_replace(x, "specops_signal", "a", "", "") or label_replace(y, "specops_signal", "b", "", "")'
    )

    def of_replica(figure: str, value: float, instance: str = "a:1") -> Sample:
        return Sample({"specops_signal": f"replica_{figure}", "instance": instance}, value, 7.0)

    scraped = {"covered": 1.0, "sampled": 1.0, "finished": 10.0}
    found = read(
        [
            *(of_replica(figure, value) for figure, value in scraped.items()),
            of_replica("tpot_s", 0.2),
            of_replica("tpot_n", 10.0),
            of_replica("e2e_s", math.inf),
            of_replica("e2e_n", 10.0),
            Sample({"specops_signal": "class_e2e", "class": "code"}, 1.5, 7.0),
            Sample({"specops_signal": "class_n", "class": "code"}, 30.0, 7.0),
            Sample({"specops_signal": "of a later version"}, 1.0, 7.0),
        ],
        plan.query,
        300.0,
    )
    assert (found.ts, found.tpot, found.classes) == (7.0, 0.02, {"code": LiveClassFigures(1.5, 30.0)})
    assert math.isnan(float(found.e2e))


@pytest.mark.parametrize(
    ("cancelled", "others", "verdict"),
    [(0.0, 0.0, "bad"), (300.0, 0.0, "healthy"), (300.0, 100.0, "bad"), (math.nan, math.nan, "bad")],
)
def test_clients_that_may_have_left_are_errors_only_beside_a_pool_that_they_stay_with(
    plan: Criteria, cancelled: float, others: float, verdict: str
) -> None:
    found = evaluate(plan, seen(failed=300.0, cancelled=cancelled, standard_requests=others), 1000.0)
    (errors,) = (one for one in found.findings if one.signal == "errors")
    assert (errors.verdict, found.verdict) == (verdict, verdict)


STANDARD = {
    "standard_tpot": 0.026, "standard_tpot_n": 400.0, "standard_e2e": 2.7, "standard_e2e_n": 400.0,
    "standard_tokens": 101.0, "standard_load": 4.0, "standard_spread": 0.0, "standard_gauged": 20.0,
    "standard_covered": 1.0, "standard_sampled": 1.0,
}  # fmt: skip
SLOWER = {"tpot": 0.026 * 1.4, "e2e": 0.1 + 0.026 * 1.4 * 100}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"covered": 0.9, "sampled": 0.9, "counted": 0.9}, "healthy"),
        ({"covered": 0.89}, "no_data"),
        ({"sampled": 0.89}, "no_data"),
        ({"covered": math.nan}, "no_data"),
    ],
)
def test_a_window_counts_where_nine_tenths_of_its_scrapes_are_there(plan: Criteria, changes, verdict) -> None:
    found = evaluate(plan, seen(**changes), 1000.0)
    assert found.verdict == verdict
    bad = evaluate(plan, seen(**{**SLOWER, "acceptance": 0.0, **changes}), 1000.0)
    assert bad.verdict == {"healthy": "bad"}.get(verdict, verdict)


def test_errors_are_counted_by_the_routers_though_the_pool_is_gone(plan: Criteria) -> None:
    failing = {"failed": 800.0, "covered": 0.0, "sampled": math.nan}
    assert evaluate(plan, seen(**failing), 1000.0).verdict == "bad"
    assert evaluate(plan, seen(**{**failing, "counted": 0.5}), 1000.0).verdict == "no_data"


def test_a_class_is_not_judged_by_a_window_with_a_gap(plan: Criteria) -> None:
    found = evaluate(plan, seen(classes={"long": LiveClassFigures(9.0, 4000.0)}, covered=0.5), 1000.0)
    assert [one.verdict for one in found.findings if one.traffic_class] == ["no_data"]


@pytest.mark.parametrize(
    ("standard", "verdict", "both_slow"),
    [
        ({}, "bad", False),  # as fast as it was measured: speculation alone is slow
        ({"standard_tpot": 0.026 * 1.4, "standard_e2e": 3.74}, "unknown", True),
        # Both are slow, and the speculative pool is surely slower still.
        ({"standard_tpot": 0.026 * 1.1, "standard_e2e": 2.96}, "bad", False),
        ({"standard_tpot_n": 0.0, "standard_e2e_n": 0.0}, "bad", False),  # no traffic: the baseline alone
        ({"standard_tpot_n": 1.0, "standard_e2e_n": 1.0}, "unknown", False),  # too few to tell
        ({"standard_covered": 0.5}, "unknown", False),
        ({"standard_sampled": 0.5}, "unknown", False),
        ({"standard_covered": 0.0, "standard_sampled": math.nan}, "unknown", False),
        # Never scraped, or without such series at all: there is no standard pool to compare with.
        ({"standard_covered": math.nan, "standard_sampled": math.nan}, "bad", False),
        (
            {"standard_sampled": math.nan, "standard_tpot_n": math.nan, "standard_e2e_n": math.nan},
            "bad",
            False,
        ),
        # At more than was measured, what it should take is not known, only that it is not less.
        ({"standard_load": 40.0, "standard_tpot": 0.2, "standard_e2e": 20.0}, "unknown", False),
        ({"standard_load": 40.0}, "bad", False),
    ],
)
def test_the_standard_pool_s_live_latency_is_looked_at_first(
    plan: Criteria, standard, verdict, both_slow
) -> None:
    """Acceptance is healthy in all of them; the whole is unknown where the latencies are."""
    found = evaluate(plan, seen(**{**SLOWER, **STANDARD, **standard}), 1000.0)
    assert (found.verdict, found.both_slow) == (verdict, both_slow)
    latencies = {one.verdict for one in found.findings if one.signal in ("tpot", "e2e")}
    assert latencies == {"bad" if verdict == "bad" else "unknown"}
    if both_slow:
        assert found.reason.startswith("both pools are slow, so speculation is not the cause; TPOT: 1.40×")
        assert "the standard pool takes 1.40× its own baseline (n=400)" in found.reason


def standard_of(n: float, times: float, **changes: float) -> dict[str, float]:
    """A standard pool with `n` requests that take so many times the baseline's."""
    token = 0.026 * times
    figures = {"tpot": token, "tpot_n": n, "e2e": 0.1 + token * 100, "e2e_n": n} | changes
    return {**STANDARD, **{f"standard_{name}": value for name, value in figures.items()}}


def looked_back(
    plan: Criteria, short: dict[str, float], longer: dict[str, float], windows: float
) -> Evaluation:
    """The last window and a longer one, of a pool that takes 1.4 times the baseline's."""
    n = windows * short.get("tpot_n", 400.0)
    back = LiveWindow(windows * plan.window_s, seen(**{**SLOWER, "tpot_n": n, "e2e_n": n, **longer}))
    return evaluate(plan, seen(**{**SLOWER, **short}), 1000.0, back)


@cache
def plan_with_baseline() -> Criteria:
    return Criteria(
        query=LiveQuery("demo", VLLM, VLLM, {}, scrape_s=15.0, routed=True),
        window_s=300.0,
        min_acceptance=Threshold(value=0.4, source="made up"),
        baseline=criteria.of_cells(measured(), "baseline.json"),
        regression=Threshold(value=1.2, source="made up"),
        max_error_share=Threshold(value=0.05, source="made up"),
        min_requests=None,
    )


def silent_replicas(**figures: float) -> LiveFigures:
    """Two replicas whose counters of drafts stand still, or do what `figures` have of the second."""
    known = {"covered": 1.0, "sampled": 1.0, "finished": 450.0, "generated": 45_450.0, "drafted": 0.0}
    first, second = Replica(**known), Replica(**{**known, **figures})
    drafted = first.drafted + second.drafted
    acceptance = 0.7 if drafted > 0 else math.nan
    return seen(drafted=drafted, acceptance=acceptance, replicas={"a:1": first, "b:1": second})


def test_a_pool_that_stopped_drafting_says_so_and_names_what_may_have_ended_it() -> None:
    gated = replace(plan_with_baseline(), ends_speculation="the gate (0.4 over 100)")
    found = evaluate(gated, silent_replicas(), 1000.0)
    assert (found.verdict, [one.replica for one in found.findings if one.signal == "drafting"]) == (
        "degraded",
        ["a:1", "b:1", None],
    )
    assert "the gate (0.4 over 100) may have ended speculation for good" in found.reason
    acceptance = next(one for one in found.findings if one.signal == "acceptance")
    assert acceptance.verdict == "unknown", "flat counters under traffic are not too little traffic"
    assert "gate" not in evaluate(gated, seen(), 1000.0).reason


def test_one_replica_that_stopped_drafting_is_named(plan: Criteria) -> None:
    found = evaluate(plan, silent_replicas(drafted=30_000.0), 1000.0)
    assert found.verdict == "degraded"
    assert [one.replica for one in found.findings if one.signal == "drafting"] == ["a:1"]


QUIET, TWO, MANY = standard_of(0, math.nan), standard_of(2, 1.0), standard_of(120, 1.0)


@pytest.mark.parametrize(
    ("short", "longer", "windows", "verdict", "both_slow"),
    [
        (TWO, MANY, 32, "bad", False),  # the longer window shows that the standard pool is not slow
        (TWO, standard_of(120, 1.4), 32, "unknown", True),
        (TWO, standard_of(120, 1.4), 64, "unknown", True),
        (TWO, standard_of(30, 1.35), 32, "unknown", True),  # slower than it, and not surely
        # The last window contradicts: a fault of both that has just begun.
        (standard_of(2, 1.4), MANY, 32, "unknown", True),
        (standard_of(2, 1.28), MANY, 32, "unknown", False),
        # Up to half a window of the standard pool's samples may be missing.
        (TWO, {**MANY, "standard_sampled": 1 - 0.5 / 32, "standard_covered": 1 - 0.5 / 32}, 32, "bad", False),
        (TWO, {**MANY, "standard_sampled": 1 - 0.6 / 32}, 32, "unknown", False),
        (TWO, {**MANY, "standard_covered": 1 - 0.6 / 32}, 32, "unknown", False),
        # Surely less than 1% of the requests is no traffic; the same number beside fewer requests is not.
        (TWO, standard_of(15, 1.0), 64, "bad", False),
        (TWO, standard_of(5, 1.0), 3, "unknown", False),
        (TWO, standard_of(5, 1.4), 64, "unknown", True),
        (standard_of(2, 1.28), standard_of(5, 1.0), 64, "unknown", False),
        # None in one window may be chance.
        (QUIET, QUIET, 8, "bad", False),
        (QUIET, {**QUIET, "standard_covered": 0.5, "standard_sampled": 0.5}, 8, "bad", False),
        (QUIET, {**QUIET, "standard_covered": 0.4, "standard_sampled": 0.4}, 8, "unknown", False),
        (QUIET, standard_of(20, 1.0), 8, "unknown", False),  # they came before: not of the same time
        (QUIET, standard_of(20, 1.4), 8, "unknown", True),
        # A gap in the pool's own samples stays one.
        ({**TWO, "covered": 0.5}, MANY, 32, "no_data", False),
        (TWO, {**MANY, "covered": 0.5}, 32, "unknown", False),
    ],
)
def test_a_standard_pool_with_little_traffic_is_compared_over_longer(
    plan: Criteria, short, longer, windows, verdict, both_slow
) -> None:
    """Acceptance is healthy in all of them; the whole is unknown where the latencies are."""
    found = looked_back(plan, short, longer, windows)
    assert (found.verdict, found.both_slow) == (verdict, both_slow)
    latencies = {one.verdict for one in found.findings if one.signal in ("tpot", "e2e")}
    assert latencies == {verdict}


def test_a_window_that_is_long_for_its_own_traffic_is_compared_as_well(plan: Criteria) -> None:
    few = {"finished": 10.0, "drafted": 600.0, "tpot_n": 10.0, "e2e_n": 10.0}
    for standard, windows, verdict in (
        (MANY, 8, "bad"),
        (TWO, 8, "unknown"),
        (QUIET, 8, "unknown"),  # none beside 80 requests may be chance
        (QUIET, 64, "bad"),
        (standard_of(9, 1.0), 64, "unknown"),  # 1.4% of the requests
    ):
        found = looked_back(plan, few, standard, windows)
        assert found.verdict == verdict, standard


@pytest.mark.parametrize("n", [20.0, 400.0])  # too few to judge one window alone, and enough
def test_a_fault_of_both_that_few_requests_of_the_standard_pool_missed_is_not_speculation_s(
    plan: Criteria, n: float
) -> None:
    """Both became 2.5 times slower a third of the longer window ago; most of the standard pool's 20 requests
    came before, by chance."""

    def ours(times: float, windows: float) -> dict[str, float]:
        token, count = 0.026 * times, n * windows
        of = dict.fromkeys(("finished", "tpot_n", "e2e_n"), count) | {"drafted": 65 * count}
        return {"tpot": token, "e2e": 0.1 + token * 100, **of}

    short = seen(**{**standard_of(1, 1.0), **ours(2.3, 1)})
    for mean, verdict in ((1.4, "unknown"), (2.3, "bad")):  # it is as slow all the time: not by chance
        long = seen(**{**standard_of(20, 1.0), **ours(mean, 8)})
        found = evaluate(plan, short, 1000.0, LiveWindow(8 * plan.window_s, long))
        assert found.verdict == verdict, found.reason
    contradicted = seen(**{**standard_of(1, 2.3), **ours(2.3, 1)})
    assert evaluate(plan, contradicted, 1000.0, LiveWindow(8 * plan.window_s, long)).verdict != "bad"


@pytest.mark.parametrize(("share", "n", "verdict"), [(0.02, 40.0, "unknown"), (0.001, 400.0, "bad")])
def test_the_baseline_decides_alone_only_beside_a_standard_pool_that_is_surely_unused(
    plan: Criteria, share: float, n: float, verdict: str
) -> None:
    """That 320 requests are beside none of a standard pool with 2% may be chance; in 64 windows 0.1%
    of the requests is no traffic."""
    windows = 8 if share == 0.02 else 64
    ours = {**SLOWER, "finished": n, "drafted": 65 * n, "tpot_n": n, "e2e_n": n}
    theirs = QUIET if share == 0.02 else standard_of(share * n * windows, 1.0)
    longer = theirs | dict.fromkeys(("finished", "tpot_n", "e2e_n"), n * windows)
    found = looked_back(plan, {**ours, **QUIET}, longer, windows)
    assert found.verdict == verdict, found.reason


def test_what_a_longer_window_confirmed_says_so(plan: Criteria) -> None:
    assert "; 1.39× the standard pool over 32 windows (n=120)" in looked_back(plan, TWO, MANY, 32).reason
    both = looked_back(plan, TWO, standard_of(120, 1.4), 32).reason
    assert "the standard pool takes 1.40× its own baseline (n=120 in 32 windows)" in both


@pytest.mark.parametrize(
    ("standard", "windows"),
    [
        (standard_of(400, 1.0), 0),  # enough
        (QUIET, verdicts.QUIET_OVER),
        ({**QUIET, "tpot_n": 100.0, "e2e_n": 100.0}, 32),  # beside so few none may be chance for longer
        (standard_of(8, 1.0), 2),  # at 1.4 times it is soon seen
        (standard_of(2, 1.2), 16),
        (standard_of(2, 1.45), 0),
        (standard_of(1, 1.28), 32),
        (standard_of(1, 1.35), 32),
        (standard_of(400, 1.4), 0),  # both slow
        ({**QUIET, "standard_covered": 0.5}, 0),
        ({"standard_covered": math.nan}, 0),  # no standard pool
    ],
)
def test_it_looks_back_as_far_as_the_comparison_takes(plan: Criteria, standard, windows) -> None:
    slower = seen(**{**SLOWER, **standard})
    assert int(verdicts.windows_needed(verdicts.judge(plan, slower))) == windows
    # Not where the pool is well by the baseline, nor where another signal is bad anyway.
    assert int(verdicts.windows_needed(verdicts.judge(plan, seen(**standard)))) == 0
    bad = seen(**{**SLOWER, **standard, "acceptance": 0.0})
    assert int(verdicts.windows_needed(verdicts.judge(plan, bad))) == 0


@given(
    st.floats(1.0, 3.0),
    st.floats(0.5, 0.95),
    st.floats(0.0, 1.0),
    st.floats(1.0, 400.0),
    st.floats(1.0, 64.0),
)
def test_a_fault_of_both_pools_is_never_speculation_s(
    common: float, gain: float, part: float, n: float, windows: float
) -> None:
    """Both are `common` times slower since a part of the longer window, and the pool pays."""
    plan = plan_with_baseline()

    def both(slower: float, times: float) -> LiveFigures:
        token = 0.026 * gain * slower
        ours = {"tpot": token, "e2e": 0.1 + token * 100}
        return seen(**{**standard_of(n * times, slower), **ours})

    long = LiveWindow(windows * 300.0, both(1 + (common - 1) * part, windows))
    for longer in (None, long):
        found = evaluate(plan, both(common, 1.0), 1000.0, longer)
        assert {one.verdict for one in found.findings} <= {"healthy", "unknown", "no_traffic"}


@given(st.floats(1.25, 3.0), st.sampled_from((2, 8, 32, 64)), st.floats(16.0, 400.0))
def test_what_a_longer_window_surely_shows_is_bad_whatever_one_window_has(
    slower: float, windows: int, enough: float
) -> None:
    few, token = max(enough / windows, 1.0), 0.026 * slower
    ours = {"tpot": token, "e2e": 0.1 + token * 100}
    plan = plan_with_baseline()
    short, long = (seen(**{**standard_of(n, 1.0), **ours}) for n in (few, enough))
    beside = verdicts.judge(plan, long, windows=windows)["tpot"]
    found = evaluate(plan, short, 1000.0, LiveWindow(windows * 300.0, long))
    assert (found.verdict == "bad") >= bool(beside.slower)
    if enough >= 100:
        assert bool(beside.slower), "a hundred requests show 25%"


def test_both_slow_does_not_hide_an_acceptance_that_is_bad(plan: Criteria) -> None:
    both = {**SLOWER, **STANDARD, "standard_tpot": 0.026 * 1.4, "standard_e2e": 3.74}
    found = evaluate(plan, seen(**both, acceptance=0.1), 1000.0)
    assert (found.verdict, found.both_slow) == ("bad", False)


@pytest.mark.parametrize(
    ("targets", "restarts", "verdict"),
    [
        (1.0, 0.0, "bad"),
        (1.0, 1.0, "unknown"),
        (9.0, 1.0, "unknown"),
        (10.0, 1.0, "bad"),
        (math.nan, 1.0, "unknown"),
    ],
)
def test_a_pool_is_not_slow_while_a_tenth_of_its_servers_has_just_started(
    plan: Criteria, targets: float, restarts: float, verdict: str
) -> None:
    found = evaluate(plan, seen(**SLOWER, targets=targets, restarts=restarts), 1000.0)
    assert {one.verdict for one in found.findings if one.signal in ("tpot", "e2e")} == {verdict}
    assert (found.verdict == "bad") == (verdict == "bad")


def test_what_follows_a_bad_window_is_judged_at_95_per_cent_and_by_few_requests(plan: Criteria) -> None:
    few = {"finished": 20.0, "tpot_n": 20.0, "e2e_n": 20.0, "drafted": 1300.0, "requests": 20.0}
    bad = evaluate(plan, seen(**SLOWER), 1000.0)
    assert {one.signal for one in bad.findings if one.verdict == "bad"} == {"tpot", "e2e"}
    assert evaluate(plan, seen(**SLOWER, **few), 1000.0).verdict == "no_traffic"
    assert repeated(plan, bad, seen(**SLOWER, **few))
    assert not repeated(plan, bad, seen(**few)), "well again"
    assert not repeated(plan, bad, seen(**SLOWER, **few, covered=0.7)), "a gap is no data"
    assert not repeated(plan, bad, seen(**{**SLOWER, **few, "tpot_n": 15.0, "e2e_n": 15.0}))
    assert not repeated(plan, bad, seen(**few, acceptance=0.0)), "another signal than was bad"


def test_few_requests_repeat_an_acceptance_that_was_bad(plan: Criteria) -> None:
    low = {"acceptance": 0.05, "finished": 900.0}
    bad = evaluate(plan, seen(**low), 1000.0)
    assert {one.signal for one in bad.findings if one.verdict == "bad"} == {"acceptance"}
    few = {"acceptance": 0.05, "finished": 20.0, "drafted": 1300.0}
    assert repeated(plan, bad, seen(**few))
    assert not repeated(plan, bad, seen(**few | {"finished": 15.0}))


def test_the_load_of_a_window_brackets_what_few_scrapes_leave_open() -> None:
    """Mean plus variance over mean; 32 scrapes know the variance to half of it."""
    known = verdicts.load(seen(load=4.0, spread=2.0, gauged=32.0))
    assert [float(end) for end in (known.low, known.middle, known.high)] == [5.0, 6.0, 7.0]
    unscraped = verdicts.load(seen(load=4.0, spread=math.nan))
    assert [float(end) for end in (unscraped.low, unscraped.high)] == [4.0, 5.0]
    assert float(verdicts.load(seen(load=0.1, spread=0.0)).low) == 1.0


def test_half_a_window_at_most_is_shared_with_the_last_that_counted() -> None:
    assert BadRow(began=1000.0, last=1000.0).fresh_s(1060.0, 300.0) == 60.0
    assert BadRow(began=1000.0, last=1240.0).fresh_s(1300.0, 300.0) == 210.0


def replica(requests: float, e2e: float, **changes: float) -> Replica:
    known = {
        "covered": 1.0, "sampled": 1.0, "finished": requests, "generated": 100 * requests,
        "drafted": requests, "accepted": requests, "tpot_s": requests * e2e / 100, "tpot_n": requests,
        "first_n": requests, "e2e_s": requests * e2e, "e2e_n": requests, "gauged": 20.0,
        "running": requests * e2e / 300,
    }  # fmt: skip
    return Replica(**known | changes)


def test_a_slow_replica_does_not_raise_the_load_that_the_pool_is_judged_at() -> None:
    """Four servers get 300 requests each; one takes three times as long, so it holds three times as many."""
    replicas = {str(number): replica(300.0, 2.0) for number in range(3)} | {"slow": replica(300.0, 6.0)}
    figures = pool_figures(replicas, VLLM, 15.0, 300.0, routed=True)
    assert figures is not None
    assert figures["load"] == pytest.approx((2 + 2 + 2 + 6) / 4), "by requests; by requests at a time it is 4"
    assert figures["e2e"] == pytest.approx(3.0)


@given(st.lists(st.tuples(st.floats(1.0, 1e4), st.floats(0.1, 50.0), st.booleans()), min_size=1, max_size=8))
def test_a_pool_s_figures_are_those_of_its_covered_replicas(servers) -> None:
    replicas = {
        str(number): replica(requests, e2e, covered=1.0 if covered else 0.5)
        for number, (requests, e2e, covered) in enumerate(servers)
    }
    covered = [one for one in replicas.values() if one.whole]
    figures = pool_figures(replicas, VLLM, 15.0, 300.0, routed=True)
    assert figures is not None
    assert figures["missing"] == pytest.approx(1 - len(covered) / len(servers))
    missing = list(not_covered(replicas, VLLM, 300.0, 15.0, 0))
    assert len(missing) == len(servers) - len(covered)
    if 2 * len(covered) >= len(servers):
        assert figures["finished"] == pytest.approx(sum(one.finished for one in covered))
        spent = sum(one.e2e_s for one in covered)
        assert figures["e2e"] == pytest.approx(spent / figures["finished"])
        assert figures["covered"] == 1.0
    else:
        assert figures["covered"] == 0.5, "which is no data"


def test_an_engine_that_has_no_counters_before_its_first_request_is_idle_and_not_gone() -> None:
    idle = Replica(covered=1.0, running=0.0, gauged=20.0)
    figures = pool_figures({"a": idle}, VLLM, 15.0, 300.0, routed=True)
    assert figures is not None
    assert (figures["finished"], figures["missing"]) == (0.0, 0.0)
    assert not Replica(covered=1.0, running=2.0).whole, "it serves, and nobody counts it"
